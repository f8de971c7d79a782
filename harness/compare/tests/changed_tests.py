"""Compare the tests of two commits of one package: which tests changed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.compare.model import FAILING
from harness.records import CaseResult, Stage, TargetRun, Verdict


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
        return Fate.STILL if old and old.verdict in FAILING else Fate.BROKEN
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
