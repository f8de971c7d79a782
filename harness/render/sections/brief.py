"""Comparison → the sections of the answer: what the terminal shows on one screen, and Markdown unfolded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.answer.headline import headline
from harness.compare.answer.overview import overview
from harness.compare.answer.shortfalls import shortfalls
from harness.compare.codegen.vendors import one_vendor
from harness.compare.model import Comparison
from harness.compare.verdict import phrase
from harness.records import NO_STAGE
from harness.render.sections import cards, kernel_table
from harness.render.sections.changes.code import ONE_VENDOR, vendor_section
from harness.render.sections.codegen import gates, generated_code
from harness.render.sections.model import REST, Line, Section, name, say
from harness.render.sections.outline import did_not_pass
from harness.render.sections.testing import findings
from harness.render.text import asked_for, first_line, left_out

_GAPS, _PROBLEMS, _TARGETS, _REMARKS = 3, 5, 8, 3


@dataclass(frozen=True)
class Brief:
    """The headline, and the sections below it, each with the most lines that it may take on one screen."""

    headline: str
    sections: tuple[tuple[Section, int], ...]


def brief(whole: Comparison, comparison: Comparison, *, failures: int = 4, figures: bool = False, rest: str = REST) -> Brief:
    """Return the answer. The headline is about the `whole`, the sections about the part of it that a page shows.

    `failures` are the lines about failed tests, and `rest` says where the others are. With `figures`, every gap is listed with all
    figures of its code.
    """
    lines = overview(comparison)
    found = shortfalls(comparison, lines)
    broken = [*generated_code.codegen(comparison, every=False), *gates.sections(comparison, 3)]
    bad = [section for section in broken if section.title in (generated_code.UNCOMPILED, gates.BROKEN, gates.NOT_JUDGED)]
    parts: Sequence[tuple[list[Section], int]] = (
        (kernel_table.kernels(comparison, lines), 20 if len(comparison.targets) <= 3 else 16),
        (_targets(comparison), 9),
        (did_not_pass(comparison, failures, rest), 9),
        (findings.sections(comparison, min(failures, 3)), 6),
        (kernel_table.gaps(comparison, found, len(found) if figures else _GAPS, figures=figures), 5 if bad else 20),
        (bad, 6),
        (vendor_section(ONE_VENDOR, one_vendor(cell.compiled for row in comparison.codegen for cell in row.cells), 4), 6),
    )
    sections = tuple((section, most) for group, most in parts for section in group)
    return Brief(headline(whole, overview(whole) if whole is not comparison else lines), sections)


def _targets(comparison: Comparison) -> list[Section]:
    """Return what each target did, or why it did not and what to do; and what was left out or given up."""
    lines: list[Line] = []
    gravest_first = sorted(comparison.targets, key=lambda target: target.complete)
    for target in gravest_first[:_TARGETS]:
        lines.append(say(name(phrase(target)), *([f" ({target.emulated}, emulated)"] if target.emulated else [])))
        lines += [say(f"  {use}")] if (use := cards.use_of_cards(target)) else []
        lines += [say(name(f"  {remark}")) for remark in cards.remarks(target)[:_REMARKS]]
        lines += [
            say(name(f"  attempt {position}: {attempt.verdict.value}: {first_line(attempt.reason, 200)}"))
            for position, attempt in enumerate(target.attempts[:_REMARKS], start=1)
        ]
        notes = target.environment.notes if target.environment else ()
        lines += [say(name(f"  {note}")) for note in notes if note.startswith(NO_STAGE)]
        lines += [say("  what to do: ", name(first_line(target.hint, 300)))] if target.hint else []
        by = tuple(option for option in target.narrowed if option != "--quick")
        ran = sum(target.tests.values())
        if by:
            lines.append(say("  ", name(asked_for(target.deselected, ran + target.left_out, by))))
        if target.left_out:
            lines.append(say("  ", left_out(target.left_out, ran)))
        if target.environment and target.environment.weakened:
            lines.append(say("  protections given up: ", name(", ".join(target.environment.weakened))))
    if len(comparison.targets) > _TARGETS:
        lines.append(say(f"… and {len(comparison.targets) - _TARGETS} more targets"))
    lines += [say(name(first_line(problem, 200))) for problem in comparison.problems[:_PROBLEMS]]
    return [Section("What each target did", lines=tuple(lines))] if lines else []
