"""Comparison → the part that fits on a page. Files hold everything; nobody reads a table of 100,000 rows or 5,000 columns. Pure.

All limits of the page are applied here, so that no renderer has to. A report then costs no more than reading and writing its files.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from warpwave.compare.model import CodegenRow, Comparison, ParityRow, Row, failures
from warpwave.records.words import plural
from warpwave.render.sections.model import Section, say

MOST_TARGETS = 100  # columns
MOST_KERNELS = 1000  # rows
MOST_SQUARES = 20_000  # kernels times targets
MOST_PROVIDERS = 50  # per kernel
MOST_POINTS = 40_000  # drawn and listed numbers
MOST_UNITS = 20  # one table each
MOST_SPEEDS = 10_000
MOST_COLUMNS = 64  # architectures of targets
MOST_COMPILED = 20_000
_FEWEST = 50

Named = TypeVar("Named")
Celled = TypeVar("Celled", ParityRow, Row, CodegenRow)


@dataclasses.dataclass(frozen=True)
class Shown:
    """The part of a comparison that a page shows, and sentences that count what is left out. Without sentences, nothing is."""

    comparison: Comparison
    left_out: tuple[str, ...]


def shown(comparison: Comparison) -> Shown:
    """Return what the page shows: the gravest targets, kernels that failed, and then the first of the others."""
    sentences: list[str] = []
    for cut in (_targets, _kernels, _points, _compiled):
        comparison, sentence = cut(comparison)
        sentences += [f"{sentence}. Everything is in comparison.json."] if sentence else []
    return Shown(comparison, tuple(sentences))


def rest(found: Shown) -> list[Section]:
    """Return a section that counts what is not shown, if there is anything."""
    return [Section("Not everything is shown", lines=tuple(map(say, found.left_out)))] if found.left_out else []


def _targets(whole: Comparison) -> tuple[Comparison, str]:
    if len(whole.targets) <= MOST_TARGETS:
        return whole, ""
    order = sorted(whole.targets, key=lambda target: -target.verdict.severity)[:MOST_TARGETS]
    kept = {target.target for target in order}
    cut = dataclasses.replace(
        whole,
        targets=tuple(target for target in whole.targets if target.target in kept),
        kernels=_of(whole.kernels, kept),
        tests=tuple(dataclasses.replace(row, on=tuple(name for name in row.on if name in kept)) for row in _with_cells(whole.tests, kept)),
        findings=_of(whole.findings, kept),
        profiles=_of(whole.profiles, kept),
        speeds=_of(whole.speeds, kept),
        geomeans=_of(whole.geomeans, kept),
        rows=tuple(dataclasses.replace(row, ratios=_of(row.ratios, kept)) for row in _with_cells(whole.rows, kept)),
        codegen=tuple(_with_cells(whole.codegen, kept)),
        fidelity=_of(whole.fidelity, kept),
        refusals=_of(whole.refusals, kept),
        side_by_side=tuple(dataclasses.replace(row, cards=_of(row.cards, kept)) for row in whole.side_by_side),
    )
    return cut, f"{MOST_TARGETS} of {len(whole.targets)} targets are shown, the gravest first"


def _of(entries: Iterable[Named], kept: Collection[str]) -> tuple[Named, ...]:
    return tuple(entry for entry in entries if getattr(entry, "target") in kept)  # noqa: B009 - each kind has a target


def _with_cells(rows: Iterable[Celled], kept: Collection[str]) -> Iterator[Celled]:
    for row in rows:
        if cells := _of(row.cells, kept):
            yield dataclasses.replace(row, cells=cells)


def _only(whole: Comparison, is_kept: Callable[[Any], bool], *fields: str) -> Comparison:
    kept: dict[str, Any] = {name: tuple(filter(is_kept, getattr(whole, name))) for name in fields}
    return dataclasses.replace(whole, **kept)


def _kernels(whole: Comparison) -> tuple[Comparison, str]:
    names = dict.fromkeys([entry.kernel for entry in whole.kernels] + [row.kernel for row in whole.rows])
    most = min(MOST_KERNELS, max(_FEWEST, MOST_SQUARES // max(1, len(whole.targets))))
    if len(names) <= most:
        return whole, ""
    failed = {entry.kernel for entry in whole.kernels if failures(entry.counts)}
    kept = set(sorted(names, key=lambda name: name not in failed)[:most])
    cut = _only(whole, lambda entry: entry.kernel in kept, "kernels", "speeds", "geomeans", "rows")
    return cut, f"{most} of {len(names)} kernels are in the tables by kernel, those with a failed test first"


def _points(whole: Comparison) -> tuple[Comparison, str]:
    """Keep the first units, providers of a kernel, and points; the lines of speeds are those of the same providers and units."""
    units = set(list(dict.fromkeys(row.unit for row in whole.rows))[:MOST_UNITS])
    found: dict[str, dict[str, None]] = {}
    for row in whole.rows:
        found.setdefault(row.kernel, {}).setdefault(row.provider)
    kept = {(kernel, provider) for kernel, providers in found.items() for provider in list(providers)[:MOST_PROVIDERS]}
    cut = _only(whole, lambda entry: (entry.kernel, entry.provider) in kept and entry.unit in units, "speeds", "geomeans", "rows")
    cut = dataclasses.replace(cut, speeds=cut.speeds[:MOST_SPEEDS])
    columns = len({speed.target for speed in cut.speeds})
    sizes = itertools.accumulate(max(len(row.cells), columns) for row in cut.rows)
    cut = dataclasses.replace(cut, rows=tuple(row for row, size in zip(cut.rows, sizes, strict=True) if size <= MOST_POINTS))
    if len(cut.rows) == len(whole.rows) and len(cut.speeds) == len(whole.speeds):
        return whole, ""
    return cut, f"{len(cut.rows)} of {plural(len(whole.rows), 'case')} are drawn and listed, of at most {MOST_PROVIDERS} providers a kernel"


def _compiled(whole: Comparison) -> tuple[Comparison, str]:
    total = sum(len(row.cells) for row in whole.codegen)
    columns = dict.fromkeys((cell.target, cell.compiled.architecture) for row in whole.codegen for cell in row.cells)
    if total <= MOST_COMPILED and len(columns) <= MOST_COLUMNS and len(columns) * len(whole.codegen) <= 10 * MOST_COMPILED:
        return whole, ""
    kept = set(list(columns)[:MOST_COLUMNS])
    cut = [[cell for cell in row.cells if (cell.target, cell.compiled.architecture) in kept] for row in whole.codegen]
    sizes = itertools.accumulate(map(len, cut))
    most = 10 * MOST_COMPILED // max(1, len(kept))  # rows
    rows = [
        dataclasses.replace(row, cells=tuple(cells))
        for row, cells, size in itertools.islice(zip(whole.codegen, cut, sizes, strict=True), most)
        if cells and size <= MOST_COMPILED
    ]
    count = sum(len(row.cells) for row in rows)
    return dataclasses.replace(whole, codegen=tuple(rows)), f"{count} of {plural(total, 'binary')} are shown"
