"""Comparison → test results: failures with commands to repeat them, gaps with reasons, and recorded numbers side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from harness.compare.model import FAILING, Comparison, Parity, ParityRow
from harness.records import CaseResult, Verdict
from harness.render.repro import repro
from harness.render.sections.testing.suspected import suspicion
from harness.render.text import first_line

_FAILURES, _DETAIL, _ALL_DETAILS = 200, 8_000, 160_000  # failures shown, characters of one traceback, and of all tracebacks
_STORIES = 20  # targets per test
_EXAMPLES = 12
MOST_NUMERICS = 1000  # rows of numbers
MOST_FINDINGS = 200  # lines of kernels


@dataclass(frozen=True)
class Story:
    """A test that failed on one target. `again` is the command that runs it alone. `doubt` says why the failure is only suspected."""

    target: str
    verdict: Verdict
    message: str
    detail: tuple[str, ...]
    again: str
    doubt: str = ""


@dataclass(frozen=True)
class Failure:
    """A test that failed somewhere. `elsewhere` names the targets on which it passed."""

    id: str
    stories: tuple[Story, ...]
    elsewhere: tuple[str, ...]


@dataclass(frozen=True)
class Failures:
    """The failures that are shown, and how many more there are."""

    shown: tuple[Failure, ...]
    more: int


@dataclass(frozen=True)
class Gap:
    """Tests of one kernel with the same parity and reason. `ids` are some of them."""

    parity: Parity
    kernel: str
    on: tuple[str, ...]
    reason: str
    n: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Standing:
    """How many of all tests passed on every target, and the gaps, gravest first."""

    everywhere: int
    total: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class Numeric:
    """One property recorded by a kernel's tests: per target its largest value and the test that recorded it, or None."""

    kernel: str
    name: str
    n: int
    worst: tuple[tuple[float, str] | None, ...]


def failures(comparison: Comparison) -> Failures:
    """Return the tests that failed: the first ones, and no more of their output than a page can carry."""
    rows = [row for row in comparison.tests if any(cell.result.verdict in FAILING for cell in row.cells)]
    targets = {target.target: target for target in comparison.targets}
    room = _ALL_DETAILS
    shown = []
    for row in rows[:_FAILURES]:
        stories: list[Story] = []
        for cell in row.cells:
            result = cell.result
            if result.verdict in FAILING and len(stories) < _STORIES:
                detail = result.detail[: min(_DETAIL, room)]
                room -= len(detail)
                again = repro(targets[cell.target], result.id)
                doubt = suspicion(row, cell.target, comparison.targets)
                stories.append(Story(cell.target, result.verdict, _message(result), tuple(detail.splitlines()), again, doubt))
        elsewhere = tuple(cell.target for cell in row.cells if cell.result.verdict is Verdict.PASSED)
        shown.append(Failure(_name(row), tuple(stories), elsewhere))
    return Failures(tuple(shown), len(rows) - len(shown))


def parity(comparison: Comparison) -> Standing:
    """Group the tests that did not pass everywhere by parity, kernel, targets and reason."""
    groups: dict[tuple[Parity, str, tuple[str, ...], str], list[str]] = {}
    everywhere = 0
    for row in comparison.tests:
        skipped = tuple(cell.target for cell in row.cells if cell.result.verdict is Verdict.NOT_RUN)
        behind = row.on or tuple(cell.target for cell in row.cells if cell.result.verdict is not Verdict.PASSED)
        if not behind:
            everywhere += 1
            continue
        # A test on one target only has no parity. If it was skipped, list it with its reason all the same.
        kind = Parity.SKIPPED_ON if row.parity is Parity.ONE_TARGET and skipped == behind else row.parity
        reasons = dict.fromkeys(_message(cell.result) for cell in row.cells if cell.target in behind)
        groups.setdefault((kind, row.kernel, behind, "; ".join(filter(None, reasons))), []).append(_name(row))
    order = (Parity.FAILED_ON, Parity.PASSED_NOWHERE, Parity.MISSING_ON, Parity.ONE_TARGET, Parity.SKIPPED_ON, Parity.XFAILED_ON)
    gaps = [Gap(kind, kernel, on, reason, len(ids), tuple(ids[:_EXAMPLES])) for (kind, kernel, on, reason), ids in groups.items()]
    return Standing(everywhere, len(comparison.tests), tuple(sorted(gaps, key=lambda gap: order.index(gap.parity))[:_FAILURES]))


def numerics(comparison: Comparison) -> tuple[Numeric, ...]:
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
    return tuple(
        Numeric(
            kernel,
            name,
            max(n for n, _, _ in values.values()),
            tuple((values[target][1], _short_name(values[target][2])) if target in values else None for target in targets),
        )
        for (kernel, name), values in sorted(found.items(), key=lambda entry: entry[0])
    )


def _short_name(row: ParityRow) -> str:
    """Return the test's own name, without the file: the kernel is shown already."""
    test = _name(row)
    return test[: test.find("[")].rpartition("::")[2] + test[test.find("[") :] if "[" in test else test.rpartition("::")[2]


def _numbers(properties: Iterable[tuple[str, str]]) -> Iterable[tuple[str, float]]:
    for name, text in properties:
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            yield name, value


def _name(row: ParityRow) -> str:
    return row.id if row.occurrence == 1 else f"{row.id} ({row.occurrence})"


def _message(result: CaseResult) -> str:
    return first_line(result.message or result.detail, 400)
