"""Tests: the targets of one run side by side, what changed between two runs, and options that chose tests in vain. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from warpwave.compare.model import FAILING, KernelTests, Parity, ParityRow, TargetSummary, TestCell, failures
from warpwave.records import HARMLESS, HOST_ERROR_PROPERTY, MOST_SECONDS, CaseResult, CompiledKernel, Stage, TargetRun, Verdict, grouped
from warpwave.records.selection import NO_SUCH_TEST, RAN_NO_TEST, is_load


class Fate(str, Enum):
    """What happened to a test from BASE to HEAD, gravest first."""

    BROKEN = "fails now"
    STILL = "failed before, too"
    SKIPPED = "is skipped now"
    XFAILED = "is expected to fail now"
    GONE = "is gone"
    FIXED = "passes now"
    NEW = "is new"


@dataclass(frozen=True)
class ChangedTest:
    """One test on one target. `message` is HEAD's, if it failed or was skipped there. `passed`: it passed in BASE."""

    target: str
    id: str
    fate: Fate
    message: str = ""
    passed: bool = False


@dataclass(frozen=True)
class ChangedTests:
    """The tests that changed or still fail. `compared` counts the tests that both runs have."""

    found: tuple[ChangedTest, ...]
    compared: int

    def of(self, *fates: Fate) -> tuple[ChangedTest, ...]:
        """Return the tests with one of these fates."""
        return tuple(test for test in self.found if test.fate in fates)

    @property
    def lost(self) -> tuple[ChangedTest, ...]:
        """The tests that passed in BASE and are now gone, skipped or expected to fail."""
        return tuple(test for test in self.of(Fate.GONE, Fate.SKIPPED, Fate.XFAILED) if test.passed)


