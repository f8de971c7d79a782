"""Runs over time: a line for each kernel, and the steps in it. Pure.

A step is a change that stays. The level before it (the last three runs since the step before) is compared with the run itself and with the
median of the three runs from it on: both must have moved, or one noisy run would be two steps. A case has moved if the whole interval of
its ratio, from the 95% intervals of the medians, is further from 1 than what is assumed to be noise; half of the cases must have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from warpwave.compare.speeds import ASSUMED, cells, dtype_in
from warpwave.records import TargetRun, Verdict, grouped
from warpwave.stats import geometric_mean, median

_WINDOW = 3  # runs on either side
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Measured:
    """One point of one run: the median time in ms, half its 95% interval over the median, and the `value` in its series' unit.
    `toolchain` is its Triton and torch."""

    run_id: str
    started: str
    commit: str
    median_ms: float
    half_width: Union[float, None]
    toolchain: str = ""
    value: Union[float, None] = None


@dataclass(frozen=True)
class Series:
    """One case under one provider on one target's GPU, oldest run first. It holds sound points only, all measured alike. `own`: it is the
    kernel's own provider, the first of its benchmark."""

    kernel: str
    case: str
    provider: str
    target: str
    gpu: str
    timer: str
    flush_bytes: int
    points: tuple[Measured, ...]
    unit: str = ""
    own: bool = True


@dataclass(frozen=True)
class Step:
    """The speed changed from the run `before` to the run `after`.

    `speedup` is the geometric mean over the `n` cases of the time before over the time from it on. `moved` cases did so for sure.
    `confirmed`: a later run has the same level.
    """

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
    """The cases of one dtype of a kernel, or one case, under a provider on a target's GPU. Oldest run first.

    `speeds` are relative to the first run: one geometric mean per run over the `n` cases that every run has. Otherwise a case that is
    added or removed would look like a change. Without such a case, there are no speeds. `latest` is the median of their values in the last
    run, in `unit`; None if they have several units. `own`: as in `Series`.
    """

    name: str
    dtype: str
    provider: str
    target: str
    gpu: str
    n: int
    runs: tuple[Measured, ...]
    speeds: tuple[float, ...]
    steps: tuple[Step, ...]
    latest: Union[float, None] = None
    unit: str = ""
    own: bool = True

    @property
    def bars(self) -> str:
        """The speeds as bars, slowest to fastest. A range of less than 1% is drawn flat."""
        if not self.speeds:
            return f"no case is in all {len(self.runs)}"
        low, high = min(self.speeds), max(self.speeds)
        if high / low < 1.01:
            return _BARS[3] * len(self.speeds)
        return "".join(_BARS[round((speed - low) / (high - low) * (len(_BARS) - 1))] for speed in self.speeds)


def series(runs: Iterable[TargetRun]) -> tuple[list[Series], list[str]]:
    """Return the series of runs in any order, and a sentence for each run that gives none. A run that is given twice counts once."""
    found: dict[tuple[str, str, str, str, str, str, int], dict[str, Measured]] = {}
    units: dict[tuple[str, str, str, str, str, str, int], str] = {}
    own: dict[str, str] = {}
    left_out: list[str] = []
    seen: set[tuple[str, str]] = set()
    for run in runs:
        record, facts = run.record, run.facts
        unusable = _unusable(run)
        if unusable or (record.run_id, record.target) in seen:
            left_out += [f"{record.target} of {record.run_id or 'a run'}: {unusable}"] if unusable else []
            continue
        seen.add((record.run_id, record.target))
        toolchain = f"triton {(facts and facts.triton) or 'unknown'}, torch {(facts and facts.torch) or 'unknown'}"
        sound = 0
        for sample, cell in cells(record.target, run):
            own.setdefault(sample.kernel, sample.provider)
            if not cell.sound or cell.weak or cell.median_ms is None:
                continue
            key = (sample.kernel, sample.case, sample.provider, record.target, cell.gpu, cell.timer, cell.flush_bytes)
            point = Measured(record.run_id, record.started, record.commit, cell.median_ms, cell.half_width, toolchain, cell.value)
            units.setdefault(key, sample.unit)
            found.setdefault(key, {}).setdefault(record.run_id, point)  # of several GPUs of one name, the first
            sound += 1
        if not sound:
            left_out.append(f"{record.target} of {record.run_id}: it has no sound speed ({record.verdict.value})")
    whole = (Series(*key, _ordered(points), units[key], own[key[0]] == key[2]) for key, points in found.items())
    return list(whole), left_out


def _unusable(run: TargetRun) -> str:
    """Return why a run cannot be identified or put in order; empty if it can."""
    if run.record.verdict is Verdict.STALE:
        return "its files are of two runs"
    return "" if run.record.run_id and run.record.started else "its run.json has no run id or no start"


def _ordered(points: Mapping[str, Measured]) -> tuple[Measured, ...]:
    return tuple(sorted(points.values(), key=lambda point: (point.started, point.run_id)))


def lines(found: Iterable[Series], last: int, by_case: bool = False) -> list[Line]:
    """Return a line per kernel and dtype, or per case with `by_case`, over the `last` runs that have it."""
    named = ((one.case if by_case else one.kernel, one) for one in found)
    groups = grouped(
        ((name, dtype_in(one.case), one.provider, one.target, one.gpu, one.timer, one.flush_bytes), one) for name, one in named
    )
    return [_line(key[:5], group, last) for key, group in groups.items()]


def _line(key: tuple[str, str, str, str, str], group: Sequence[Series], last: int) -> Line:
    runs = _ordered({point.run_id: point for one in group for point in one.points})[-last:]
    cases = [{point.run_id: point for point in one.points} for one in group]
    whole = [case for case in cases if all(run.run_id in case for run in runs)]
    speeds = tuple(geometric_mean([case[runs[0].run_id].median_ms / case[run.run_id].median_ms for case in whole]) for run in runs if whole)
    values = [value for case in whole if (value := case[runs[-1].run_id].value) is not None]
    units = {one.unit for one in group}
    latest = median(values) if values and len(units) == 1 else None
    return Line(*key, len(whole), runs, speeds, steps(cases, runs), latest, "".join(units) if latest is not None else "", group[0].own)


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
                found.append(Step(runs[position - 1], runs[position], speedup, n, moved, position + 1 < len(runs)))
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
