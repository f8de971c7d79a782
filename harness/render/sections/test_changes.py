"""Tests that changed sides between two runs → sections, for the terminal and for Markdown. Pure."""

from __future__ import annotations

from harness.compare.tests.test_changes import Turn, Turned, Turns
from harness.records import Verdict
from harness.render.sections.model import Bit, Line, Section, name, say
from harness.render.text import first_line, plural

_FEW = 20
_TITLES = {
    Turn.BROKEN: "Tests that fail now",
    Turn.STILL: "Tests that failed before, too",
    Turn.SKIPPED: "Tests that are skipped now",
    Turn.GONE: "Tests that are gone",
    Turn.MENDED: "Tests that pass now",
    Turn.NEW: "New tests",
}
_OPEN = (Turn.BROKEN, Turn.SKIPPED, Turn.GONE)


def sentence(found: Turns) -> str:
    """The verdict in words: `1 test fails now, 2 are gone.`"""
    counts = [(turn.value, len(found.of(turn))) for turn in Turn]
    parts = [f"{plural(count, 'test')} {_many(verb, count)}" for verb, count in counts if count]
    return f"{', '.join(parts) or f'None of {found.compared} tests changed sides'}."


def turned_sections(found: Turns) -> list[Section]:
    """A line a test: what needs a look first, the others folded."""
    sections = []
    for turn, title in _TITLES.items():
        told = found.of(turn)
        lines = [_line(one) for one in told[:_FEW]]
        if len(lines) < len(told):
            lines.append(say(f"… and {len(told) - len(lines)} more"))
        if lines:
            sections.append(Section(title, lines=tuple(lines), folded=turn not in _OPEN))
    return sections


def _line(one: Turned) -> Line:
    mark = (Bit("failed: ", Verdict.FAILED),) if one.turn is Turn.BROKEN else ()
    because = (": ", name(first_line(one.message))) if one.message else ()
    return say(*mark, name(one.id), " on ", name(one.target), *because)


def _many(verb: str, count: int) -> str:
    if count == 1:
        return verb
    return {"fails now": "fail now", "passes now": "pass now"}.get(verb, verb.replace("is ", "are "))
