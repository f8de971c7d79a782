"""Comparison → what the templates of `comparison.html` draw, from its first screen to the code of each kernel. Pure.

A dict here is the argument of one template, which is the only reader of its keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from warpwave.compare.answer import KernelLine, Reached, Shortfall, Square, causes, distance
from warpwave.compare.codegen import by_generation
from warpwave.compare.model import FAILING, CodegenCell, Comparison, Speed, is_dead
from warpwave.compare.speeds import is_bandwidth
from warpwave.records import HARMLESS, HOST_CODE, CaseResult, CompiledKernel, NotRun, Verdict, grouped, plural
from warpwave.records.selection import is_load
from warpwave.render.charts.svg import STYLES, Drawing, draw
from warpwave.render.charts.sweeps import MOST_DRAWN, Curve, CurvePoint, Sweep
from warpwave.render.commands import bench_patterns, look_closer, source_link
from warpwave.render.html.tests import Numeric
from warpwave.render.sections import codegen
from warpwave.render.sections import grid as grids
from warpwave.render.sections.model import Line
from warpwave.render.text import counts, distinct, first_line, gravest, number
from warpwave.safe_text import visible

# The first screen: the grid, or the table of kernels with their gaps.

_SHOWN = 5  # gaps that are open
_MOST_ROWS = 200  # of the grid
_KINDS = 2  # of tests that did not run, by name in a cell


def grid(comparison: Comparison, idents: Mapping[str, str]) -> dict[str, Any]:
    """Return the grid of kernel functions and cards, as it is drawn by the terminal too."""
    (section,) = grids.grid(comparison.grid, _MOST_ROWS)
    heads = list(map(_text, section.heads))
    titles = {column: title for title, columns in section.groups for column in columns}
    firsts = {columns[0] for _, columns in section.groups}
    rows = []
    for row, cells in zip(comparison.grid.rows, section.rows, strict=False):
        whys = [*("" for _ in row.right), *(cell.reason if cell else "" for cell in row.cells)]
        made = [
            {"head": f"{titles[column]} {heads[column]}", "first": column in firsts, "bits": cells[column], "why": why}
            for column, why in enumerate(whys, start=1)
        ]
        rows.append({"ident": idents.get(row.kernel, ""), "name": row.name, "cells": made})
    return {
        "title": section.title,
        "groups": [{"title": title, "heads": [heads[column] for column in columns]} for title, columns in section.groups],
        "rows": rows,
        "notes": [*map(_text, section.lines), *section.legend],
        "below": grids.checked(comparison),
    }


def _text(line: Line) -> str:
    return "".join(bit.text for bit in line)


def rows(
    lines: Sequence[KernelLine], idents: Mapping[str, str], targets: Sequence[str], found: Sequence[Shortfall]
) -> list[dict[str, Any]]:
    """Return the table, in the order of the lines, with a cell for each of the `targets` and the cause of the largest gap."""
    largest = causes(found)
    return [
        {
            "ident": idents[line.kernel],
            "line": line,
            "cells": [_cell(square) for square in line.squares if square.target in targets],
            "cause": largest[line.kernel].cause if line.kernel in largest else "",
            "css": distance(largest[line.kernel].share).value if line.kernel in largest else "",
        }
        for line in lines
    ]


def _cell(square: Square) -> dict[str, Any]:
    """`sort` orders the column: failed tests first, then the lowest share."""
    text = counts(square.counts, square.not_run, most=_KINDS) if square.counts else ""
    if square.failed:
        kinds = [verdict for verdict in FAILING if square.counts.get(verdict.value)]
        how = "failed" if len(kinds) > 1 else kinds[0].value
        text = f"{square.failed} of {sum(square.counts.values())} {how}"
    share = 2.0 if square.share is None else min(square.share, 1.5)
    made = square.compiled
    faults = [f"{made.failed} of {made.n} did not compile"] if made.failed else []
    faults += [plural(made.gated, "configuration", "breaks a gate", "break a gate")] if made.gated else []
    is_only_code = made.n and not square.counts and not square.reached
    return {
        "target": square.target,
        "verdict": gravest(square.counts) if square.counts else None,
        "tests": text,
        "bars": list(map(_bar, square.reached)),
        "sort": round(share - 10 * bool(square.failed), 4),
        "code": ", ".join(faults) or (f"{made.n} compiled" if is_only_code else ""),
        "code_fails": bool(faults),
    }


def _bar(one: Reached) -> dict[str, Any]:
    return {
        "share": one.share,
        "css": distance(one.share).value if one.share is not None else "",
        "of": f"of {one.ground}" if one.share is not None else "launch-bound" if one.is_small else "",
        "value": f"{number(one.typical)} {one.unit}".strip() if one.typical is not None else "no sound speed",
        "verified": one.verified,
    }


def gaps(
    comparison: Comparison, found: Sequence[Shortfall], idents: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the gaps that are open, and those that are folded, each with the command that looks closer."""
    targets = {target.target: target for target in comparison.targets}
    benches = bench_patterns(comparison)
    made = [
        {
            "ident": f"gap-{position}",
            "anchor": idents[one.kernel],
            "found": one,
            "css": distance(one.share).value,
            "command": look_closer(targets[one.target], benches.get(one.kernel, "")),
        }
        for position, one in enumerate(found, start=1)
    ]
    return made[:_SHOWN], made[_SHOWN:]


