"""Compare the tests of all targets. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from harness.compare.model import KernelTests, Parity, ParityRow, TestCell
from harness.records import HARMLESS, HOST_ERROR_PROPERTY, MOST_SECONDS, CaseResult, CompiledKernel, TargetRun, Verdict
from harness.records.selection.package import is_load

# Targets named in a row as not passing. If there are very many tests, fewer; the row's cells still hold all.
MOST_NAMED, _FEWEST_NAMED, _MOST_NAMES = 100, 10, 2_000_000


def compare_tests(runs: Mapping[str, TargetRun]) -> tuple[ParityRow, ...]:
    """Return a row per test id and occurrence, in the order of the first target that has it."""
    took_part = [name for name, run in runs.items() if run.cases]
    emulated = {name for name in took_part if runs[name].record.emulated}
    # A target that was asked for some tests only misses none of the others, unless all were asked for the same.
    alike = len({runs[name].narrowed for name in took_part}) < 2
    all_asked = [name for name in took_part if alike or not runs[name].narrowed.by]
    found: dict[tuple[str, int], dict[str, TestCell]] = {}
    for name in took_part:
        seen: Counter[str] = Counter()
        for case in runs[name].cases:
            seen[case.id] += 1
            found.setdefault((case.id, seen[case.id]), {})[name] = TestCell(name, case)
    rows = []
    most = max(_FEWEST_NAMED, min(MOST_NAMED, _MOST_NAMES // max(1, len(found))))
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for (identity, occurrence), cells in found.items():
        parity, behind = _parity(cells, took_part, all_asked, most)
        behind = shared.setdefault(behind, behind)
        kernel = next(iter(cells.values())).result.kernel
        rows.append(ParityRow(identity, occurrence, kernel, parity, behind, tuple(cells.values()), _suspected(cells, emulated)))
    return tuple(rows)


def _suspected(cells: Mapping[str, TestCell], emulated: Collection[str]) -> tuple[str, ...]:
    """Return the emulated targets where what was executed failed a test that passed on another kind of target, and failed on none."""
    elsewhere = {cell.result.verdict for name, cell in cells.items() if name not in emulated}
    if not emulated or Verdict.PASSED not in elsewhere or Verdict.FAILED in elsewhere:
        return ()
    return tuple(
        name
        for name, cell in cells.items()
        if name in emulated and cell.result.verdict is Verdict.FAILED and HOST_ERROR_PROPERTY not in cell.result.properties
    )


def count_tests(runs: Mapping[str, TargetRun]) -> tuple[KernelTests, ...]:
    """Count the tests of each kernel on each target."""
    found = []
    for name, run in runs.items():
        by_kernel: dict[str, list[CaseResult]] = {}
        for case in run.cases:
            if is_load(case.id) and case.verdict is Verdict.PASSED:
                continue
            by_kernel.setdefault(case.kernel, []).append(case)
        for kernel, cases in by_kernel.items():
            counts = Counter(case.verdict for case in cases)
            seconds = math.fsum(case.seconds for case in cases if 0 < case.seconds < MOST_SECONDS)
            why = count_reasons(cases)
            found.append(KernelTests(kernel, name, {verdict.value: count for verdict, count in counts.items()}, seconds, why))
    return tuple(found)


def count_reasons(rows: Iterable[CaseResult | CompiledKernel]) -> dict[str, int]:
    """Count what did not run by its reason."""
    return dict(Counter(row.not_run.value for row in rows if row.not_run and row.verdict is Verdict.NOT_RUN))


def _parity(cells: Mapping[str, TestCell], took_part: list[str], all_asked: list[str], most: int) -> tuple[Parity, tuple[str, ...]]:
    """Return the parity of one test and the targets that are behind.

    A target can only miss a test if it ran tests at all. A missing or failed test is reported only if it passed on another target. The work
    per test grows with the targets that have it and those that are named, not with all targets.
    """
    if len(took_part) < 2:
        return Parity.ONE_TARGET, ()
    verdicts = {name: cell.result.verdict for name, cell in cells.items()}
    if Verdict.PASSED not in verdicts.values():
        return Parity.PASSED_NOWHERE, ()
    found = (
        (Parity.FAILED_ON, (name for name, verdict in verdicts.items() if verdict not in HARMLESS)),
        (Parity.MISSING_ON, (name for name in all_asked if name not in cells) if len(cells) < len(took_part) else ()),
        (Parity.SKIPPED_ON, (name for name, verdict in verdicts.items() if verdict is Verdict.NOT_RUN)),
        (Parity.XFAILED_ON, (name for name, verdict in verdicts.items() if verdict is Verdict.XFAILED)),
    )
    for parity, behind in found:
        if named := tuple(itertools.islice(behind, most)):
            return parity, named
    return Parity.ALL_PASSED, ()
