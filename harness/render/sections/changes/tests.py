"""Tests that changed between two runs → sections, for the terminal and for Markdown. Pure."""

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
    Fate.XFAILED: "Tests that are expected to fail now",
    Fate.GONE: "Tests that are gone",
    Fate.FIXED: "Tests that pass now",
    Fate.NEW: "New tests",
}
_OPEN = (Fate.BROKEN, Fate.SKIPPED, Fate.XFAILED, Fate.GONE)


def sentence(found: ChangedTests) -> str:
    """Return the verdict in words: `1 test fails now, 2 are gone.`"""
    counts = [(fate.value, len(found.of(fate))) for fate in Fate]
    parts = [f"{plural(count, 'test')} {_many(verb, count)}" for verb, count in counts if count]
    return f"{', '.join(parts) or f'None of {found.compared} tests changed'}."


def changed_test_sections(found: ChangedTests) -> list[Section]:
    """Return a line per test: what needs attention first, the others folded."""
    sections = []
    for fate, title in _TITLES.items():
        tests = found.of(fate)
        lines = [_line(test) for test in tests[:_FEW]]
        if len(lines) < len(tests):
            lines.append(say(f"… and {len(tests) - len(lines)} more"))
        if lines:
            sections.append(Section(title, lines=tuple(lines), folded=fate not in _OPEN))
    return sections


def _line(test: ChangedTest) -> Line:
    mark = (Bit("failed: ", Verdict.FAILED),) if test.fate is Fate.BROKEN else ()
    because = (": ", name(first_line(test.message))) if test.message else ()
    return say(*mark, name(test.id), " on ", name(test.target), *because)


def _many(verb: str, count: int) -> str:
    if count == 1:
        return verb
    return {"fails now": "fail now", "passes now": "pass now"}.get(verb, verb.replace("is ", "are "))
