"""Comparison → kernel by target: whether it is right there, how much of the hardware it reaches, and how well it ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.compare.comparison import Cell, Comparison, Geomean, Row, Speed
from harness.compare.speed import lower_is_better
from harness.records import Verdict
from harness.render.text import counts, gravest
from harness.stats import median


@dataclass(frozen=True)
class Reached:
    """One unit of a kernel's own provider on a target. `of_best`: the median over cases of its speed over the fastest provider's there."""

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
    """A kernel on a target. Without tests `verdict` is None."""

    target: str
    verdict: Verdict | None
    tests: str
    reached: tuple[Reached, ...]


@dataclass(frozen=True)
class Line:
    """A kernel. `portability` is the median over its cases, of its own provider; the ratios are geometric means."""

    kernel: str
    squares: tuple[Square, ...]
    portability: float | None
    ratios: tuple[Geomean, ...]


def matrix(comparison: Comparison) -> tuple[Line, ...]:
    """Every kernel that was tested or measured anywhere."""
    own: dict[str, str] = {}
    for row in comparison.rows:
        own.setdefault(row.kernel, row.provider)
    kernels = dict.fromkeys([entry.kernel for entry in comparison.kernels] + list(own))
    return tuple(_line(comparison, kernel, own.get(kernel, "")) for kernel in kernels)


def _line(comparison: Comparison, kernel: str, own: str) -> Line:
    rows = [row for row in comparison.rows if row.kernel == kernel]
    tests = {entry.target: entry.counts for entry in comparison.kernels if entry.kernel == kernel}
    squares = []
    for target in comparison.targets:
        speeds = [entry for entry in comparison.speeds if (entry.kernel, entry.provider, entry.target) == (kernel, own, target.target)]
        found = tests.get(target.target)
        reached = tuple(_reached(entry, rows) for entry in speeds)
        squares.append(Square(target.target, gravest(found) if found else None, counts(found) if found else "", reached))
    ported = [row.portability for row in rows if row.provider == own and row.portability is not None]
    ratios = tuple(mean for mean in comparison.geomeans if (mean.kernel, mean.provider) == (kernel, own))
    return Line(kernel, tuple(squares), median(ported) if ported else None, ratios)


def _reached(speed: Speed, rows: Iterable[Row]) -> Reached:
    return Reached(
        speed.unit,
        speed.provider,
        speed.n,
        speed.best,
        speed.median_share,
        speed.best_share,
        _of_best(speed, rows),
        speed.verified,
    )


def _of_best(speed: Speed, rows: Iterable[Row]) -> float | None:
    """None where there is nobody to be held against. Its own time counts among the best, so that 1 is the most."""
    cases: dict[str, dict[str, Cell]] = {}
    for row in rows:
        for cell in row.cells:
            if row.unit == speed.unit and (cell.target, cell.gpu) == (speed.target, speed.gpu) and cell.value and not cell.suspect:
                cases.setdefault(row.case, {})[row.provider] = cell
    shares = []
    for found in cases.values():
        values = {provider: cell.value for provider, cell in found.items() if cell.value}
        if speed.provider in values and len(values) > 1:
            mine = values[speed.provider]
            shares.append(min(values.values()) / mine if lower_is_better(speed.unit) else mine / max(values.values()))
    return median(shares) if shares else None
