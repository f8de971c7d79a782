"""Tests that changed sides between two runs → sections, for the terminal and for Markdown. Pure."""

from __future__ import annotations

from harness.compare.tests.changed_tests import ChangedTest, ChangedTests, Fate
from harness.records import Verdict
from harness.render.sections.model import Bit, Line, Section, name, say
from harness.render.text import first_line, plural

_FEW = 20
_TITLES = {
    Fate.BROKEN: "Tests that fail now",
    Fate.STILL: "Tests that failed before, too",
    Fate.SKIPPED: "Tests that are skipped now",
    Fate.GONE: "Tests that are gone",
    Fate.FIXED: "Tests that pass now",
    Fate.NEW: "New tests",
}
_OPEN = (Fate.BROKEN, Fate.SKIPPED, Fate.GONE)


def sentence(found: ChangedTests) -> str:
    """The verdict in words: `1 test fails now, 2 are gone.`"""
    counts = [(fate.value, len(found.of(fate))) for fate in Fate]
    parts = [f"{plural(count, 'test')} {_many(verb, count)}" for verb, count in counts if count]
    return f"{', '.join(parts) or f'None of {found.compared} tests changed sides'}."


def changed_test_sections(found: ChangedTests) -> list[Section]:
    """A line a test: what needs a look first, the others folded."""
    sections = []
    for fate, title in _TITLES.items():
        told = found.of(fate)
        lines = [_line(one) for one in told[:_FEW]]
        if len(lines) < len(told):
            lines.append(say(f"… and {len(told) - len(lines)} more"))
        if lines:
            sections.append(Section(title, lines=tuple(lines), folded=fate not in _OPEN))
    return sections


def _line(one: ChangedTest) -> Line:
    mark = (Bit("failed: ", Verdict.FAILED),) if one.fate is Fate.BROKEN else ()
    because = (": ", name(first_line(one.message))) if one.message else ()
    return say(*mark, name(one.id), " on ", name(one.target), *because)


def _many(verb: str, count: int) -> str:
    if count == 1:
        return verb
    return {"fails now": "fail now", "passes now": "pass now"}.get(verb, verb.replace("is ", "are "))
