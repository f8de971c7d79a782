"""Turn series of points into one line per kernel: how much faster or slower than the first run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Union

from harness.stats import geometric_mean

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