# Generated code: a line per kernel function, a column per architecture, and the gates.

_FEW = 60


@dataclass(frozen=True)
class Function:
    """A kernel function with the figures of all `n` configurations per column; None if it was not compiled there.

    `source` is its file and line, if known, and `link` an address of it.
    """

    kernel: str
    name: str
    n: int
    cells: tuple[dict[str, Any] | None, ...]
    source: str
    link: str

    @property
    def is_faulty(self) -> bool:
        """Whether a configuration does not compile, breaks a gate or spills."""
        return any(cell and (cell["failed"] or cell["gated"] or cell["spills"]) for cell in self.cells)


@dataclass(frozen=True)
class Generated:
    """The functions, and the sections of the code as a whole, of which `broken` ones are shown with the failures.

    `columns` are pairs of an architecture and the target whose compiler made code for it. `several`: there is more than one target.
    """

    columns: list[tuple[str, str]]
    functions: list[Function]
    broken: list[Any]
    notes: list[Any]
    several: bool


def generated(comparison: Comparison) -> Generated:
    """Return everything that was compiled, by function. The page's data holds the single configurations."""
    columns, compiled = _columns(comparison), [row for row in comparison.codegen if row.function != HOST_CODE]
    targets = {target.target: target for target in comparison.targets}
    functions = []
    for (kernel, name), entries in grouped(((row.kernel, row.function), row) for row in compiled).items():
        group = grouped((_column(cell), cell.compiled) for row in entries for cell in row.cells)
        sources = [
            (row.source, source_link(targets[target], row.source)) for (_, target), rows in group.items() for row in rows if row.source
        ]
        source = next((entry for entry in sources if entry[1]), sources[0] if sources else ("", ""))
        functions.append(Function(kernel, name, len(entries), tuple(_figures(group.get(column, [])) for column in columns), *source))
    notes = codegen.uncompiled(comparison) + codegen.fidelity_sections(comparison, _FEW) + codegen.gate_sections(comparison, _FEW)
    broken = [note for note in notes if note.title in (codegen.UNCOMPILED, codegen.BROKEN)]
    several = len({target for _, target in columns}) > 1
    return Generated(columns, functions, broken, [note for note in notes if note not in broken], several)


def _column(cell: CodegenCell) -> tuple[str, str]:
    return cell.compiled.hardware, cell.target


def _columns(comparison: Comparison) -> list[tuple[str, str]]:
    found = set(map(_column, comparison.compiled_cells))
    return sorted(found, key=lambda column: (by_generation(column[0]), column[1]))


def _figures(rows: Iterable[CompiledKernel]) -> dict[str, Any] | None:
    """Return the most registers, spills and shared memory of all configurations, and the least occupancy."""
    rows = [row for row in rows if row.verdict is not Verdict.NOT_RUN]
    if not rows:
        return None
    registers = [row.registers for row in rows if row.registers is not None]
    shared = max(row.shared_bytes or 0 for row in rows)
    shares = [row.occupancy for row in rows if row.occupancy is not None]
    memory = f"{number(shared / 1024)} KiB" if shared >= 1024 else f"{shared} B"
    return {
        "n": len(rows),
        "failed": sum(map(is_dead, rows)),
        "gated": sum(row.only_gates for row in rows),
        "registers": str(max(registers)) if registers else "",
        "spills": max(row.spills or 0 for row in rows),
        "shared": memory if shared else "",
        "occupancy": f"{min(shares):.0%}" if shares else "",
    }


