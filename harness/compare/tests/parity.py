"""Tests and compiled kernels of all targets, side by side. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import cache

from harness.compare.codegen.alignment import align
from harness.compare.codegen.alignment import configuration as configuration  # the JUnit writer names its cases by it
from harness.compare.comparison import CodegenCell, CodegenRow, KernelTests, Parity, ParityRow, TestCell, WaiverUse
from harness.records import MOST_SECONDS, CaseResult, CompiledKernel, TargetRun, Verdict, Waiver, Which

# Targets that are behind with a test; of very many tests fewer. The cells of its row tell the others.
MOST_NAMED, _FEWEST_NAMED, _MOST_NAMES = 100, 10, 2_000_000


def compare_tests(runs: Mapping[str, TargetRun]) -> tuple[ParityRow, ...]:
    """A row per test id and occurrence, in the order of the first target that has it."""
    took_part = [name for name, run in runs.items() if run.cases]
    found: dict[tuple[str, int], dict[str, TestCell]] = {}
    for name in took_part:
        seen: Counter[str] = Counter()
        for case in runs[name].cases:
            seen[case.id] += 1
            found.setdefault((case.id, seen[case.id]), {})[name] = TestCell(name, case)
    rows = []
    most = max(_FEWEST_NAMED, min(MOST_NAMED, _MOST_NAMES // max(1, len(found))))
    alike: dict[tuple[str, ...], tuple[str, ...]] = {}
    for (identity, occurrence), cells in found.items():
        parity, behind = _parity(cells, took_part, most)
        behind = alike.setdefault(behind, behind)
        kernel = next(iter(cells.values())).result.kernel
        rows.append(ParityRow(identity, occurrence, kernel, parity, behind, tuple(cells.values())))
    return tuple(rows)


def count_tests(runs: Mapping[str, TargetRun]) -> tuple[KernelTests, ...]:
    """The tests of each kernel on each target, counted."""
    found = []
    for name, run in runs.items():
        by_kernel: dict[str, list[CaseResult]] = {}
        for case in run.cases:
            by_kernel.setdefault(case.kernel, []).append(case)
        for kernel, cases in by_kernel.items():
            counts = Counter(case.verdict for case in cases)
            seconds = math.fsum(case.seconds for case in cases if 0 < case.seconds < MOST_SECONDS)
            found.append(KernelTests(kernel, name, {verdict.value: count for verdict, count in counts.items()}, seconds))
    return tuple(found)


def compare_codegen(runs: Mapping[str, TargetRun]) -> tuple[CodegenRow, ...]:
    """A row per launch and configuration, with all architectures in it."""
    return align(CodegenCell(name, kernel) for name, run in runs.items() for kernel in run.compiled)


def use_of_waivers(runs: Mapping[str, TargetRun]) -> tuple[WaiverUse, ...]:
    """Every waiver of every target that compiled kernels, once, with what it was good for on all of them."""
    covered: Counter[Waiver] = Counter()
    used: Counter[Waiver] = Counter()
    for run in runs.values():
        waivers = run.gates.waivers if run.gates and run.compiled else ()
        told = [row for row in run.compiled if row.verdict is not Verdict.NOT_RUN] if waivers else []
        for waiver in waivers:
            covers = _cover(waiver.which)
            rows = [row for row in told if covers(row)]
            covered[waiver] += len(rows)
            # Where two name the same gate of a kernel, the first one is the reason given.
            used[waiver] += sum(row.waived.get(waiver.gate) == waiver.reason for row in rows)
    return tuple(WaiverUse(waiver, covered[waiver], used[waiver]) for waiver in covered)


def _cover(which: Which) -> Callable[[CompiledKernel], bool]:
    """`which.covers`, with its patterns read once and each name looked at once: a run may have 50,000 kernels, and 200 waivers."""

    def fits(some: tuple[str, ...]) -> Callable[[str], bool]:
        pattern = re.compile("|".join(map(translate, some)) if some else r"(?!)")
        return cache(lambda name: pattern.match(name) is not None)

    told = {field.name: getattr(which, field.name) for field in dataclasses.fields(which)}
    looks = [(operator.attrgetter(name), fits(some)) for name, some in told.items() if some != ("*",)]
    return lambda row: all(fit(get(row)) for get, fit in looks)


def _parity(cells: Mapping[str, TestCell], took_part: list[str], most: int) -> tuple[Parity, tuple[str, ...]]:
    """Only a target that has tests at all can miss one, and only what passed elsewhere is a gap.

    Looks at the targets that have the test and at as many as it names, never at all of them for each test.
    """
    if len(took_part) < 2:
        return Parity.ONE_TARGET, ()
    verdicts = {name: cell.result.verdict for name, cell in cells.items()}
    if Verdict.PASSED not in verdicts.values():
        return Parity.PASSED_NOWHERE, ()
    found = (
        (Parity.FAILED_ON, (name for name, verdict in verdicts.items() if verdict not in (Verdict.PASSED, Verdict.NOT_RUN))),
        (Parity.MISSING_ON, (name for name in took_part if name not in cells) if len(cells) < len(took_part) else ()),
        (Parity.SKIPPED_ON, (name for name, verdict in verdicts.items() if verdict is Verdict.NOT_RUN)),
    )
    for parity, behind in found:
        if named := tuple(itertools.islice(behind, most)):
            return parity, named
    return Parity.ALL_PASSED, ()
