"""Comparison → the sections of the answer: what the terminal shows on one screen, and Markdown unfolded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.answer.headline import headline
from harness.compare.answer.overview import overview
from harness.compare.answer.shortfalls import shortfalls
from harness.compare.comparison import Comparison
from harness.records import Verdict
from harness.render.sections import answer, gates, generated_code
from harness.render.sections.model import Line, Section, name, say
from harness.render.sections.outline import did_not_pass
from harness.render.text import first_line

_GAPS = 3


@dataclass(frozen=True)
class Brief:
    """The headline, and the sections below it, each with the most lines that it may take on one screen."""

    headline: str
    sections: tuple[tuple[Section, int], ...]


def brief(whole: Comparison, comparison: Comparison, *, figures: bool = False) -> Brief:
    """Return the answer. The headline is about the `whole`, the sections about the part of it that a page shows."""
    lines = overview(comparison)
    found = shortfalls(comparison, lines)
    broken = [*generated_code.codegen(comparison, every=False), *gates.sections(comparison, 3)]
    parts: Sequence[tuple[list[Section], int]] = (
        (answer.kernels(comparison, lines), 22),
        (_incomplete(comparison), 8),
        (did_not_pass(comparison, 4), 9),
        ([section for section in broken if section.title in (generated_code.UNCOMPILED, gates.BROKEN)], 6),
        (answer.gaps(comparison, found, len(found) if figures else _GAPS, figures=figures), 20),
    )
    sections = tuple((section, most) for group, most in parts for section in group)
    return Brief(headline(whole, overview(whole) if whole is not comparison else lines), sections)


def _incomplete(comparison: Comparison) -> list[Section]:
    """Return the targets that are not complete, why, and what to do."""
    lines: list[Line] = []
    for target in comparison.targets:
        if not target.complete and target.verdict is not Verdict.PASSED:
            lines.append(say(name(target.target), f": {target.verdict.value}: ", name(first_line(target.reason, 200))))
            lines += [say("  what to do: ", name(first_line(target.hint, 300)))] if target.hint else []
    return [Section("Targets that are not complete", lines=tuple(lines))] if lines else []
