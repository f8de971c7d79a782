"""The parts of the page of one comparison, from its first screen to the environments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from warpwave.compare.answer import KernelLine, Reached, Shortfall, Square, causes, distance
from warpwave.compare.changed_codegen import one_vendor
from warpwave.compare.codegen import by_generation
from warpwave.compare.model import FAILING, CodegenCell, Comparison, Speed, TargetSummary
from warpwave.compare.speeds import is_bandwidth
from warpwave.records import HARMLESS, HOST_CODE, CompiledKernel, Verdict
from warpwave.records.selection import is_load
from warpwave.render.charts.svg import STYLES, Drawing, draw
from warpwave.render.charts.sweeps import MOST_DRAWN, Curve, CurvePoint, Sweep
from warpwave.render.commands import bench_patterns, look_closer, source_link
from warpwave.render.html.tests import Numeric
from warpwave.render.sections import codegen, outline
from warpwave.render.sections import grid as grids
from warpwave.render.sections.changes import ONE_VENDOR, vendor_section
from warpwave.render.sections.model import Line, Section
from warpwave.render.text import counts, distinct, first_line, gravest, number, plural
from warpwave.safe_text import visible

# Comparison → generated code: a line per kernel function, a column per architecture, and the gates. Pure.

_FEW = 60


@dataclass(frozen=True)
class Column:
    """An architecture, as reports show it, that one target's compiler generated code for."""

    architecture: str
    target: str


@dataclass(frozen=True)
class Figures:
    """All configurations of a function for one architecture: most registers, spills and shared memory, least occupancy."""

    n: int
    failed: int
    gated: int
    registers: str
    spills: int
    shared: str
    occupancy: str
    matrix: bool


@dataclass(frozen=True)
class Function:
    """A kernel function with a cell per column; None if it was not compiled. `source` is its file and line, if known, and `link` an
    address of it."""

    kernel: str
    name: str
    n: int
    cells: tuple[Figures | None, ...]
    source: str = ""
    link: str = ""


@dataclass(frozen=True)
class Generated:
    """The table and the sections below it. `broken` sections are shown with the failures. `several`: there is more than one target."""

    columns: tuple[Column, ...]
    functions: tuple[Function, ...]
    broken: tuple[Section, ...]
    notes: tuple[Section, ...]
    several: bool


def generated(comparison: Comparison) -> Generated:
    """Return everything that was compiled, by function. The page's data holds the single configurations."""
    cells = [cell for row in comparison.codegen for cell in row.cells]
    found = {(cell.compiled.hardware, cell.target) for cell in cells}
    columns = tuple(Column(*entry) for entry in sorted(found, key=lambda entry: (by_generation(entry[0]), entry[1])))
    groups: dict[tuple[str, str], dict[Column, list[CompiledKernel]]] = {}
    counted: dict[tuple[str, str], int] = {}
    for row in comparison.codegen:
        if row.function == HOST_CODE:
            continue
        counted[row.kernel, row.function] = counted.get((row.kernel, row.function), 0) + 1
        group = groups.setdefault((row.kernel, row.function), {})
        for cell in row.cells:
            group.setdefault(Column(cell.compiled.hardware, cell.target), []).append(cell.compiled)
    targets = {target.target: target for target in comparison.targets}
    functions = tuple(
        Function(
            kernel, name, counted[kernel, name], tuple(_figures(group.get(column, [])) for column in columns), *_source(group, targets)
        )
        for (kernel, name), group in groups.items()
    )
    notes = [section for section in codegen.codegen(comparison, every=False) if not section.heads]
    notes += codegen.fidelity_sections(comparison, _FEW)
    notes += codegen.gate_sections(comparison, _FEW) + vendor_section(ONE_VENDOR, one_vendor(cell.compiled for cell in cells), _FEW)
    broken = tuple(note for note in notes if note.title in (codegen.UNCOMPILED, codegen.BROKEN))
    rest = tuple(note for note in notes if note not in broken)
    return Generated(columns, functions, broken, rest, len({column.target for column in columns}) > 1)


def _source(group: Mapping[Column, Sequence[CompiledKernel]], targets: Mapping[str, TargetSummary]) -> tuple[str, str]:
    """Return where the function is in the source, and the address of that place."""
    found = [(row.source, source_link(targets[column.target], row.source)) for column, rows in group.items() for row in rows if row.source]
    return next((entry for entry in found if entry[1]), found[0] if found else ("", ""))


