"""Comparison → generated code: a line per kernel function, a column per architecture, and the gates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compare.codegen.alignment import by_generation
from harness.compare.codegen.vendors import one_vendor
from harness.compare.model import FAILING, Comparison, TargetSummary
from harness.records import HOST_CODE, CompiledKernel, Verdict
from harness.render.sections.changes.code import ONE_VENDOR, vendor_section
from harness.render.sections.codegen import fidelity, gates, generated_code
from harness.render.sections.model import Section
from harness.render.source_links import source_link
from harness.render.text import number

_FEW = 60


@dataclass(frozen=True)
class Column:
    """An architecture that one target's compiler generated code for."""

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
    found = {(cell.compiled.architecture, cell.target) for cell in cells}
    columns = tuple(Column(*entry) for entry in sorted(found, key=lambda entry: (by_generation(entry[0]), entry[1])))
    groups: dict[tuple[str, str], dict[Column, list[CompiledKernel]]] = {}
    counted: dict[tuple[str, str], int] = {}
    for row in comparison.codegen:
        if row.function == HOST_CODE:
            continue
        counted[row.kernel, row.function] = counted.get((row.kernel, row.function), 0) + 1
        group = groups.setdefault((row.kernel, row.function), {})
        for cell in row.cells:
            group.setdefault(Column(cell.compiled.architecture, cell.target), []).append(cell.compiled)
    targets = {target.target: target for target in comparison.targets}
    functions = tuple(
        Function(
            kernel, name, counted[kernel, name], tuple(_figures(group.get(column, [])) for column in columns), *_source(group, targets)
        )
        for (kernel, name), group in groups.items()
    )
    notes = [section for section in generated_code.codegen(comparison, every=False) if not section.heads]
    notes += fidelity.sections(comparison, _FEW)
    notes += gates.sections(comparison, _FEW) + vendor_section(ONE_VENDOR, one_vendor(cell.compiled for cell in cells), _FEW)
    broken = tuple(note for note in notes if note.title in (generated_code.UNCOMPILED, gates.BROKEN))
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
