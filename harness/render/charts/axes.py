"""Axes: the position of a value, and which round values get a tick. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LOG_FROM = 8.0  # a sweep over fewer than three doublings reads better on a linear scale


@dataclass(frozen=True)
class Scale:
    """Map values to a range of pixels, including both ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high != low else 0.5)


def sizes_scale(sizes: Sequence[float], start: float, end: float) -> Scale:
    """Return the scale of a swept size: logarithmic if the sweep spans at least three doublings."""
    low, high = min(sizes), max(sizes)
    return Scale(low, high, start, end, log=low > 0 and high / low >= _LOG_FROM)


def values_scale(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a scale from 0 to a little above the largest value, and round ticks on it."""
    top = (max(values, default=1.0) or 1.0) * 1.04
    step = _step(top / 5.2)
    return Scale(0.0, top, start, end), [position * step for position in range(math.floor(top / step) + 1)]


def size_ticks(scale: Scale) -> list[float]:
    """Return about six ticks: powers of two on a logarithmic scale, else round numbers."""
    if not scale.log:
        step = _step((scale.high - scale.low) / 5)
        first = math.ceil(scale.low / step)
        return [position * step for position in range(first, math.floor(scale.high / step) + 1)]
    first, last = math.ceil(math.log2(scale.low) - 1e-9), math.floor(math.log2(scale.high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / 7))
    return [2.0**power for power in range(first, last + 1, stride)]


def short(value: float) -> str:
    """Return a tick's label: 512, 4 Ki, 128 Mi for powers of two; 4 k, 1.5 M for others."""
    for unit, factor in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value >= factor and value % factor == 0 and math.log2(value).is_integer():
            return f"{value / factor:.0f} {unit}"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size or (value >= size and value % size == 0 and unit != "k"):
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _step(rough: float) -> float:
    """Return the next number up that is 1, 2, 2.5 or 5 times a power of ten."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