def _figures(rows: list[CompiledKernel]) -> Figures | None:
    rows = [row for row in rows if row.verdict is not Verdict.NOT_RUN]
    if not rows:
        return None
    registers = [row.registers for row in rows if row.registers is not None]
    shared = max((row.shared_bytes or 0 for row in rows), default=0)
    shares = [row.occupancy for row in rows if row.occupancy is not None]
    return Figures(
        n=len(rows),
        failed=sum(row.verdict in FAILING and not row.only_gates for row in rows),
        gated=sum(row.only_gates for row in rows),
        registers=str(max(registers)) if registers else "",
        spills=max(row.spills or 0 for row in rows),
        shared=_memory(shared) if shared else "",
        occupancy=f"{min(shares):.0%}" if shares else "",
        matrix=any(row.matrix for row in rows),
    )


def _memory(count: int) -> str:
    return f"{number(count / 1024)} KiB" if count >= 1024 else f"{count} B"


# Comparison → the drawings of the page, a figure per sweep, with descriptions for readers who cannot see them. Pure.


@dataclass(frozen=True)
class Figure:
    """A sweep with its drawing. `words` describes the drawing in a sentence."""

    ident: str
    sweep: Sweep
    drawing: Drawing
    body: Markup
    words: str


@dataclass(frozen=True)
class Key:
    """A switch of the legend: a provider with its colour, or a target with its line and mark. `shown`: it is on at first."""

    name: str
    css: str
    shown: bool = True


@dataclass(frozen=True)
class Kernel:
    """The figures of one kernel, below one legend. `without_ceiling` names the units that have no measured ceiling."""

    name: str
    providers: tuple[Key, ...]
    targets: tuple[Key, ...]
    curves: tuple[Figure, ...]
    lists: tuple[Figure, ...]
    speeds: tuple[Speed, ...]
    without_ceiling: tuple[str, ...]


def figures(sweeps: Sequence[Sweep]) -> tuple[Figure, ...]:
    """Draw the sweeps; of very many, the first."""
    drawn = [(sweep, draw(sweep)) for sweep in sweeps[:MOST_DRAWN]]
    return tuple(
        Figure(f"c{position}", sweep, drawing, Markup(drawing.body), _words(sweep))  # noqa: S704 - chart escapes all texts
        for position, (sweep, drawing) in enumerate(drawn)
    )


def by_kernel(comparison: Comparison, drawn: Iterable[Figure]) -> tuple[Kernel, ...]:
    """Return the figures by kernel, each kernel with its table of speeds."""
    groups: dict[str, list[Figure]] = {}
    for figure in drawn:
        groups.setdefault(figure.sweep.kernel, []).append(figure)
    speeds: dict[str, list[Speed]] = {}
    for speed in comparison.speeds:
        speeds.setdefault(speed.kernel, []).append(speed)
    return tuple(_kernel(speeds.get(name, []), name, group) for name, group in groups.items())


def _kernel(speeds: list[Speed], name: str, group: list[Figure]) -> Kernel:
    series = [entry for figure in group for entry in figure.sweep.series]
    providers = {entry.provider: f"s{entry.style % STYLES}" for entry in series}
    targets = {entry.target: f"t{entry.target_style % 4}" for entry in series}
    order = {provider: position for position, provider in enumerate(providers)}
    shared = {speed.unit for speed in speeds if speed.best_share is not None}
    units = dict.fromkeys(figure.sweep.unit for figure in group)
    return Kernel(
        name,
        tuple(Key(*entry) for entry in providers.items()),
        tuple(Key(*entry) for entry in targets.items()),
        tuple(figure for figure in group if not figure.drawing.vertical),
        tuple(figure for figure in group if figure.drawing.vertical),
        tuple(sorted(speeds, key=lambda speed: order.get(speed.provider, len(order)))),
        tuple(unit or "no unit" for unit in units if not is_bandwidth(unit) and unit not in shared),
    )


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


# Turn a comparison into a section for each kernel: its tests, sweeps, recorded numbers, code by architecture and configurations. Pure.

_MOST_TESTS = 60  # test functions in a section
_FEW_CASES, _MOST_CHOICES = 3, 60  # of what an autotuner chose
_FEW_FUNCTIONS = 6  # functions whose code is shown at first


@dataclass(frozen=True)
class TestLine:
    """A test function with all of its parameters: per target its counts as text and the gravest verdict, or None."""

    file: str
    name: str
    cells: tuple[tuple[str, Verdict] | None, ...]


@dataclass(frozen=True)
class Choice:
    """A configuration that an autotuner chose: on which target, for which cases (the first of them, and how many)."""

    function: str
    target: str
    config: str
    cases: tuple[str, ...]
    n: int


