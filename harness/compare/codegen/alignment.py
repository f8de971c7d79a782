"""Decide which kernels of different architectures share a row: same configuration, or launched by the same case. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from harness.compare.model import CodegenCell, CodegenRow
from harness.records import CompiledKernel, Scalar

Column = tuple[str, str]  # target and architecture
_MOST_COLUMNS = 200  # a row takes in other configurations of its case up to this many columns


def align(cells: Iterable[CodegenCell]) -> tuple[CodegenRow, ...]:
    """Return rows with at most one cell per target and architecture.

    Backends choose different default numbers of stages. That alone does not make another configuration. If each vendor has its own tile,
    and the case launches one configuration on each, both go into one row. A configuration that was compiled twice for the same architecture
    on one target gets a row for each.
    """
    known = list(cells)
    tuned, alone = _tuned(known), _launches(known)
    rows: dict[tuple[object, ...], list[CodegenCell]] = {}
    seen: Counter[tuple[object, ...]] = Counter()
    for cell in known:
        made = cell.compiled
        key: tuple[object, ...] = (made.kernel, made.function, configuration(made, stages=_without_stages(made) in tuned))
        seen[(*key, _column(cell))] += 1
        rows.setdefault((*key, seen[(*key, _column(cell))]), []).append(cell)
    joined: list[list[CodegenCell]] = []
    by_case: dict[tuple[str, str, str], list[tuple[list[CodegenCell], set[Column]]]] = defaultdict(list)
    for row in rows.values():
        first = row[0].compiled
        cases = by_case[first.kernel, first.function, first.origin]
        single = all(alone[_launch(cell)] == 1 and cell.compiled.origin == first.origin for cell in row)
        columns = set(map(_column, row))
        fitting = ((other, there) for other, there in cases if len(there) <= _MOST_COLUMNS and there.isdisjoint(columns))
        other, there = next(fitting, (None, set())) if single else (None, set())
        if other is not None:
            other.extend(row)
            there |= columns
            continue
        joined.append(row)
        if single:
            cases.append((row, columns))
    return tuple(_row(row) for row in joined)


def configuration(kernel: CompiledKernel, *others: CompiledKernel, stages: bool = True) -> str:
    """Return a launch in one line: argument types, constants, warps, stages, options. Values that differ between kernels read `8/4`."""
    all_of_them = (kernel, *others)
    types = " ".join(dict.fromkeys(text for row in all_of_them for text in row.signature.values() if text != "constexpr"))
    constants = " ".join(f"{name}={'/'.join(values)}" for name, values in _values([row.constants for row in all_of_them]).items())
    options = [{name: value for name, value in row.options.items() if name not in row.constants} for row in all_of_them]
    asked = " ".join(f"{name}={'/'.join(values)}" for name, values in _values(options).items())
    warps = _either(row.num_warps for row in all_of_them if row.num_warps is not None)
    depth = _either(row.num_stages for row in all_of_them if row.num_stages is not None) if stages else ""
    return ", ".join(part for part in (types, constants, warps and f"{warps} warps", depth and f"{depth} stages", asked) if part)


def _values(rows: Sequence[Mapping[str, Scalar]]) -> dict[str, list[str]]:
    """Return the distinct values of each name, in row order; `-` if a row lacks the name. Linear in the size of the rows."""
    found: dict[str, dict[str, None]] = {}
    count: dict[str, int] = {}
    for position, row in enumerate(rows):
        for name, value in row.items():
            values = found.setdefault(name, {})
            if count.get(name, 0) < position:
                values.setdefault("-")  # a row before this one had none
            values.setdefault(str(value))
            count[name] = count.get(name, 0) + 1
    return {name: [*values, *(["-"] if count[name] < len(rows) and "-" not in values else [])] for name, values in found.items()}


def _either(values: Iterable[object]) -> str:
    return "/".join(dict.fromkeys(map(str, values)))


def _row(cells: Sequence[CodegenCell]) -> CodegenRow:
    # Workers finish in any order. Sort, so that a label is the same every time.
    made = sorted((cell.compiled for cell in cells), key=lambda row: by_generation(row.architecture))
    return CodegenRow(made[0].kernel, made[0].function, configuration(*made), tuple(cells))


def by_generation(architecture: str) -> tuple[str, int, str]:
    """Return a sort key for architectures: sm_90 before sm_100, gfx942 before gfx1100."""
    family, digits, rest = re.fullmatch(r"(\D*)(\d*)(.*)", architecture, re.DOTALL).groups()  # type: ignore[union-attr]  # anything matches
    return family, int(digits[:18] or 0), rest


def _column(cell: CodegenCell) -> Column:
    return cell.target, cell.compiled.architecture


def _launch(cell: CodegenCell) -> tuple[str, str, str, Column]:
    return cell.compiled.kernel, cell.compiled.function, cell.compiled.origin, _column(cell)


def _launches(cells: Iterable[CodegenCell]) -> Counter[tuple[str, str, str, Column]]:
    return Counter(map(_launch, cells))


def _without_stages(kernel: CompiledKernel) -> tuple[str, str, str]:
    return kernel.kernel, kernel.function, configuration(kernel, stages=False)


def _tuned(cells: Iterable[CodegenCell]) -> set[tuple[str, str, str]]:
    """Return the configurations that an architecture has with several numbers of stages. Their author chose the stages."""
    found: dict[tuple[tuple[str, str, str], Column], set[int | None]] = defaultdict(set)
    for cell in cells:
        found[_without_stages(cell.compiled), _column(cell)].add(cell.compiled.num_stages)
    return {key for (key, _), stages in found.items() if len(stages) > 1}
