"""The statistics of a report. Pure, and without random numbers: the same data gives the same report.

The interval of a median is a bootstrap interval in closed form. Successive timings are not independent: in a recorded run on an H200 they
oscillate with periods of 2 to 20. So blocks are resampled, whole rounds if there were rounds. The statistic of a resample is the median of
its blocks' medians, whose distribution over *all* resamples is known exactly (Efron, "Bootstrap methods", 1979).
tests/unit/compare/test_stats.py compares it with scipy's, and checks its confidence by simulation.
"""

import functools
import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

# An interval contains the true value 19 times in 20.
CONFIDENCE = 0.95
# Resampled medians are discrete. With 5, 11 or 15 values, the interval contains the true value in 94, 93 or 96% of cases; with 7 or 9, in
# fewer than 90%. With more blocks, each is shorter, and neighbouring blocks are correlated.
_BLOCKS = 11
_FEWEST_BLOCKS = 5
# Figures beyond these were not measured. Within them, quotients, products and squares stay within the range of a float.
SMALLEST, LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% confidence interval."""

    value: float
    low: float
    high: float


def measurable(value: float) -> bool:
    """Return whether a value can have been measured. It is above 0, and arithmetic on such values neither overflows nor divides by 0."""
    return SMALLEST <= value <= LARGEST


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile, interpolated linearly between neighbouring values."""
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
    """Return the middle value, or the mean of the middle two."""
    return quantile(values, 0.5)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the mean for ratios: twice as fast and half as fast cancel out."""
    _require_positive(values, "geometric mean")
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def harmonic_mean(values: Sequence[float]) -> float:
    """Return the mean that one bad value pulls down; 0 if any value is 0."""
    if values and all(math.isfinite(value) and value >= 0 for value in values) and 0 in values:
        return 0.0
    _require_positive(values, "harmonic mean")
    return len(values) / math.fsum(1 / value for value in values)


def ratio_of_medians(
    base: Sequence[float], head: Sequence[float], rounds: tuple[Sequence[int], Sequence[int]] = ((), ())
) -> Union[Interval, None]:
    """Return `base`'s median over `head`'s; for times, how much faster `head` is. None with fewer than five timings on a side. `rounds` are
    the numbers of timings per round, for each side; empty if there were no rounds."""
    _require_positive([*base, *head], "ratio of medians")
    blocks = [_block_medians(*side) for side in zip((base, head), rounds, strict=True)]
    if not all(blocks):
        return None
    sides = [list(zip(medians, median_weights(len(medians)), strict=True)) for medians in blocks]
    found = sorted((first / second, p * q) for first, p in sides[0] for second, q in sides[1])
    value = median(base) / median(head)
    return _interval(value, [ratio for ratio, _ in found], [weight for _, weight in found])


def median_interval(values: Sequence[float], rounds: Sequence[int] = ()) -> Union[Interval, None]:
    """Return the median with the interval for a repeated measurement; None with fewer than five values."""
    blocks = _block_medians(values, rounds)
    return _interval(median(values), blocks, median_weights(len(blocks))) if blocks else None


@functools.lru_cache
def median_weights(count: int) -> tuple[float, ...]:
    """Return how often each of `count` sorted values (an odd number) is the median of a resample: the exact bootstrap distribution. The
    median is at most the k-th value if more than half of the draws are. Each draw is, with probability k / count."""
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
    """Return the sorted medians of the blocks, or nothing if there are too few values. Blocks are whole rounds if there are enough."""
    edges = [0, *itertools.accumulate(rounds)]
    # The rounds are wrong if they are empty or do not add up to the timings.
    if len(rounds) < _FEWEST_BLOCKS or min(rounds) < 1 or edges[-1] != len(values):
        edges = list(range(len(values) + 1))
    pieces = len(edges) - 1
    if pieces < _FEWEST_BLOCKS:
        return []
    count = _BLOCKS if pieces >= _BLOCKS else _FEWEST_BLOCKS
    cuts = [edges[pieces * block // count] for block in range(count + 1)]
    return sorted(median(values[start:end]) for start, end in itertools.pairwise(cuts))


def _interval(value: float, ordered: Sequence[float], weights: Sequence[float]) -> Interval:
    """Return the middle of a distribution. It always includes `value`, the median of all values rather than of blocks."""
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
