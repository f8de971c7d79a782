"""The data of the page's script: the numbers behind the drawings, and tables that are too long to show open. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.compare.codegen.alignment import by_generation
from harness.compare.model import CodegenCell, Comparison
from harness.records import CompiledKernel, Verdict
from harness.render.charts.sweeps import CurvePoint
from harness.render.html.parts.speeds import Figure
from harness.render.text import first_line, number, visible

_CELLS = 300_000  # tests times targets; a test's id counts as four cells
_STATES = ("", "unverified", "suspect")


def embedded(comparison: Comparison, figures: Iterable[Figure]) -> dict[str, Any]:
    """Return what the script shows on demand."""
    return {"figures": [_figure(figure) for figure in figures], "tests": _tests(comparison), "code": _code(comparison)}


def _figure(figure: Figure) -> dict[str, Any]:
    sweep, drawing = figure.sweep, figure.drawing
    return {
        "id": figure.ident,
        "title": visible(f"{sweep.kernel} {sweep.title}" if sweep.title != sweep.kernel else sweep.kernel),
        "kernel": visible(sweep.kernel),
        "unit": visible(sweep.unit),
        "at": [round(position, 1) for position in drawing.positions],
        "down": drawing.vertical,
        "labels": list(map(visible, sweep.labels)),
        "series": [
            {
                "provider": visible(entry.provider),
                "target": visible(entry.target),
                "points": _points(entry.points),
            }
            for entry in sweep.series
        ],
    }


def _points(points: Sequence[CurvePoint | None]) -> list[Any]:
    """Return value, low, high, share and state of each point; 0 if a figure or point is missing."""
    rows: list[Any] = []
    for point in points:
        figures = (point.value, point.low, point.high) if point else ()
        share = round(point.share, 2) if point and point.share else 0  # shown as a whole number of percent
        rows.append([*map(_short, (*figures, share)), _STATES.index(point.state)] if point else 0)
    return rows


def _short(value: float | None) -> float:
    """Round to four figures: what a reader sees, in a third of the bytes."""
    if not value:
        return 0
    shown = float(f"{value:.4g}")
    return int(shown) if shown.is_integer() and abs(shown) < 1e15 else shown


def most_tests(comparison: Comparison) -> int:
    """Return how many tests the page can carry and still open at once."""
    return _CELLS // (4 + sum(bool(target.tests) for target in comparison.targets))


def _tests(comparison: Comparison) -> dict[str, Any]:
    """Return a row per test: its id, then the number of the verdict per target; -1 if the target lacks the test."""
    targets = [target.target for target in comparison.targets if target.tests]
    words = [verdict.value for verdict in Verdict]
    rows: list[list[Any]] = []
    for row in comparison.tests[: most_tests(comparison)]:
        found = {cell.target: cell.result.verdict.severity for cell in row.cells}
        rows.append(
            [visible(row.id) + (f" ({row.occurrence})" if row.occurrence > 1 else ""), *(found.get(target, -1) for target in targets)]
        )
    return {"targets": list(map(visible, targets)), "verdicts": ["skipped" if word == "not-run" else word for word in words], "rows": rows}


def _code(comparison: Comparison) -> dict[str, Any]:
    """Return a row per configuration: kernel, function, configuration, then a cell per target and architecture."""
    cells = {(cell.compiled.architecture, cell.target) for row in comparison.codegen for cell in row.cells}
    columns = sorted(cells, key=lambda column: (by_generation(column[0]), column[1]))
    several = len({target for _, target in columns}) > 1
    rows: list[list[Any]] = []
    for row in comparison.codegen:
        found = {(cell.compiled.architecture, cell.target): _cell(cell) for cell in row.cells}
        rows.append([visible(row.kernel), visible(row.function), visible(row.config), *(found.get(column, "") for column in columns)])
    heads = [visible(f"{architecture} {target}" if several else architecture) for architecture, target in columns]
    return {"columns": heads, "rows": rows}


def _cell(cell: CodegenCell) -> str:
    """`60r 12s 4K 50%`, or the verdict and its reason."""
    made = cell.compiled
    if made.verdict is not Verdict.PASSED and not made.only_gates:
        return visible(f"{made.verdict.value}: {first_line(made.reason, 80)}")
    return " ".join(figures_of(made)) or made.verdict.value


def figures_of(made: CompiledKernel) -> list[str]:
    """Return the figures of one binary, each with its letter."""
    figures = [f"{made.registers}r"] if made.registers is not None else []
    figures += [f"{made.spills}s"] if made.spills else []
    figures += [f"{number(made.shared_bytes / 1024)}K"] if made.shared_bytes else []
    return figures + ([f"{made.occupancy:.0%}"] if made.occupancy is not None else [])