def changed_tests(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> ChangedTests:
    """Compare the tests of each target of HEAD with those of BASE's target of the same name.

    A test counts as gone, skipped or new only if the other side's test stage completed: a crashed stage or a missing shard says nothing
    about the tests it did not reach. So does a run that was asked for some tests only, unless the other was asked for the same. A renamed
    test counts as one gone and one new.
    """
    sides = [{run.record.target: run for run in runs if run.cases and run.record.verdict is not Verdict.STALE} for runs in (base, head)]
    both = [name for name in sides[0] if name in sides[1]]
    cases = [{(name, *key): case for name in both for key, case in _numbered(side[name].cases)} for side in sides]
    alike = {name for name in both if sides[0][name].narrowed == sides[1][name].narrowed}
    ended = [{name for name in both if _ended(side[name]) and (name in alike or not side[name].narrowed.by)} for side in sides]
    found = []
    for key in dict.fromkeys([*cases[0], *cases[1]]):
        old, new = (side.get(key) for side in cases)
        fate = _fate(old, new)
        doubted = ended[1] if fate in (Fate.GONE, Fate.SKIPPED, Fate.XFAILED) else ended[0] if old is None else both
        if fate and key[0] in doubted:
            passed = old is not None and old.verdict is Verdict.PASSED
            found.append(ChangedTest(key[0], key[1], fate, new.message if new else "", passed))
    order = list(Fate)
    return ChangedTests(tuple(sorted(found, key=lambda test: order.index(test.fate))), len(cases[0].keys() & cases[1].keys()))


def _fate(old: CaseResult | None, new: CaseResult | None) -> Fate | None:
    if new is None:
        return Fate.GONE
    if new.verdict in FAILING:
        return Fate.STILL if old and old.verdict in (*FAILING, Verdict.KNOWN) else Fate.BROKEN
    if new.verdict is Verdict.KNOWN:
        return Fate.STILL
    if old is None:
        return Fate.NEW
    if new.verdict is Verdict.PASSED:
        return None if old.verdict is Verdict.PASSED else Fate.FIXED
    return None if old.verdict is new.verdict else Fate.XFAILED if new.verdict is Verdict.XFAILED else Fate.SKIPPED


def _numbered(cases: Iterable[CaseResult]) -> Iterable[tuple[tuple[str, int], CaseResult]]:
    """Number the tests that share an id: two tests with one id stay two."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.id] += 1
        yield (case.id, seen[case.id]), case


def _ended(run: TargetRun) -> bool:
    """Return whether the test stage completed in every shard, whatever the tests' results."""
    if run.missing:
        return False
    report = next((report for report in run.stages if report.stage is Stage.TEST), None)
    return report is not None and report.explained


_FEW = 3  # ids named


def is_mistyped(result: CaseResult) -> bool:
    """Whether this is no test, but an id that was asked for and that no test has."""
    return result.verdict is Verdict.ERROR and result.message.endswith(NO_SUCH_TEST)


def mistyped(targets: Sequence[TargetSummary], tests: Iterable[ParityRow]) -> str:
    """Return what is wrong with the options that chose the tests, if nothing else is wrong: an id of no test, or what pytest refuses.

    pytest alone knows a test's parameters and its expressions, so such options are found out only when it runs.
    """
    refused = {target.target: words for target in targets if target.narrowed and (words := _refused(target))}
    failing = [(row.id, cell) for row in tests for cell in row.cells if cell.result.verdict in FAILING]
    unknown = list(dict.fromkeys(name for name, cell in failing if is_mistyped(cell.result)))
    if any(not is_mistyped(cell.result) for _, cell in failing):
        return ""
    explained = {*refused, *(cell.target for _, cell in failing)}
    for target in targets:
        is_explained = target.target in explained
        if target.verdict is not (Verdict.ERROR if is_explained else Verdict.PASSED):
            return ""
        if is_explained and failures(target.compiled, target.host_code):
            return ""
    found = [*dict.fromkeys(refused.values())]
    if unknown:
        more = f" and {len(unknown) - _FEW} more" if len(unknown) > _FEW else ""
        found.append(f"{NO_SUCH_TEST}: {', '.join(unknown[:_FEW])}{more}")
    return "; ".join(found)


def _refused(target: TargetSummary) -> str:
    """Return pytest's words on an option that it refused before it ran a test."""
    reasons = (report.reason for report in target.stages if report.stage is Stage.TEST and report.verdict is Verdict.ERROR)
    return next((reason.removeprefix(RAN_NO_TEST) for reason in reasons if reason.startswith(RAN_NO_TEST)), "")


# Targets named in a row as not passing. If there are very many tests, fewer; the row's cells still hold all.
MOST_NAMED, _FEWEST_NAMED, _MOST_NAMES = 100, 10, 2_000_000


def compare_tests(runs: Mapping[str, TargetRun]) -> tuple[ParityRow, ...]:
    """Return a row per test id and occurrence, in the order of the first target that has it."""
    took_part = [name for name, run in runs.items() if run.cases]
    emulated = {name for name in took_part if runs[name].record.emulated}
    proven = {(name, found.case) for name in emulated for found in runs[name].findings}
    # A target that was asked for some tests only misses none of the others, unless all were asked for the same.
    alike = len({runs[name].narrowed for name in took_part}) < 2
    all_asked = [name for name in took_part if alike or not runs[name].narrowed.by]
    found: dict[tuple[str, int], dict[str, TestCell]] = {}
    for name in took_part:
        for key, case in _numbered(runs[name].cases):
            found.setdefault(key, {})[name] = TestCell(name, case)
    rows = []
    most = max(_FEWEST_NAMED, min(MOST_NAMED, _MOST_NAMES // max(1, len(found))))
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for (identity, occurrence), cells in found.items():
        parity, behind = _parity(cells, took_part, all_asked, most)
        behind = shared.setdefault(behind, behind)
        kernel = next(iter(cells.values())).result.kernel
        rows.append(ParityRow(identity, occurrence, kernel, parity, behind, tuple(cells.values()), _suspected(cells, emulated, proven)))
    return tuple(rows)


def _suspected(cells: Mapping[str, TestCell], emulated: Collection[str], proven: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Return the emulated targets where what was executed failed a test that passed on another kind of target, and failed on none.

    What is `proven` by a finding, by target and test, is not suspected: the finding names the line and the element.
    """
    elsewhere = {cell.result.verdict for name, cell in cells.items() if name not in emulated}
    if not emulated or Verdict.PASSED not in elsewhere or Verdict.FAILED in elsewhere:
        return ()
    results = ((name, cell.result) for name, cell in cells.items() if name in emulated)
    failed = (entry for entry in results if entry[1].verdict is Verdict.FAILED and HOST_ERROR_PROPERTY not in entry[1].properties)
    return tuple(name for name, result in failed if (name, result.id) not in proven)


def count_tests(runs: Mapping[str, TargetRun]) -> tuple[KernelTests, ...]:
    """Count the tests of each kernel on each target."""
    found = []
    for name, run in runs.items():
        own = (case for case in run.cases if not (is_load(case.id) and case.verdict is Verdict.PASSED))
        for kernel, cases in grouped((case.kernel, case) for case in own).items():
            counts = Counter(case.verdict for case in cases)
            seconds = math.fsum(case.seconds for case in cases if 0 < case.seconds < MOST_SECONDS)
            by_word = {verdict.value: count for verdict, count in counts.items()}
            found.append(KernelTests(kernel, name, by_word, seconds, count_reasons(cases)))
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
        (Parity.KNOWN_ON, (name for name, verdict in verdicts.items() if verdict is Verdict.KNOWN)),
    )
    for parity, behind in found:
        if named := tuple(itertools.islice(behind, most)):
            return parity, named
    return Parity.ALL_PASSED, ()
