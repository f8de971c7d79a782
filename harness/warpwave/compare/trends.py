"""Turn series of points into one line per kernel: how much faster or slower than the first run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from warpwave.compare.speeds import ASSUMED
from warpwave.stats import geometric_mean, median

_BARS = "▁▂▃▄▅▆▇█"
_STEP = 0.02


@dataclass(frozen=True)
class Measured:
    """One point of one run: the median time in ms, and half its 95% interval over the median. `toolchain` is its Triton and torch."""

    run_id: str
    started: str
    commit: str
    median_ms: float
    half_width: Union[float, None]
    toolchain: str = ""


@dataclass(frozen=True)
class Series:
    """One case under one provider on one target's GPU, oldest run first. A series holds sound points only, all measured alike."""

    kernel: str
    case: str
    provider: str
    target: str
    gpu: str
    timer: str
    flush_bytes: int
    points: tuple[Measured, ...]


@dataclass(frozen=True)
class Step:
    """A kernel became `speedup` times as fast from one run to the next, and the two runs have different toolchains."""

    speedup: float
    before: Measured
    after: Measured


@dataclass(frozen=True)
class Trend:
    """A kernel under a provider on a target's GPU. `speeds` are relative to the first run: one geometric mean over `n` cases per run.

    Only cases that every run has are in the means: otherwise a case that is added or removed would look like a change. Without such a case,
    there are no speeds.
    """

    name: str
    provider: str
    target: str
    gpu: str
    n: int
    speeds: tuple[float, ...]
    runs: tuple[Measured, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of more than 2% between a run and the one before, if the toolchain changed there too."""
        found = []
        for place in range(1, len(self.speeds)):
            moved = self.speeds[place] / self.speeds[place - 1]
            before, after = self.runs[place - 1 : place + 1]
            if abs(moved - 1) > _STEP and before.toolchain != after.toolchain:
                found.append(Step(moved, before, after))
        return tuple(found)

    @property
    def line(self) -> str:
        """The speeds as bars, slowest to fastest. A range of less than 1% is drawn flat."""
        if not self.speeds:
            return f"no case is in all {len(self.runs)}"
        low, high = min(self.speeds), max(self.speeds)
        if high / low < 1.01:
            return _BARS[3] * len(self.speeds)
        return "".join(_BARS[round((speed - low) / (high - low) * (len(_BARS) - 1))] for speed in self.speeds)


def trends(found: Iterable[Series], last: int, by_case: bool = False) -> list[Trend]:
    """Return a trend per kernel, or per case with `by_case`, over the `last` runs. A single run has a trend too."""
    groups: dict[tuple[str, str, str, str, str, int], list[Series]] = {}
    for series in found:
        name = series.case if by_case else series.kernel
        key = (name, series.provider, series.target, series.gpu, series.timer, series.flush_bytes)
        groups.setdefault(key, []).append(series)
    return [_trend(key[:4], group, last) for key, group in groups.items()]


def _trend(key: tuple[str, str, str, str], group: Sequence[Series], last: int) -> Trend:
    seen = {point.run_id: point for series in group for point in series.points}
    runs = sorted(seen.values(), key=lambda point: (point.started, point.run_id))[-last:]
    times = [{point.run_id: point.median_ms for point in series.points} for series in group]
    whole = [found for found in times if all(run.run_id in found for run in runs)]
    speeds = tuple(geometric_mean([found[runs[0].run_id] / found[run.run_id] for found in whole]) for run in runs if whole)
    return Trend(*key, len(whole), speeds, tuple(runs))


# Series over runs → where a kernel's speed stepped, and between which commits. Pure.
#
# A step is a change that stays. The level before it (the last three runs since the step before) is compared with the run itself and with
# the
# median of the three runs from it on: both must have moved, or one noisy run would be two steps. A case has moved if the whole interval
# of
# its ratio, from the 95% intervals of the medians, is further from 1 than what is assumed to be noise; half of the cases must have.

_WINDOW = 3  # runs on either side


@dataclass(frozen=True)
class SeriesStep:
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
    steps: tuple[SeriesStep, ...]


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


def steps(cases: Sequence[Mapping[str, Measured]], runs: Sequence[Measured], limit: float = ASSUMED) -> tuple[SeriesStep, ...]:
    """Return the steps in runs, oldest first. `cases` are the points of each case by run. A change below `limit` (0.03 is 3%) is noise."""
    found: list[SeriesStep] = []
    start = 0
    for position in range(1, len(runs)):
        level = runs[max(start, position - _WINDOW) : position]
        alone = _change(cases, level, runs[position : position + 1], limit)
        window = _change(cases, level, runs[position : position + _WINDOW], limit)
        if alone and window and _beyond(alone[0], limit) and _beyond(window[0], limit) and (alone[0] > 1) == (window[0] > 1):
            speedup, n, moved = window
            if 2 * moved >= n:
                found.append(SeriesStep(position, runs[position - 1], runs[position], speedup, n, moved, position + 1 < len(runs)))
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
