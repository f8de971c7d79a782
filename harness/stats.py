"""The few statistics of a report. Pure; an empty list is a ValueError, never a number."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile, interpolated linearly between the two values around it."""
    if not values:
        raise ValueError("a quantile of no values")
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    return quantile(values, 0.5)


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios: twice as fast and half as fast cancel out."""
    _require_positive(values, "geometric mean")
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def harmonic_mean(values: Sequence[float]) -> float:
    """The mean that one bad value drags down; 0 as soon as one value is 0."""
    if values and all(math.isfinite(value) and value >= 0 for value in values) and 0 in values:
        return 0.0
    _require_positive(values, "harmonic mean")
    return len(values) / math.fsum(1 / value for value in values)


def _require_positive(values: Sequence[float], name: str) -> None:
    if not values:
        raise ValueError(f"a {name} of no values")
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"a {name} needs finite numbers above 0, not {value}")