# The drawings, with descriptions for readers who cannot see them.


@dataclass(frozen=True)
class Figure:
    """A sweep with its drawing. `words` describes the drawing in a sentence."""

    ident: str
    sweep: Sweep
    drawing: Drawing
    body: Markup
    words: str


def figures(sweeps: Sequence[Sweep]) -> list[Figure]:
    """Draw the sweeps; of very many, the first."""
    drawn = [(sweep, draw(sweep)) for sweep in sweeps[:MOST_DRAWN]]
    return [
        Figure(f"c{position}", sweep, drawing, Markup(drawing.body), _words(sweep))  # noqa: S704 - chart escapes all texts
        for position, (sweep, drawing) in enumerate(drawn)
    ]


def _words(sweep: Sweep) -> str:
    """`GB/s over N, 98 cases. triton on a: best 4046 at N = 32768. …`"""
    over = f" over {sweep.x_name}" if sweep.x_name else ""
    words = [f"{sweep.unit or 'value'}{over}, {plural(len(sweep.labels), 'case')}."]
    return " ".join(words + [_best(sweep, entry) for entry in sweep.series])


def _best(sweep: Sweep, entry: Curve) -> str:
    good = [(point.value, label) for point, label in zip(entry.points, sweep.labels, strict=True) if point and point.state != "suspect"]
    if not good:
        return f"{entry.provider} on {entry.target}: no number."
    value, label = (min if sweep.lower_is_better else max)(good, key=lambda found: found[0])
    return f"{entry.provider} on {entry.target}: best {number(value)} at {label}."


def _drawn(name: str, own: str, group: Sequence[Figure], speeds: Sequence[Speed]) -> dict[str, Any]:
    """Return the figures of a kernel below one legend. At first, its `own` provider and the fastest of the others are on."""
    series = [entry for figure in group for entry in figure.sweep.series]
    providers = {entry.provider: f"s{entry.style % STYLES}" for entry in series}
    order = list(providers)
    shown = (own, _fastest_peer(group, own))
    shared = {speed.unit for speed in speeds if speed.best_share is not None}
    units = dict.fromkeys(figure.sweep.unit for figure in group)
    return {
        "name": name,
        "providers": [{"name": provider, "css": css, "shown": provider in shown} for provider, css in providers.items()],
        "targets": list({entry.target: f"t{entry.target_style % 4}" for entry in series}.items()),
        "curves": [figure for figure in group if not figure.drawing.vertical],
        "lists": [figure for figure in group if figure.drawing.vertical],
        "speeds": sorted(speeds, key=lambda speed: order.index(speed.provider) if speed.provider in providers else len(order)),
        "without_ceiling": [unit or "no unit" for unit in units if not is_bandwidth(unit) and unit not in shared],
    }


def _fastest_peer(group: Iterable[Figure], own: str) -> str:
    """Return the provider that is the fastest in the most cases."""
    best: Counter[str] = Counter()
    for sweep in (figure.sweep for figure in sorted(group, key=lambda figure: figure.drawing.vertical)):
        curves = [curve for curve in sweep.series if curve.provider not in (own, "copy")]
        for position in range(len(sweep.labels)):
            points = ((curve.points[position], curve.provider) for curve in curves)
            values = [(point.value, provider) for point, provider in points if point and point.state != "suspect"]
            best.update([(min if sweep.lower_is_better else max)(values)[1]] if values else [])
    return max(best, key=lambda name: best[name], default="")


# A section for each kernel: its tests, sweeps, recorded numbers, code by architecture and configurations.

_MOST_TESTS = 60  # test functions in a section
_FEW_CASES, _MOST_CHOICES = 3, 60  # of what an autotuner chose
_FEW_FUNCTIONS = 6  # functions whose code is shown at first


def named(lines: Sequence[KernelLine], made: Generated) -> list[str]:
    """Return every kernel that has a page, those of the overview first."""
    return list(dict.fromkeys([line.kernel for line in lines] + [function.kernel for function in made.functions]))


