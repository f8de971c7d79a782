"""Comparison → the tests that did not run and that nobody skipped, by their reason."""

from __future__ import annotations

from harness.compare.model import Comparison
from harness.records import NotRun, Verdict
from harness.render.sections.model import Bit, Line, Section, name, say, shorten
from harness.render.text import first_line


def tests(comparison: Comparison, few: int | None) -> list[Section]:
    """Return a line per target and reason, with the first test and how many more there are."""
    groups: dict[tuple[str, NotRun, str], list[str]] = {}
    for row in comparison.tests:
        for cell in row.cells:
            why = cell.result.not_run
            if why not in (None, NotRun.SKIPPED):
                groups.setdefault((cell.target, why, first_line(cell.result.message)), []).append(row.id)
    order = list(NotRun)
    lines = [_line(*key, ids) for key, ids in sorted(groups.items(), key=lambda group: -order.index(group[0][1]))]
    return [Section("Tests that did not run", lines=shorten(lines, few))] if lines else []


def _line(target: str, why: NotRun, message: str, ids: list[str]) -> Line:
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return say(name(ids[0]), more, " on ", name(target), ": ", Bit(why.words, Verdict.NOT_RUN), ": ", name(message))
