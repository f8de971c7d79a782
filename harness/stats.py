"""The few statistics of a report. Pure, and without random numbers: the same bundle gives the same report.

The interval of a median is a bootstrap's, in closed form. Successive timings are not independent (on a recorded H200 run they swing with
periods of 2 to 20), so that what is resampled are blocks of them, whole rounds where they were taken in rounds; and what is computed of a
resample is the median of its blocks' medians, whose distribution over *all* resamples is known exactly (Efron, "Bootstrap methods", 1979).
tests/unit/compare/test_stats.py compares it with scipy's and holds it to its confidence by simulation.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

# An interval holds the true value 19 times in 20.
CONFIDENCE = 0.95
# Resampled medians are steps: of 5, 11 or 15 values the interval holds the true one in 94, 93 or 96 cases of 100, of 7 or 9 in fewer than
# 90. More blocks are shorter, and then neighbours swing together.
_BLOCKS = 11
_FEWEST_BLOCKS = 5
# A figure beyond these was not measured, and what is made of such figures may leave the range of a float: their quotients, products and
# squares do not.
SMALLEST, LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Interval:
    """An estimate and where the true value lies with 95 % confidence."""

    value: float
    low: float
    high: float


def measurable(value: float) -> bool:
    """Whether a value above 0 can be one that was measured: arithmetic on such values neither overflows nor divides by 0."""
    return SMALLEST <= value <= LARGEST


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


def ratio_of_medians(
    base: Sequence[float], head: Sequence[float], rounds: tuple[Sequence[int], Sequence[int]] = ((), ())
) -> Union[Interval, None]:
    """How often `head`'s median goes into `base`'s; of times, how much faster `head` is. None with fewer than five timings a side.

    `rounds` are the numbers of timings that each round gave, per side; empty where there were none.
    """
    _require_positive([*base, *head], "ratio of medians")
    blocks = [_block_medians(*side) for side in zip((base, head), rounds, strict=True)]
    if not all(blocks):
        return None
    weights = [median_weights(len(side)) for side in blocks]
    found = sorted(
        (one / two, p * q) for one, p in zip(blocks[0], weights[0], strict=True) for two, q in zip(blocks[1], weights[1], strict=True)
    )
    value = median(base) / median(head)
    return _interval(value, [ratio for ratio, _ in found], [weight for _, weight in found])


def median_interval(values: Sequence[float], rounds: Sequence[int] = ()) -> Union[Interval, None]:
    """The median, and where it would lie if all of it were measured again; None with fewer than five values."""
    blocks = _block_medians(values, rounds)
    return _interval(median(values), blocks, median_weights(len(blocks))) if blocks else None


@functools.lru_cache
def median_weights(count: int) -> tuple[float, ...]:
    """How often each of `count` sorted values, an odd number, is the median of a resample: the exact bootstrap distribution.

    The median is at most the k-th value where more than half of the draws are, and each is with probability k / count.
    """
    if count % 2 == 0:
        raise ValueError(f"{count} values have no middle one")

    def at_most(k: int) -> float:
        share = k / count
        return math.fsum(
            math.comb(count, draws) * share**draws * (1 - share) ** (count - draws) for draws in range(count // 2 + 1, count + 1)
        )

    below = [at_most(k) for k in range(count + 1)]
    return tuple(after - before for before, after in itertools.pairwise(below))


def _block_medians(values: Sequence[float], rounds: Sequence[int]) -> list[float]:
    """Sorted medians of the blocks; of whole rounds where there are enough of them. Empty where there is too little."""
    edges = [0, *itertools.accumulate(rounds)]
    # Rounds that do not add up to the timings, or that are empty, are not those in which they were taken.
    if len(rounds) < _FEWEST_BLOCKS or min(rounds) < 1 or edges[-1] != len(values):
        edges = list(range(len(values) + 1))
    pieces = len(edges) - 1
    if pieces < _FEWEST_BLOCKS:
        return []
    count = _BLOCKS if pieces >= _BLOCKS else _FEWEST_BLOCKS
    cuts = [edges[pieces * block // count] for block in range(count + 1)]
    return sorted(median(values[start:end]) for start, end in itertools.pairwise(cuts))


def _interval(value: float, ordered: Sequence[float], weights: Sequence[float]) -> Interval:
    """The middle of a distribution, and `value` in any case: it is the median of all, they are of blocks."""
    reached = list(itertools.accumulate(weights))
    tail = (1 - CONFIDENCE) / 2
    low, high = (ordered[min(bisect_left(reached, at - 1e-12), len(ordered) - 1)] for at in (tail, 1 - tail))
    return Interval(value, min(low, value), max(high, value))


def _require_positive(values: Sequence[float], name: str) -> None:
    if not values:
        raise ValueError(f"a {name} of no values")
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"a {name} needs finite numbers above 0, not {value}")
