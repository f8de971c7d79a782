"""Comparison → sections, second part: speeds and generated code."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from harness.compare.codegen.alignment import by_generation
from harness.compare.comparison import FAILING, Cell, Change, CodegenCell, CodegenRow, Comparison, Geomean, Speed
from harness.compare.speeds.noise import explain
from harness.records import HOST_CODE, CompiledKernel, Verdict
from harness.render.sections.model import Bit, Line, Section, name, names, say, shorten
from harness.render.text import NOTHING, UNTESTED, UNVERIFIED_MARK, first_line, halves, marked, plural, with_share

# Columns of architectures that fit beside the function's name on an 80-column page.
_CODEGEN_WIDTH = 57
_FEW_FAILURES = 10
UNCOMPILED = "Did not compile"
# Words short enough for a column of five.
_LIMITED_BY = {"warps": "warps", "programs": "progs", "registers": "regs", "scalars": "sregs", "shared": "smem"}


def speeds(comparison: Comparison) -> list[Section]:
    """A table per unit, a line per kernel, provider and target."""
    return [_speeds(comparison, unit) for unit in dict.fromkeys(speed.unit for speed in comparison.speeds)]


def cases(comparison: Comparison) -> list[Section]:
    """A table per unit of every case: the number, its time and scatter, and the ratio."""
    return [_cases(comparison, unit) for unit in dict.fromkeys(row.unit for row in comparison.rows)]


def codegen(comparison: Comparison, every: bool) -> list[Section]:
    """A line per kernel function, a column per architecture; with `every` a line per configuration."""
    cells = [cell for row in comparison.codegen for cell in row.cells]
    if not cells:
        return []
    order = sorted(dict.fromkeys(cell.compiled.architecture for cell in cells), key=by_generation)
    columns = sorted(dict.fromkeys((cell.compiled.architecture, cell.target) for cell in cells), key=lambda column: order.index(column[0]))
    counted = Counter(architecture for architecture, _ in columns)
    twice = {architecture for architecture in order if counted[architecture] > 1}
    heads = {column: say(name(column[0])) + (say(" ", name(column[1])) if column[0] in twice else ()) for column in columns}
    sections = [_codegen(comparison, part, heads, every) for part in _pages(columns, twice)]
    legend = ["r: registers a thread, the most of all configurations. s: registers spilled to memory."]
    if every:
        legend += ["16B, 4K: shared memory (LDS) of a block in bytes or KiB. 3/2 stages: not the same on all architectures."]
        legend += ["4x8w regs: a multiprocessor (SM, CU, WGP) holds 4 programs of 8 warps at a time, and what leaves no room for more:"]
        legend += ["registers, shared memory, slots of programs or of warps, scalar registers. Nothing named: its warps are all there."]
    lacking = () if every else _lacking(comparison, {cell.target for cell in cells}, "nothing compiled")
    sections[-1] = dataclasses.replace(sections[-1], lines=lacking, legend=tuple(legend))
    if every:
        return sections
    sections += _not_compiled(UNCOMPILED, [cell for cell in cells if cell.compiled.verdict in FAILING and not cell.compiled.only_gates])
    skipped = [cell for cell in cells if cell.compiled.verdict is Verdict.NOT_RUN]
    return [*sections, *_not_compiled("Not compiled: host code that does not run without a GPU", skipped)]


def _not_compiled(title: str, cells: list[CodegenCell]) -> list[Section]:
    """A line per function, target and reason; the same reason on many architectures, or of many points of a sweep, is told once."""
    groups: dict[tuple[str, str, str, Verdict], list[CompiledKernel]] = {}
    for cell in cells:
        made = cell.compiled
        groups.setdefault((f"{made.kernel} {made.function}", cell.target, first_line(made.reason), made.verdict), []).append(made)
    lines = []
    for (function, target, reason, verdict), found in groups.items():
        where = list(dict.fromkeys(made.architecture for made in found))
        shown = name(", ".join(where)) if len(where) <= 3 else f"{len(where)} architectures"
        origins = list(dict.fromkeys(made.origin for made in found if made.origin))
        what, more = (origins[0], len(origins) - 1) if found[0].function == HOST_CODE and origins else (function, 0)
        lines.append(
            say(
                name(what),
                f" and {more} more" if more else "",
                " on ",
                name(target),
                " for ",
                shown,
                ": ",
                Bit(verdict.value, verdict),
                ": ",
                name(reason),
            )
        )
    return [Section(title, lines=shorten(lines, _FEW_FAILURES))] if lines else []


def _cases(comparison: Comparison, unit: str) -> Section:
    """A row a case and provider, a column a target: what it reached, its share of the ceiling, and the ratio."""
    targets = list(dict.fromkeys(cell.target for row in comparison.rows for cell in row.cells))
    rows: list[tuple[Line, ...]] = []
    before = ""
    for row in comparison.rows:
        if row.unit != unit:
            continue
        cells = {cell.target: cell for cell in row.cells}
        ratios = [f"{ratio.value:.2f} {ratio.change.value}" if ratio.value else ratio.change.value for ratio in row.ratios]
        lead = names(("" if row.case == before else row.case, row.provider))
        reached = [_reached(cells[target], comparison.untested) if target in cells else say(NOTHING) for target in targets]
        rows.append((*lead, *reached, *([say(", ".join(ratios))] if len(targets) > 1 else [])))
        before = row.case
    heads = (say("case"), say("provider"), *names(targets), *([say("ratio")] if len(targets) > 1 else []))
    shown = [cell for row in comparison.rows if row.unit == unit for cell in row.cells]
    share = ", share of the ceiling," if any(cell.share is not None for cell in shown) else ""
    legend = [f"Value{share} and ±: half the spread from the 20th to the 80th percentile, over the median."]
    if any(cell.suspect for cell in shown):
        legend.append("! suspect: more than 1.1 times the copy bandwidth measured on that GPU; no ratio is made of it.")
    right = tuple(range(2, len(heads)))
    return Section(f"Every case, {unit or 'no unit'}", heads, tuple(rows), legend=tuple(legend), right=right, folded=True)


def _reached(cell: Cell, untested: bool) -> Line:
    spread = ""
    if cell.value is not None and cell.median_ms and cell.p20_ms is not None and cell.p80_ms is not None:
        spread = f" ±{(cell.p80_ms - cell.p20_ms) / 2 / cell.median_ms:.1%}"
    return say(Bit(marked(cell, untested=untested) + spread + (" weak" if cell.weak else ""), cell.verdict))


def _speeds(comparison: Comparison, unit: str) -> Section:
    means = {(mean.kernel, mean.provider, mean.target): mean for mean in comparison.geomeans if mean.unit == unit}
    shown = [speed for speed in comparison.speeds if speed.unit == unit]
    order = {key: position for position, key in enumerate(dict.fromkeys((speed.kernel, speed.provider) for speed in shown))}
    shown.sort(key=lambda speed: order[speed.kernel, speed.provider])
    labels = list(dict.fromkeys(f"{mean.target}/{mean.baseline}" for mean in means.values()))
    look = {(speed.kernel, speed.provider) for speed in shown if not speed.verified or speed.left_out}
    for row in comparison.rows:
        if row.unit == unit and any(ratio.change in (Change.FASTER, Change.SLOWER) for ratio in row.ratios):
            look.add((row.kernel, row.provider))
    quiet = frozenset(position for position, speed in enumerate(shown) if (speed.kernel, speed.provider) not in look)
    single = all(speed.n + speed.left_out <= 1 for speed in shown)
    rows: list[tuple[Line, ...]] = []
    before = ("", "")
    for speed in shown:
        key = (speed.kernel, speed.provider)
        lead = names(("" if speed.kernel == before[0] else speed.kernel, "" if key == before else speed.provider))
        mean = [_mean(means.get((*key, speed.target)))] if means else []
        reached = _reaches(speed, comparison.untested)
        rows.append((*lead, say(name(speed.target)), *(reached[:1] if single else [say(str(speed.n)), *reached]), *mean))
        before = key
    heads = tuple(say(head) for head in ("kernel", "provider", "target", *(["value"] if single else ["n", "best", "median", "largest"])))
    return Section(
        f"Speed, {unit or 'no unit'}",
        heads + ((say(name(" ".join(labels))),) if means else ()),
        tuple(rows),
        _lacking(comparison, {speed.target for speed in comparison.speeds}, "no speeds") + _unreliable(comparison, unit),
        _legend(shown, bool(means), single=single, untested=comparison.untested)
        + ((explain(comparison.noise),) if comparison.noise else ()),
        right=(3, 4, 5, 6, 7),
        quiet=quiet,
        merged=2,
    )


def _lacking(comparison: Comparison, there: set[str], what: str) -> tuple[Line, ...]:
    """A line for each target that a table has nothing of, with its verdict where that explains it."""
    left = [target for target in comparison.targets if target.target not in there]
    return tuple(say(name(target.target), f": {what}{'' if target.complete else f', {target.verdict.value}'}") for target in left)


def _unreliable(comparison: Comparison, unit: str) -> tuple[Line, ...]:
    """A line for each target with points that were disturbed, or that are noisier than the bench stage asks for."""
    lines = []
    on: dict[str, list[Cell]] = {}
    for row in comparison.rows:
        for cell in row.cells if row.unit == unit else ():
            on.setdefault(cell.target, []).append(cell)
    for target in comparison.targets:
        cells = on.get(target.target, [])
        weak, noisy = [cell for cell in cells if cell.weak], sum(cell.quiet is False for cell in cells)
        if weak:
            lines.append(say(name(target.target), f": {plural(len(weak), 'weak point')}: ", name(first_line(weak[0].weak))))
        if noisy:
            many = f"{noisy} of {plural(len(cells), 'point')} noisy"
            lines.append(say(name(target.target), f": {many}: the author's time was up before the median was known as closely as asked"))
    return tuple(lines)


def _legend(shown: list[Speed], compared: bool, *, single: bool, untested: bool) -> tuple[str, ...]:
    left = sum(speed.left_out for speed in shown)
    legend = [] if single else ["n cases; best and median over them; largest: at the largest size."]
    if any(speed.best_share is not None for speed in shown):
        legend.append("%: of the copy bandwidth measured on that GPU in the same run.")
    if untested:
        legend.append(UNTESTED)
    elif any(not speed.verified for speed in shown):
        legend.append("? unverified: the kernel has no tests that all passed on that target; no ratio is made of it.")
    if compared:
        legend.append("Ratio: geometric mean over the cases that are sound on both, and how many these are.")
    return (*legend, f"{plural(left, 'point')} left out: invalid or suspect.") if left else tuple(legend)


def _reaches(speed: Speed, untested: bool) -> list[Line]:
    """Its best, its median and what it reaches at the largest size."""
    mark = "" if speed.verified or untested else UNVERIFIED_MARK
    pairs = ((speed.best, speed.best_share), (speed.median, speed.median_share), (speed.largest, speed.largest_share))
    return [say(with_share(value, share) + (mark if value is not None else "")) for value, share in pairs]


def _mean(mean: Geomean | None) -> Line:
    if mean is None:
        return ()
    return say(f"{mean.ratio:.2f} ({mean.n})") if mean.ratio is not None else say(Bit("none", Verdict.NOT_RUN))


def _pages(columns: list[tuple[str, str]], twice: set[str]) -> list[list[tuple[str, str]]]:
    """The columns in groups of about the same size that fit beside the function's name."""
    widths = [max(*map(len, halves(name)), len(target) if name in twice else 0, 5) + 1 for name, target in columns]
    pages = math.ceil(sum(widths) / _CODEGEN_WIDTH)
    size = math.ceil(len(columns) / pages)
    return [columns[start : start + size] for start in range(0, len(columns), size)]


