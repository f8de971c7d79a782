"""Compare two samples of one point: how much faster the second is, with its interval and the verdict. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from harness.compare.model import Change
from harness.records import Sample
from harness.stats import Interval, measurable, ratio_of_medians


@dataclass(frozen=True)
class Speedup:
    """The first median time over the second, with the verdict. `interval` is None if there are too few timings."""

    change: Change
    interval: Union[Interval, None]
    reason: str = ""


def speedup(base: Sample, head: Sample, threshold: float) -> Speedup:
    """Compare by the timings, so that the unit does not matter.

    Faster or slower: the whole 95% interval lies beyond the threshold. Same: the whole interval lies within it. An interval that contains
    the threshold is ambiguous, and so is a sample that was measured while something disturbed the GPU.
    """
    interval = interval_of(base, head)
    if interval is None:
        return Speedup(Change.AMBIGUOUS, None, "there are too few timings for an interval")
    weak = [sample.weak for sample in (base, head) if sample.weak]
    if weak:
        return Speedup(Change.AMBIGUOUS, interval, f"weak: {'; '.join(dict.fromkeys(weak))}")
    return Speedup(decide(interval, threshold), interval)


def interval_of(base: Sample, head: Sample) -> Union[Interval, None]:
    """Return the ratio of the median times with its 95% interval; None if there are too few timings."""
    times = (*base.times_ms, *head.times_ms)
    if not times or not all(map(measurable, times)):
        return None
    return ratio_of_medians(base.times_ms, head.times_ms, (base.rounds, head.rounds))


def decide(interval: Interval, threshold: float) -> Change:
    """Return the verdict on a ratio of times. A threshold of 0.03 is a factor of 1.03 in either direction."""
    beyond = 1 + threshold
    if interval.low > beyond:
        return Change.FASTER
    if interval.high < 1 / beyond:
        return Change.SLOWER
    return Change.SAME if 1 / beyond <= interval.low and interval.high <= beyond else Change.AMBIGUOUS