@dataclass(frozen=True)
class Page:
    """All that is known of one kernel. `drawn` holds its figures, None without speeds. `configurations` counts its rows of code."""

    ident: str
    line: KernelLine
    tests: tuple[TestLine, ...]
    more_tests: int
    drawn: Kernel | None
    functions: tuple[Function, ...]
    configurations: int
    numerics: tuple[Numeric, ...]
    chosen: tuple[Choice, ...] = ()

    @property
    def open(self) -> tuple[Function, ...]:
        """The functions that a reader sees first: those with a fault, and the largest of the others, six in all or more."""
        faulty = [entry for entry in self.functions if any(cell and (cell.failed or cell.gated or cell.spills) for cell in entry.cells)]
        rest = sorted((entry for entry in self.functions if entry not in faulty), key=lambda entry: -entry.n)
        shown = faulty + rest[: max(0, _FEW_FUNCTIONS - len(faulty))]
        return tuple(entry for entry in self.functions if entry in shown)


def pages(
    comparison: Comparison,
    lines: Sequence[KernelLine],
    idents: Mapping[str, str],
    drawn: Sequence[Kernel],
    functions: Sequence[Function],
    numerics: Sequence[Numeric],
) -> tuple[Page, ...]:
    """Return one page for each kernel, sorted by name: readers look one up, and the order of the overview changes from run to run."""
    tests = _tests(comparison)
    figures = {kernel.name: kernel for kernel in drawn}
    code: dict[str, list[Function]] = {}
    for function in functions:
        code.setdefault(function.kernel, []).append(function)
    numbers: dict[str, list[Numeric]] = {}
    for numeric in numerics:
        numbers.setdefault(numeric.kernel, []).append(numeric)
    chosen = _chosen(comparison)
    found = []
    for kernel, line in _every(lines, code):
        mine = tests.get(kernel, [])
        own = code.get(kernel, [])
        found.append(
            Page(
                idents[kernel],
                line,
                tuple(mine[:_MOST_TESTS]),
                max(0, len(mine) - _MOST_TESTS),
                figures.get(kernel),
                tuple(own),
                sum(function.n for function in own),
                tuple(numbers.get(kernel, ())),
                chosen.get(kernel, ()),
            )
        )
    return tuple(sorted(found, key=lambda page: page.line.kernel))


def _chosen(comparison: Comparison) -> dict[str, tuple[Choice, ...]]:
    """Return what autotuners chose, by kernel. Configurations that won the most cases come first."""
    groups: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for row in comparison.rows:
        for cell in row.cells:
            for function, config in cell.tuned.items():
                groups.setdefault(row.kernel, {}).setdefault((function, cell.target, config), []).append(row.case)
    return {
        kernel: tuple(
            Choice(*key, tuple(dict.fromkeys(cases))[:_FEW_CASES], len(set(cases)))
            for key, cases in sorted(found.items(), key=lambda entry: (entry[0][:2], -len(entry[1])))
        )[:_MOST_CHOICES]
        for kernel, found in groups.items()
    }


def named(lines: Sequence[KernelLine], functions: Sequence[Function]) -> list[str]:
    """Return every kernel that has a page, those of the overview first."""
    return list(dict.fromkeys([line.kernel for line in lines] + [function.kernel for function in functions]))


def _every(lines: Sequence[KernelLine], code: Mapping[str, object]) -> list[tuple[str, KernelLine]]:
    known = {line.kernel: line for line in lines}
    return [(kernel, known.get(kernel) or KernelLine(kernel, (), None, ())) for kernel in dict.fromkeys([*known, *code])]


def _tests(comparison: Comparison) -> dict[str, list[TestLine]]:
    """Return the test functions by kernel, failed ones first."""
    targets = [target.target for target in comparison.targets]
    groups: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    for row in comparison.tests:
        group = groups.setdefault((row.kernel, row.id.partition("[")[0]), {})
        for cell in row.cells:
            counted = group.setdefault(cell.target, {})
            counted[cell.result.verdict.value] = counted.get(cell.result.verdict.value, 0) + 1
    found: dict[str, list[TestLine]] = {}
    for (kernel, test), group in groups.items():
        file, _, name = test.partition("::")
        cells = tuple((counts(group[target]), gravest(group[target])) if target in group else None for target in targets)
        found.setdefault(kernel, []).append(TestLine(file, "module: the file loads" if is_load(test) else name or test, cells))
    return {kernel: sorted(made, key=lambda test: -max(_severity(test))) for kernel, made in found.items()}


def _severity(test: TestLine) -> list[int]:
    return [cell[1].severity if cell and cell[1] not in HARMLESS else 0 for cell in test.cells]


