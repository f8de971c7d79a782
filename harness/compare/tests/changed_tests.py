"""Tests of two runs of one package, of two commits → which changed sides. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.compare.comparison import COMPLETE, FAILING
from harness.records import CaseResult, Stage, TargetRun, Verdict


class Fate(str, Enum):
    """What became of a test from BASE to HEAD, gravest first."""

    BROKEN = "fails now"
    STILL = "failed before, too"
    SKIPPED = "is skipped now"
    GONE = "is gone"
    MENDED = "passes now"
    NEW = "is new"


@dataclass(frozen=True)
class ChangedTest:
    """One test on one target. `message` is HEAD's, where it failed or was skipped; `passed` whether it passed in BASE."""

    target: str
    id: str
    fate: Fate
    message: str = ""
    passed: bool = False


@dataclass(frozen=True)
class ChangedTests:
    """The tests that changed sides, or still fail, of `compared` that both runs have."""

    found: tuple[ChangedTest, ...]
    compared: int

    def of(self, *fates: Fate) -> tuple[ChangedTest, ...]:
        """Those with one of these fates."""
        return tuple(one for one in self.found if one.fate in fates)

    @property
    def lost(self) -> tuple[ChangedTest, ...]:
        """The tests that passed in BASE and now are gone or skipped. Of one that did not pass there nothing is lost."""
        return tuple(one for one in self.of(Fate.GONE, Fate.SKIPPED) if one.passed)


def changed_tests(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> ChangedTests:
    """Hold the tests of each target of HEAD against those of BASE's target of the same name.

    A test is gone, skipped, or new, only where the other side's test stage came to its end: what a dead one left out, or a shard that is
    missing, says nothing. A test under another name is gone, and another one is new.
    """
    sides = [{run.record.target: run for run in runs if run.cases and run.record.verdict is not Verdict.STALE} for runs in (base, head)]
    both = [name for name in sides[0] if name in sides[1]]
    cases = [{(name, *key): case for name in both for key, case in _numbered(side[name].cases)} for side in sides]
    ended = [{name for name in both if _ended(side[name])} for side in sides]
    found = []
    for key in dict.fromkeys([*cases[0], *cases[1]]):
        old, new = (side.get(key) for side in cases)
        fate = _fate(old, new)
        doubted = ended[1] if fate in (Fate.GONE, Fate.SKIPPED) else ended[0] if old is None else both
        if fate and key[0] in doubted:
            passed = old is not None and old.verdict is Verdict.PASSED
            found.append(ChangedTest(key[0], key[1], fate, new.message if new else "", passed))
    order = list(Fate)
    return ChangedTests(tuple(sorted(found, key=lambda one: order.index(one.fate))), len(cases[0].keys() & cases[1].keys()))


def _fate(old: CaseResult | None, new: CaseResult | None) -> Fate | None:
    if new is None:
        return Fate.GONE
    if new.verdict in FAILING:
        return Fate.STILL if old and old.verdict in FAILING else Fate.BROKEN
    if old is None:
        return Fate.NEW
    if new.verdict is Verdict.PASSED:
        return None if old.verdict is Verdict.PASSED else Fate.MENDED
    return None if old.verdict is new.verdict else Fate.SKIPPED


def _numbered(cases: Iterable[CaseResult]) -> Iterable[tuple[tuple[str, int], CaseResult]]:
    """A test that is there twice is two."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.id] += 1
        yield (case.id, seen[case.id]), case


def _ended(run: TargetRun) -> bool:
    """Whether the test stage came to its end, whatever its tests came to, in every shard of the run."""
    if run.missing:
        return False
    report = next((report for report in run.stages if report.stage is Stage.TEST), None)
    return report is not None and (report.verdict in COMPLETE or report.verdict.value in report.counts)