def _codegen(comparison: Comparison, columns: list[tuple[str, str]], heads: dict[tuple[str, str], Line], every: bool) -> Section:
    groups: dict[str, dict[tuple[str, str], list[CompiledKernel]]] = {}
    for row in comparison.codegen:
        group = groups.setdefault(_label(row, every), {})
        for cell in row.cells:
            group.setdefault((cell.compiled.architecture, cell.target), []).append(cell.compiled)
    rows = tuple((say(name(label)), *(_generated(group.get(column, []), every) for column in columns)) for label, group in groups.items())
    return Section(
        "Generated code, every configuration" if every else "Generated code",
        (say("function"), *(heads[column] for column in columns)),
        rows,
        narrow=1,
        folded=True,
    )


def _label(row: CodegenRow, every: bool) -> str:
    title = row.function if row.function.lstrip("_").startswith(row.kernel) else f"{row.kernel} {row.function}"
    return f"{title}, {row.config}" if every else title


def _generated(kernels: list[CompiledKernel], every: bool) -> Line:
    if not kernels:
        return say(NOTHING)
    failed = sum(kernel.verdict in FAILING and not kernel.only_gates for kernel in kernels)
    if all(kernel.verdict is Verdict.NOT_RUN for kernel in kernels):
        return say(NOTHING)
    if failed:
        return say(Bit("failed" if failed == len(kernels) else f"{failed}/{len(kernels)} failed", Verdict.FAILED))
    registers = max((kernel.registers for kernel in kernels if kernel.registers is not None), default=None)
    spills = max(kernel.spills or 0 for kernel in kernels)
    shared = max(kernel.shared_bytes or 0 for kernel in kernels) if every else 0
    text = ("ok" if registers is None else f"{registers}r") + (f" {spills}s" if spills else "") + (f" {_memory(shared)}" if shared else "")
    verdict = Verdict.FAILED if any(kernel.only_gates for kernel in kernels) else Verdict.ABSENT if spills else None
    return say(Bit(text + (_resident(kernels) if every else ""), verdict))


def _memory(count: int) -> str:
    """`16B`, `64K`: short enough for a column of five."""
    return f"{count}B" if count < 1024 else f"{count / 1024:.3g}K"


def _resident(kernels: list[CompiledKernel]) -> str:
    """` 4x8w regs`: what of these fits into a multiprocessor, the tightest of them; nothing where none of them tells."""
    told = [kernel for kernel in kernels if kernel.occupancy is not None and kernel.programs is not None]
    if not told:
        return ""
    tightest = min(told, key=lambda kernel: kernel.occupancy or 0)
    # A multiprocessor that is full has no room for more either, but nothing to mend.
    full = tightest.occupancy == 1
    why = [] if full else [_LIMITED_BY[resource] for resource in tightest.limited_by or () if resource in _LIMITED_BY]
    return " " + " ".join([f"{tightest.programs}x{tightest.num_warps}w", *why])