def with_shown(kernel: Kernel, own: str) -> Kernel:
    """Mark the providers that are drawn at first: the kernel's own, and the fastest of the others."""
    best: dict[str, int] = {}
    for figure in (*kernel.curves, *kernel.lists):
        sweep = figure.sweep
        for position in range(len(sweep.labels)):
            values = [
                (point.value, curve.provider)
                for curve in sweep.series
                if curve.provider not in (own, "copy") and (point := curve.points[position]) and point.state != "suspect"
            ]
            if values:
                provider = (min if sweep.lower_is_better else max)(values)[1]
                best[provider] = best.get(provider, 0) + 1
    peer = max(best, key=lambda name: best[name], default="")
    return replace(kernel, providers=tuple(replace(key, shown=key.name in (own, peer)) for key in kernel.providers))


# Overview and shortfalls → what the first screen draws. Pure.

_SHOWN = 5  # gaps that are open
_MOST_ROWS = 200  # of the grid
_KINDS = 2  # of tests that did not run, by name in a cell


@dataclass(frozen=True)
class Bar:
    """A share of a ceiling: its percent, how far it is, and what it is a share of. Without a share, only the value."""

    share: float | None
    css: str
    of: str
    value: str
    verified: bool


@dataclass(frozen=True)
class Cell:
    """A kernel on a target. `sort` orders the column: failed tests first, then the lowest share. `code` says what does not compile or
    breaks a gate, or that it compiles if nothing else is known."""

    target: str
    verdict: Verdict | None
    tests: str
    bars: tuple[Bar, ...]
    sort: float
    code: str = ""
    code_fails: bool = False


@dataclass(frozen=True)
class OverviewRow:
    """A line of the table; `ident` is the anchor of the kernel's section. `cause` explains its largest gap, `css` says how large it is."""

    ident: str
    line: KernelLine
    cells: tuple[Cell, ...]
    cause: str = ""
    css: str = ""


@dataclass(frozen=True)
class Gap:
    """A shortfall with the anchor of its kernel, the words for its distance, and the command that looks closer."""

    ident: str
    anchor: str
    found: Shortfall
    css: str
    command: str


def rows(
    lines: Sequence[KernelLine], idents: Mapping[str, str], targets: Sequence[str], found: Sequence[Shortfall]
) -> tuple[OverviewRow, ...]:
    """Return the table, in the order of the lines, with a cell for each of the `targets`."""
    largest, made = causes(found), []
    for line in lines:
        cells = tuple(_cell(square) for square in line.squares if square.target in targets)
        gap = largest.get(line.kernel)
        made.append(OverviewRow(idents[line.kernel], line, cells, gap.cause if gap else "", distance(gap.share).value if gap else ""))
    return tuple(made)


@dataclass(frozen=True)
class Pills:
    """The targets above the table, each with its card, its tests and its verdict; and a line for each that had no card."""

    rows: tuple[tuple[Line, ...], ...]
    lines: tuple[Line, ...]


def pills(comparison: Comparison) -> Pills | None:
    """Return them if two targets or more ran on a card."""
    if not comparison.beside:
        return None
    (section,) = outline.pills(comparison)
    return Pills(section.rows, section.lines)


@dataclass(frozen=True)
class GridCell:
    """A cell of the grid below its `head`; `why` is the whole reason. `first`: a group of columns begins here."""

    head: str
    first: bool
    bits: Line
    why: str


@dataclass(frozen=True)
class GridRow:
    """A kernel function; `ident` is the anchor of its kernel's section."""

    ident: str
    name: str
    cells: tuple[GridCell, ...]


@dataclass(frozen=True)
class GridGroup:
    """Columns with a common title."""

    title: str
    heads: tuple[str, ...]


@dataclass(frozen=True)
class GridView:
    """The grid, and the sections below it."""

    title: str
    groups: tuple[GridGroup, ...]
    rows: tuple[GridRow, ...]
    notes: tuple[str, ...]
    below: tuple[Section, ...]


def grid(comparison: Comparison, idents: Mapping[str, str]) -> GridView:
    """Return the grid of kernel functions and cards, as it is drawn by the terminal too."""
    found = comparison.grid
    (section,) = grids.grid(found, _MOST_ROWS)
    heads = ["".join(bit.text for bit in head) for head in section.heads]
    titles = {column: title for title, columns in section.groups for column in columns}
    firsts = {columns[0] for _, columns in section.groups}
    rows = []
    for row, cells in zip(found.rows, section.rows, strict=False):
        whys = [*("" for _ in row.right), *(cell.reason if cell else "" for cell in row.cells)]
        made = (
            GridCell(f"{titles[column]} {heads[column]}", column in firsts, cells[column], why) for column, why in enumerate(whys, start=1)
        )
        rows.append(GridRow(idents.get(row.kernel, ""), row.name, tuple(made)))
    groups = tuple(GridGroup(title, tuple(heads[column] for column in columns)) for title, columns in section.groups)
    notes = (*("".join(bit.text for bit in text) for text in section.lines), *section.legend)
    return GridView(section.title, groups, tuple(rows), notes, tuple(grids.checked(comparison)))


