"""Series of points → one line a kernel: how much faster or slower than the first run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Union

from harness.stats import geometric_mean

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Measured:
    """One point of one run: the median time in ms and the half-width of its 95 % interval, over the median."""

    run_id: str
    started: str
    commit: str
    median_ms: float
    half_width: Union[float, None]


@dataclass(frozen=True)
class Series:
    """One case under one provider on one target's GPU, over the runs, oldest first. Only what was sound and measured alike is in one."""

    kernel: str
    case: str
    provider: str
    target: str
    gpu: str
    timer: str
    flush_bytes: int
    points: tuple[Measured, ...]


@dataclass(frozen=True)
class Trend:
    """A kernel under a provider on a target's GPU. `speeds` are relative to the first run, one a run: geometric means over `n` cases.

    Only cases that every one of the runs has are in them, or a case that comes or goes would look like a change; where there is none, there
    are no speeds.
    """

    name: str
    provider: str
    target: str
    gpu: str
    n: int
    speeds: tuple[float, ...]
    runs: tuple[Measured, ...]

    @property
    def line(self) -> str:
        """The speeds as bars, from the slowest to the fastest; less than a percent between them is drawn flat."""
        if not self.speeds:
            return f"no case is in all {len(self.runs)}"
        low, high = min(self.speeds), max(self.speeds)
        if high / low < 1.01:
            return _BARS[3] * len(self.speeds)
        return "".join(_BARS[round((speed - low) / (high - low) * (len(_BARS) - 1))] for speed in self.speeds)


def trends(found: Iterable[Series], last: int, by_case: bool = False) -> list[Trend]:
    """Over the `last` runs, a trend a kernel or, `by_case`, a case; one run alone is a trend of one."""
    groups: dict[tuple[str, str, str, str, str, int], list[Series]] = {}
    for one in found:
        groups.setdefault((one.case if by_case else one.kernel, one.provider, one.target, one.gpu, one.timer, one.flush_bytes), []).append(
            one
        )
    return [_trend(key[:4], group, last) for key, group in groups.items()]


def _trend(key: tuple[str, str, str, str], group: Sequence[Series], last: int) -> Trend:
    seen = {point.run_id: point for one in group for point in one.points}
    runs = sorted(seen.values(), key=lambda point: (point.started, point.run_id))[-last:]
    times = [{point.run_id: point.median_ms for point in one.points} for one in group]
    whole = [found for found in times if all(run.run_id in found for run in runs)]
    speeds = tuple(geometric_mean([found[runs[0].run_id] / found[run.run_id] for found in whole]) for run in runs if whole)
    return Trend(*key, len(whole), speeds, tuple(runs))
