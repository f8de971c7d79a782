"""Overview and shortfalls → what the first screen draws. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compare.answer.overview import KernelLine, Reached, Square, distance
from harness.compare.answer.shortfalls import Shortfall
from harness.compare.model import FAILING, Comparison, TargetSummary
from harness.records import Verdict
from harness.render.measure_again import bench_patterns, look_closer
from harness.render.text import counts, gravest, number, plural

_SHOWN = 5  # gaps that are open
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
    """A line of the table; `ident` is the anchor of the kernel's section."""

    ident: str
    line: KernelLine
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Gap:
    """A shortfall with the anchor of its kernel, the words for its distance, and the command that looks closer."""

    ident: str
    anchor: str
    found: Shortfall
    css: str
    command: str


def rows(lines: Sequence[KernelLine], idents: Mapping[str, str]) -> tuple[OverviewRow, ...]:
    """Return the table, in the order of the lines."""
    return tuple(OverviewRow(idents[line.kernel], line, tuple(map(_cell, line.squares))) for line in lines)


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
    of = f"of {one.ground}"
    return Bar(
        one.share,
        css,
        of if one.share is not None else "",
        f"{number(one.best)} {one.unit}".strip() if one.best is not None else "no sound speed",
        one.verified,
    )