def pages(
    comparison: Comparison,
    lines: Sequence[KernelLine],
    idents: Mapping[str, str],
    own: Mapping[str, str],
    drawn: Iterable[Figure],
    made: Generated,
    numerics: Iterable[Numeric],
) -> list[dict[str, Any]]:
    """Return one page for each kernel, sorted by name: readers look one up, and the order of the overview changes from run to run."""
    figures = grouped((figure.sweep.kernel, figure) for figure in drawn)
    speeds = grouped((speed.kernel, speed) for speed in comparison.speeds)
    code = grouped((function.kernel, function) for function in made.functions)
    numbers = grouped((numeric.kernel, numeric) for numeric in numerics)
    tests, chosen, known = _tests(comparison), _chosen(comparison), {line.kernel: line for line in lines}
    return [
        {
            "ident": idents[kernel],
            "line": known.get(kernel) or KernelLine(kernel, (), None, ()),
            "tests": tests.get(kernel, [])[:_MOST_TESTS],
            "more_tests": max(0, len(tests.get(kernel, [])) - _MOST_TESTS),
            "drawn": _drawn(kernel, own.get(kernel, ""), figures[kernel], speeds.get(kernel, [])) if kernel in figures else None,
            "functions": code.get(kernel, []),
            "open": _first_functions(code.get(kernel, [])),
            "configurations": sum(function.n for function in code.get(kernel, [])),
            "numerics": numbers.get(kernel, []),
            "chosen": chosen.get(kernel, []),
        }
        for kernel in sorted(named(lines, made))
    ]


def _first_functions(functions: Sequence[Function]) -> list[Function]:
    """Return the functions that a reader sees first: those with a fault, and the largest of the others, six in all or more."""
    order = sorted(functions, key=lambda entry: (not entry.is_faulty, -entry.n))
    shown = order[: max(_FEW_FUNCTIONS, sum(entry.is_faulty for entry in functions))]
    return [entry for entry in functions if entry in shown]


def _chosen(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """Return what autotuners chose, by kernel. Configurations that won the most cases come first."""
    tuned = (
        ((row.kernel, function, cell.target, config), row.case)
        for row in comparison.rows
        for cell in row.cells
        for function, config in cell.tuned.items()
    )
    choices = sorted(grouped(tuned).items(), key=lambda entry: (entry[0][1:3], -len(entry[1])))
    made = (
        (kernel, {"function": function, "target": target, "config": config, "cases": list(dict.fromkeys(cases)), "few": _FEW_CASES})
        for (kernel, function, target, config), cases in choices
    )
    return {kernel: entries[:_MOST_CHOICES] for kernel, entries in grouped(made).items()}


def _tests(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """Return the test functions by kernel, failed ones first: per target the counts as text and the gravest verdict, or None."""
    targets = [target.target for target in comparison.targets]
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for (kernel, test), rows in grouped(((row.kernel, row.id.partition("[")[0]), row) for row in comparison.tests).items():
        group: dict[str, Counter[str]] = {}
        not_run: dict[str, Counter[str]] = {}
        for cell in (cell for row in rows for cell in row.cells):
            group.setdefault(cell.target, Counter())[cell.result.verdict.value] += 1
            if cell.result.not_run:
                not_run.setdefault(cell.target, Counter())[cell.result.not_run.value] += 1
        file, _, name = test.partition("::")
        cells = [(counts(group[target], not_run.get(target)), gravest(group[target])) if target in group else None for target in targets]
        severity = max(cell[1].severity if cell and cell[1] not in HARMLESS else 0 for cell in cells)
        line = {"file": file, "name": "module: the file loads" if is_load(test) else name or test, "cells": cells}
        found.setdefault(kernel, []).append((severity, line))
    return {kernel: [line for _, line in sorted(made, key=lambda entry: -entry[0])] for kernel, made in found.items()}


# The data of the page's script: the numbers behind the drawings, and tables that are too long to show open.

_CELLS = 300_000  # tests times targets; a test's id counts as four cells
_STATES = ("", "unverified", "suspect")


def embedded(comparison: Comparison, figures: Iterable[Figure]) -> dict[str, Any]:
    """Return what the script shows on demand."""
    return {"figures": [_figure(figure) for figure in figures], "tests": _tests_data(comparison), "code": _code_data(comparison)}


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
            {"provider": visible(entry.provider), "target": visible(entry.target), "points": list(map(_point, entry.points))}
            for entry in sweep.series
        ],
    }


