"""Comparison → test results: failures with commands to repeat them, and recorded numbers side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warpwave.compare.model import FAILING, Comparison, ParityRow
from warpwave.records import Verdict
from warpwave.render.commands import repro
from warpwave.render.sections.testing import suspicion
from warpwave.render.text import first_line

_FAILURES, _DETAIL, _ALL_DETAILS = 200, 8_000, 160_000  # failures shown, characters of one traceback, and of all tracebacks
_STORIES = 20  # targets per test
MOST_NUMERICS = 1000  # rows of numbers
MOST_FINDINGS = 200  # lines of kernels


@dataclass(frozen=True)
class Numeric:
    """One property recorded by a kernel's tests: per target its largest value and the test that recorded it, or None."""

    kernel: str
    name: str
    n: int
    worst: list[tuple[float, str] | None]


def failures(comparison: Comparison) -> dict[str, Any]:
    """Return the tests that failed: the first ones, and no more of their output than a page can carry.

    Each has a story for each target on which it failed, with the command that runs it alone, and why the failure is only suspected.
    """
    rows = [row for row in comparison.tests if any(cell.result.verdict in FAILING for cell in row.cells)]
    targets = {target.target: target for target in comparison.targets}
    room = _ALL_DETAILS
    shown = []
    for row in rows[:_FAILURES]:
        stories: list[dict[str, Any]] = []
        for cell in row.cells:
            result = cell.result
            if result.verdict in FAILING and len(stories) < _STORIES:
                detail = result.detail[: min(_DETAIL, room)]
                room -= len(detail)
                stories.append(
                    {
                        "target": cell.target,
                        "verdict": result.verdict,
                        "message": first_line(result.message or result.detail, 400),
                        "detail": detail.splitlines(),
                        "again": repro(targets[cell.target], result),
                        "doubt": suspicion(row, cell.target, comparison.targets),
                    }
                )
        elsewhere = [cell.target for cell in row.cells if cell.result.verdict is Verdict.PASSED]
        shown.append({"id": row.name, "stories": stories, "elsewhere": elsewhere})
    return {"shown": shown, "more": len(rows) - len(shown)}


def numerics(comparison: Comparison) -> list[Numeric]:
    """Return the numbers that tests recorded with `record_property`: per target the largest of each."""
    found: dict[tuple[str, str], dict[str, tuple[int, float, ParityRow]]] = {}
    for row in comparison.tests:
        for cell in row.cells:
            for name, value in _numbers(cell.result.properties.items()):
                if (row.kernel, name) in found or len(found) < MOST_NUMERICS:
                    known = found.setdefault((row.kernel, name), {})
                    n, most, of = known.get(cell.target, (0, value, row))
                    known[cell.target] = (n + 1, value, row) if value > most else (n + 1, most, of)
    targets = [target.target for target in comparison.targets if target.tests]
    return [
        Numeric(
            kernel,
            name,
            max(n for n, _, _ in values.values()),
            [(values[target][1], _short_name(values[target][2])) if target in values else None for target in targets],
        )
        for (kernel, name), values in sorted(found.items(), key=lambda entry: entry[0])
    ]


def _short_name(row: ParityRow) -> str:
    """Return the test's own name, without the file: the kernel is shown already."""
    test = row.name
    return test[: test.find("[")].rpartition("::")[2] + test[test.find("[") :] if "[" in test else test.rpartition("::")[2]


def _numbers(properties: Iterable[tuple[str, str]]) -> Iterable[tuple[str, float]]:
    for name, text in properties:
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            yield name, value
