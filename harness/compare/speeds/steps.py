"""Series over runs → where a kernel's speed stepped, and between which commits. Pure.

A step is a change that stays. The level before it (the last three runs since the step before) is compared with the run itself and with the
median of the three runs from it on: both must have moved, or one noisy run would be two steps. A case has moved if the whole interval of
its ratio, from the 95% intervals of the medians, is further from 1 than what is assumed to be noise; half of the cases must have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from harness.compare.speeds.noise import ASSUMED
from harness.compare.speeds.trend import Measured, Series
from harness.stats import geometric_mean, median

_WINDOW = 3  # runs on either side


@dataclass(frozen=True)
class Step:
    """The speed changed from the run `before` to the run `after`, number `position` of its line.

    `speedup` is the geometric mean over the `n` cases of the time before over the time from it on. `moved` cases did so for sure.
    `confirmed`: a later run has the same level.
    """

    position: int
    before: Measured
    after: Measured
    speedup: float
    n: int
    moved: int
    confirmed: bool

    @property
    def commits(self) -> str:
        """The commits that it lies between, as git writes a range; empty if either is unknown."""
        first, last = (run.commit.rstrip("+") for run in (self.before, self.after))
        return f"{first}..{last}" if first and last and first != last else ""

    @property
    def toolchains(self) -> str:
        """The change of toolchain that it came with: `triton 3.8.0, torch 2.13 → triton 3.9.0, torch 2.13`; empty if there was none."""
        old, new = self.before.toolchain, self.after.toolchain
        return f"{old} → {new}" if old and new and old != new else ""


@dataclass(frozen=True)
class Line:
    """The cases of one dtype of a kernel under a provider on a target's GPU: `speeds` relative to the first run, and the steps."""

    kernel: str
    dtype: str
    provider: str
    target: str
    gpu: str
    n: int
    runs: tuple[Measured, ...]
    speeds: tuple[Union[float, None], ...]
    steps: tuple[Step, ...]


def lines(found: Iterable[Series], dtype_of: Mapping[str, str], limit: float = ASSUMED) -> list[Line]:
    """Return a line for each group of series that were measured alike. `dtype_of` has the dtype of each case."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in found:
        key = (one.kernel, dtype_of.get(one.case, ""), one.provider, one.target, one.gpu, one.timer, str(one.flush_bytes))
        groups.setdefault(key, []).append(one)
    return [_line(key, group, limit) for key, group in groups.items()]


def _line(key: Sequence[str], group: Sequence[Series], limit: float) -> Line:
    seen = {point.run_id: point for series in group for point in series.points}
    runs = tuple(sorted(seen.values(), key=lambda point: (point.started, point.run_id)))
    cases = [{point.run_id: point for point in series.points} for series in group]
    speeds = tuple(_relative(cases, runs[0], run) for run in runs)
    kernel, dtype, provider, target, gpu = key[:5]
    return Line(kernel, dtype, provider, target, gpu, len(group), runs, speeds, steps(cases, runs, limit))


def _relative(cases: Sequence[Mapping[str, Measured]], first: Measured, run: Measured) -> Union[float, None]:
    both = [case[first.run_id].median_ms / case[run.run_id].median_ms for case in cases if first.run_id in case and run.run_id in case]
    return geometric_mean(both) if both else None


def steps(cases: Sequence[Mapping[str, Measured]], runs: Sequence[Measured], limit: float = ASSUMED) -> tuple[Step, ...]:
    """Return the steps in runs, oldest first. `cases` are the points of each case by run. A change below `limit` (0.03 is 3%) is noise."""
    found: list[Step] = []
    start = 0
    for position in range(1, len(runs)):
        level = runs[max(start, position - _WINDOW) : position]
        alone = _change(cases, level, runs[position : position + 1], limit)
        window = _change(cases, level, runs[position : position + _WINDOW], limit)
        if alone and window and _beyond(alone[0], limit) and _beyond(window[0], limit) and (alone[0] > 1) == (window[0] > 1):
            speedup, n, moved = window
            if 2 * moved >= n:
                found.append(Step(position, runs[position - 1], runs[position], speedup, n, moved, position + 1 < len(runs)))
                start = position
    return tuple(found)


def _change(
    cases: Sequence[Mapping[str, Measured]], before: Sequence[Measured], after: Sequence[Measured], limit: float
) -> Union[tuple[float, int, int], None]:
    """Return the mean speedup, the number of cases that both sides have, and how many of them moved for sure."""
    ratios, moved = [], 0
    for case in cases:
        sides = [[case[run.run_id] for run in runs if run.run_id in case] for runs in (before, after)]
        if not all(sides):
            continue
        ratio = median([point.median_ms for point in sides[0]]) / median([point.median_ms for point in sides[1]])
        width = sum(max(limit / 2 if point.half_width is None else point.half_width for point in side) for side in sides)
        ratios.append(ratio)
        moved += ratio * (1 - width) > 1 + limit or ratio * (1 + width) < 1 / (1 + limit)
    return (geometric_mean(ratios), len(ratios), moved) if ratios else None


def _beyond(ratio: float, limit: float) -> bool:
    return abs(math.log(ratio)) > math.log1p(limit)
