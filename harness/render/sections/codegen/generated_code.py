"""Comparison → sections: generated code side by side, and what did not compile."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from harness.compare.codegen.alignment import by_generation
from harness.compare.model import FAILING, CodegenCell, CodegenRow, Comparison
from harness.records import HOST_CODE, CompiledKernel, Verdict
from harness.render.sections.model import Bit, Line, Section, lacking, name, say, shorten
from harness.render.text import NOTHING, first_line, halves

# Architecture columns that fit beside the function's name on an 80-column page.
_CODEGEN_WIDTH = 57


_FEW_FAILURES = 10


UNCOMPILED = "Did not compile"


# Words short enough for a column of five characters.
_LIMITED_BY = {"warps": "warps", "programs": "progs", "registers": "regs", "scalars": "sregs", "shared": "smem"}


def codegen(comparison: Comparison, every: bool) -> list[Section]:
    """Return a line per kernel function and a column per architecture. With `every`, a line per configuration."""
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
        legend += ["16B, 4K: shared memory (LDS) of a block in bytes or KiB. 3/2 stages: differs between architectures."]
        legend += ["4x8w regs: a multiprocessor (SM, CU, WGP) holds 4 programs of 8 warps at a time, and this resource limits it:"]
        legend += ["registers, shared memory, slots of programs or warps, scalar registers. None named: all warp slots are in use."]
    without = () if every else lacking(comparison, {cell.target for cell in cells}, "nothing compiled")
    sections[-1] = dataclasses.replace(sections[-1], lines=without, legend=tuple(legend))
    if every:
        return sections
    sections += _not_compiled(
        UNCOMPILED, [cell for cell in cells if cell.compiled.verdict in FAILING and not cell.compiled.only_gates], _failed(comparison)
    )
    skipped = [cell for cell in cells if not cell.compiled.was_compiled]
    return [*sections, *_not_compiled("Not compiled: host code that does not run without a GPU", skipped)]


def _failed(comparison: Comparison) -> dict[tuple[str, str], str]:
    """Return what each failed test says, by target and test, without the exception's name."""
    return {
        (cell.target, row.id): first_line(cell.result.message).rpartition("Error: ")[2]
        for row in comparison.tests
        for cell in row.cells
        if cell.result.verdict in FAILING
    }


def _not_compiled(title: str, cells: list[CodegenCell], failed: Mapping[tuple[str, str], str] = MappingProxyType({})) -> list[Section]:
    """Return a line per function, target and reason. A reason shared by many architectures or points is listed once.

    `failed` has the words of failed tests. A test that launches the function and fails with the compiler's words is named.
    """
    groups: dict[tuple[str, str, str, Verdict], list[CompiledKernel]] = {}
    for cell in cells:
        made = cell.compiled
        groups.setdefault((f"{made.kernel} {made.function}", cell.target, first_line(made.reason), made.verdict), []).append(made)
    lines = []
    for (function, target, reason, verdict), found in groups.items():
        where = list(dict.fromkeys(made.architecture for made in found))
        shown = name(", ".join(where)) if len(where) <= 3 else f"{len(where)} architectures"
        origins = list(dict.fromkeys(made.origin for made in found if made.origin))
        same = [test for test in origins if (words := failed.get((target, test))) and words in reason]
        subject, more = (origins[0], len(origins) - 1) if found[0].function == HOST_CODE and origins else (function, 0)
        lines.append(
            say(
                name(subject),
                f" and {more} more" if more else "",
                " on ",
                name(target),
                " for ",
                shown,
                ": ",
                Bit(verdict.value, verdict),
                f", {found[0].not_run.words}: " if found[0].not_run else ": ",
                name(reason),
                *(("; ", name(same[0]), " fails with the same words") if same else ()),
            )
        )
    return [Section(title, lines=shorten(lines, _FEW_FAILURES))] if lines else []


def _pages(columns: list[tuple[str, str]], twice: set[str]) -> list[list[tuple[str, str]]]:
    """Split the columns into pages of about equal size that fit beside the function's name."""
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
    if kernels and all(kernel.is_discarded for kernel in kernels):
        return say(Bit("discarded", Verdict.NOT_RUN))
    kernels = [kernel for kernel in kernels if not kernel.is_discarded]
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
    """`16B`, `64K`: short enough for a column of five characters."""
    return f"{count}B" if count < 1024 else f"{count / 1024:.3g}K"


def _resident(kernels: list[CompiledKernel]) -> str:
    """` 4x8w regs`: how many programs fit into a multiprocessor, for the tightest kernel; empty if unknown."""
    known = [kernel for kernel in kernels if kernel.occupancy is not None and kernel.programs is not None]
    if not known:
        return ""
    tightest = min(known, key=lambda kernel: kernel.occupancy or 0)
    # A full multiprocessor is limited too, but there is nothing to fix.
    full = tightest.occupancy == 1
    why = [] if full else [_LIMITED_BY[resource] for resource in tightest.limited_by or () if resource in _LIMITED_BY]
    return " " + " ".join([f"{tightest.programs}x{tightest.num_warps}w", *why])