def _point(point: CurvePoint | None) -> Any:
    """Return value, low, high, share and state; 0 for a figure or point that is missing."""
    if point is None:
        return 0
    share = round(point.share, 2) if point.share else 0  # shown as a whole number of percent
    return [*map(_short, (point.value, point.low, point.high, share)), _STATES.index(point.state)]


def _short(value: float | None) -> float:
    """Round to four figures: what a reader sees, in a third of the bytes."""
    if not value:
        return 0
    shown = float(f"{value:.4g}")
    return int(shown) if shown.is_integer() and abs(shown) < 1e15 else shown


def most_tests(comparison: Comparison) -> int:
    """Return how many tests the page can carry and still open at once."""
    return _CELLS // (4 + sum(bool(target.tests) for target in comparison.targets))


def _tests_data(comparison: Comparison) -> dict[str, Any]:
    """Return a row per test: its id, then per target the number of a verdict, or of why it did not run; -1 if the target lacks the test."""
    targets = [target.target for target in comparison.targets if target.tests]
    states = [["skipped" if verdict is Verdict.NOT_RUN else verdict.value, verdict.value] for verdict in Verdict]
    states += [[why.words, Verdict.NOT_RUN.value] for why in NotRun]
    rows: list[list[Any]] = []
    for row in comparison.tests[: most_tests(comparison)]:
        found = {cell.target: _state(cell.result) for cell in row.cells}
        rows.append([visible(row.name), *(found.get(target, -1) for target in targets)])
    return {"targets": list(map(visible, targets)), "states": states, "rows": rows}


def _state(case: CaseResult) -> int:
    return len(Verdict) + list(NotRun).index(case.not_run) if case.not_run else case.verdict.severity


def _code_data(comparison: Comparison) -> dict[str, Any]:
    """Return a row per configuration: kernel, function, configuration, then a cell per target and architecture."""
    columns = _columns(comparison)
    several = len({target for _, target in columns}) > 1
    rows: list[list[Any]] = []
    for row in comparison.codegen:
        found = {_column(cell): _cell_data(cell.compiled) for cell in row.cells}
        rows.append([visible(row.kernel), visible(row.function), visible(row.config), *(found.get(column, "") for column in columns)])
    heads = [visible(f"{architecture} {target}" if several else architecture) for architecture, target in columns]
    return {"columns": heads, "rows": rows}


def _cell_data(made: CompiledKernel) -> str:
    """`60r 12s 4K 50%`, or the verdict and its reason."""
    if made.verdict is not Verdict.PASSED and not made.only_gates:
        return visible(f"{made.verdict.value}: {first_line(made.reason, 80)}")
    figures = [f"{made.registers}r"] if made.registers is not None else []
    figures += [f"{made.spills}s"] if made.spills else []
    figures += [f"{number(made.shared_bytes / 1024)}K"] if made.shared_bytes else []
    figures += [f"{made.occupancy:.0%}"] if made.occupancy is not None else []
    return " ".join(figures) or made.verdict.value


# Names from outside → anchors of the page that can be shared: `#softmax`.

# The ids that the page itself uses.
OWN = {
    *("verdict", "overview", "grid", "gaps", "targets", "failures", "kernels", "environment", "tests", "code", "refused", "unchecked"),
    *("data", "theme", "readout", "overview-tools", "profile", "roofline", "filters", "left", "steps"),
}
_NUMBERED = re.compile(r"[cf]\d+|(gap|row)(-.*)?")  # and those that it makes, or a number would make
_LONGEST = 60


def anchors(names: Iterable[str]) -> dict[str, str]:
    """Return an id for each name: letters, digits, `_`, `.` and `-` as they are, everything else as `-`; a number makes it the only one."""
    known = list(dict.fromkeys(names))
    return dict(zip(known, distinct(map(_plain, known), OWN), strict=True))


def _plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:_LONGEST] or "kernel"
    return f"kernel-{plain}" if _NUMBERED.fullmatch(plain) else plain