def gaps(comparison: Comparison, found: Sequence[Shortfall], idents: Mapping[str, str]) -> tuple[tuple[Gap, ...], tuple[Gap, ...]]:
    """Return the gaps that are open, and those that are folded."""
    targets: dict[str, TargetSummary] = {target.target: target for target in comparison.targets}
    benches = bench_patterns(comparison)
    made = tuple(
        Gap(
            f"gap-{position}",
            idents[one.kernel],
            one,
            distance(one.share).value,
            look_closer(targets[one.target], benches.get(one.kernel, "")),
        )
        for position, one in enumerate(found, start=1)
    )
    return made[:_SHOWN], made[_SHOWN:]


def _cell(square: Square) -> Cell:
    text = counts(square.counts, square.not_run, most=_KINDS) if square.counts else ""
    if square.failed:
        kinds = [verdict for verdict in FAILING if square.counts.get(verdict.value)]
        how = "failed" if len(kinds) > 1 else kinds[0].value
        text = f"{square.failed} of {sum(square.counts.values())} {how}"
    share = 2.0 if square.share is None else min(square.share, 1.5)
    verdict = gravest(square.counts) if square.counts else None
    return Cell(square.target, verdict, text, tuple(map(_bar, square.reached)), round(share - 10 * bool(square.failed), 4), *_code(square))


def _code(square: Square) -> tuple[str, bool]:
    made = square.compiled
    said = [f"{made.failed} of {made.n} did not compile"] if made.failed else []
    said += [f"{plural(made.gated, 'configuration')} {'breaks' if made.gated == 1 else 'break'} a gate"] if made.gated else []
    known = bool(square.counts or square.reached)
    return ", ".join(said) or (f"{made.n} compiled" if made.n and not known else ""), bool(said)


def _bar(one: Reached) -> Bar:
    css = distance(one.share).value if one.share is not None else ""
    return Bar(
        one.share,
        css,
        f"of {one.ground}" if one.share is not None else "launch-bound" if one.is_small else "",
        f"{number(one.typical)} {one.unit}".strip() if one.typical is not None else "no sound speed",
        one.verified,
    )


# The data of the page's script: the numbers behind the drawings, and tables that are too long to show open. Pure.

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


def _tests_data(comparison: Comparison) -> dict[str, Any]:
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


def _code_data(comparison: Comparison) -> dict[str, Any]:
    """Return a row per configuration: kernel, function, configuration, then a cell per target and architecture."""
    cells = {(cell.compiled.hardware, cell.target) for row in comparison.codegen for cell in row.cells}
    columns = sorted(cells, key=lambda column: (by_generation(column[0]), column[1]))
    several = len({target for _, target in columns}) > 1
    rows: list[list[Any]] = []
    for row in comparison.codegen:
        found = {(cell.compiled.hardware, cell.target): _cell_data(cell) for cell in row.cells}
        rows.append([visible(row.kernel), visible(row.function), visible(row.config), *(found.get(column, "") for column in columns)])
    heads = [visible(f"{architecture} {target}" if several else architecture) for architecture, target in columns]
    return {"columns": heads, "rows": rows}


def _cell_data(cell: CodegenCell) -> str:
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


# Names from outside → anchors of the page that can be shared: `#softmax`. Pure.

# The ids that the page itself uses.
OWN = frozenset(
    {
        *("verdict", "overview", "grid", "gaps", "targets", "failures", "kernels", "environment", "tests", "code", "refused"),
        *("data", "theme", "readout", "overview-tools", "profile", "roofline", "filters", "left", "steps"),
    }
)
_NUMBERED = re.compile(r"[cf]\d+|(gap|row)(-.*)?")  # and those that it makes, or a number would make
_LONGEST = 60


def anchors(names: Iterable[str]) -> dict[str, str]:
    """Return an id for each name: letters, digits, `_`, `.` and `-` as they are, everything else as `-`; a number makes it the only one."""
    known = list(dict.fromkeys(names))
    return dict(zip(known, distinct(map(_plain, known), OWN), strict=True))


def _plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:_LONGEST] or "kernel"
    return f"kernel-{plain}" if _NUMBERED.fullmatch(plain) else plain
