"""Comparison → kernel by target: test results, share of the hardware's speed, and portability. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.compare.comparison import Comparison, Geomean, KernelTests, Row, Speed
from harness.compare.speeds.rows import lower_is_better
from harness.records import Verdict
from harness.render.text import counts, gravest
from harness.stats import median


@dataclass(frozen=True)
class Reached:
    """A unit of a kernel's own provider on a target. `of_best`: median over cases of its speed over that of the fastest provider there."""

    unit: str
    provider: str
    n: int
    best: float | None
    median_share: float | None
    best_share: float | None
    of_best: float | None
    verified: bool


@dataclass(frozen=True)
class Square:
    """A kernel on a target. `verdict` is None without tests."""

    target: str
    verdict: Verdict | None
    tests: str
    reached: tuple[Reached, ...]


@dataclass(frozen=True)
class Line:
    """A kernel. `portability` is the median over the cases of its own provider; the ratios are geometric means."""

    kernel: str
    squares: tuple[Square, ...]
    portability: float | None
    ratios: tuple[Geomean, ...]


def matrix(comparison: Comparison) -> tuple[Line, ...]:
    """Return every kernel that was tested or measured anywhere."""
    own: dict[str, str] = {}
    for row in comparison.rows:
        own.setdefault(row.kernel, row.provider)
    kernels = dict.fromkeys([entry.kernel for entry in comparison.kernels] + list(own))
    found = _Found(comparison)
    return tuple(_line(comparison, kernel, own.get(kernel, ""), found) for kernel in kernels)


class _Found:
    """A comparison, indexed by kernel."""

    def __init__(self, comparison: Comparison) -> None:
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self.tests: dict[tuple[str, str], KernelTests] = {(entry.kernel, entry.target): entry for entry in comparison.kernels}
        self.speeds: dict[tuple[str, str, str], list[Speed]] = defaultdict(list)
        self.ratios: dict[tuple[str, str], list[Geomean]] = defaultdict(list)
        for row in comparison.rows:
            self.rows[row.kernel].append(row)
        for speed in comparison.speeds:
            self.speeds[speed.kernel, speed.provider, speed.target].append(speed)
        for mean in comparison.geomeans:
            self.ratios[mean.kernel, mean.provider].append(mean)


def _line(comparison: Comparison, kernel: str, own: str, found: _Found) -> Line:
    rows = found.rows.get(kernel, [])
    best = _of_best(rows, own)
    squares = []
    for target in comparison.targets:
        tested = found.tests.get((kernel, target.target))
        counted = tested.counts if tested else {}
        text = counts(counted, tested.not_run) if tested and counted else ""
        reached = tuple(_reached(entry, best) for entry in found.speeds.get((kernel, own, target.target), ()))
        squares.append(Square(target.target, gravest(counted) if counted else None, text, reached))
    ported = [row.portability for row in rows if row.provider == own and row.portability is not None]
    return Line(kernel, tuple(squares), median(ported) if ported else None, tuple(found.ratios.get((kernel, own), ())))


def _reached(speed: Speed, best: Mapping[tuple[str, str, str], float]) -> Reached:
    return Reached(
        speed.unit,
        speed.provider,
        speed.n,
        speed.best,
        speed.median_share,
        speed.best_share,
        best.get((speed.unit, speed.target, speed.gpu)),
        speed.verified,
    )


def _of_best(rows: Iterable[Row], own: str) -> dict[tuple[str, str, str], float]:
    """Return the share of the best speed by unit, target and GPU, if other providers were measured. The best possible share is 1."""
    cases: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for row in rows:
        for cell in row.cells:
            if cell.value and not cell.suspect:
                cases.setdefault((row.unit, cell.target, cell.gpu), {}).setdefault(row.case, {})[row.provider] = cell.value
    best = {}
    for key, found in cases.items():
        held = [(values[own], values.values()) for values in found.values() if own in values and len(values) > 1]
        shares = [min(values) / mine if lower_is_better(key[0]) else mine / max(values) for mine, values in held]
        if shares:
            best[key] = median(shares)
    return best
