"""Comparison → the sections of the answer: what the terminal shows on one screen, and Markdown unfolded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.answer.headline import headline
from harness.compare.answer.overview import overview
from harness.compare.answer.shortfalls import shortfalls
from harness.compare.codegen.vendors import one_vendor
from harness.compare.comparison import Comparison
from harness.records import Verdict
from harness.render.sections import answer, gates, generated_code
from harness.render.sections.changed_code import ONE_VENDOR, vendor_section
from harness.render.sections.model import Line, Section, name, say
from harness.render.sections.outline import did_not_pass
from harness.render.text import first_line, left_out

_GAPS, _PROBLEMS = 3, 5


@dataclass(frozen=True)
class Brief:
    """The headline, and the sections below it, each with the most lines that it may take on one screen."""

    headline: str
    sections: tuple[tuple[Section, int], ...]


def brief(whole: Comparison, comparison: Comparison, *, failures: int = 4, figures: bool = False) -> Brief:
    """Return the answer. The headline is about the `whole`, the sections about the part of it that a page shows.

    `failures` are the lines about failed tests. With `figures`, every gap is listed with all figures of its code.
    """
    lines = overview(comparison)
    found = shortfalls(comparison, lines)
    broken = [*generated_code.codegen(comparison, every=False), *gates.sections(comparison, 3)]
    parts: Sequence[tuple[list[Section], int]] = (
        (answer.kernels(comparison, lines), 22),
        (_notes(comparison), 8),
        (did_not_pass(comparison, failures), 9),
        ([section for section in broken if section.title in (generated_code.UNCOMPILED, gates.BROKEN)], 6),
        (vendor_section(ONE_VENDOR, one_vendor(cell.compiled for row in comparison.codegen for cell in row.cells), 4), 6),
        (answer.gaps(comparison, found, len(found) if figures else _GAPS, figures=figures), 20),
    )
    sections = tuple((section, most) for group, most in parts for section in group)
    return Brief(headline(whole, overview(whole) if whole is not comparison else lines), sections)


def _notes(comparison: Comparison) -> list[Section]:
    """Return what a reader must know of the targets: why one is not complete and what to do, what was left out or given up."""
    lines: list[Line] = []
    for target in comparison.targets:
        if not target.complete and target.verdict is not Verdict.PASSED:
            lines.append(say(name(target.target), f": {target.verdict.value}: ", name(first_line(target.reason, 200))))
            lines += [say("  what to do: ", name(first_line(target.hint, 300)))] if target.hint else []
        if target.left_out:
            lines.append(say(name(target.target), ": ", left_out(target.left_out, sum(target.tests.values()))))
        if target.environment and target.environment.weakened:
            lines.append(say(name(target.target), ", protections given up: ", name(", ".join(target.environment.weakened))))
    lines += [say(name(first_line(problem, 200))) for problem in comparison.problems[:_PROBLEMS]]
    return [Section("Notes on the targets", lines=tuple(lines))] if lines else []
