"""Comparison → sections: what the sanitizer found, by line of a kernel."""

from __future__ import annotations

from harness.compare.model import Comparison, TestFinding
from harness.records import Verdict
from harness.render.sections.model import Bit, Line, Section, name, say, shorten
from harness.render.text import plural

TITLE = "What kernels do to memory"


def sections(comparison: Comparison, few: int | None) -> list[Section]:
    """Return two lines for each line of a kernel, target and defect: where it is, and the first example."""
    groups: dict[tuple[str, ...], list[TestFinding]] = {}
    for row in comparison.findings:
        found = row.finding
        groups.setdefault((row.target, found.kernel, found.function, found.place, found.defect, found.access, found.tensor), []).append(row)
    lines = [line for rows in groups.values() for line in _lines(rows)]
    return [Section(TITLE, lines=shorten(lines, few and 2 * few))] if lines else []


def _lines(rows: list[TestFinding]) -> list[Line]:
    target, found = rows[0].target, rows[0].finding
    tests = plural(len({row.finding.case for row in rows}), "test")
    head = say(name(target), " ", Bit(found.defect.value, Verdict.FAILED), f" in {tests}: ", name(f"{found.function} at {found.place}"))
    return [head + say(": ", name(found.text)), say("  ", name(found.example))]
