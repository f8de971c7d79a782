"""Tests of two runs of one package, of two commits → which changed sides. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from harness.compare.comparison import COMPLETE, FAILING
from harness.records import CaseResult, Stage, TargetRun, Verdict


class Turn(str, Enum):
    """What became of a test from BASE to HEAD, gravest first."""

    BROKEN = "fails now"
    STILL = "failed before, too"
    SKIPPED = "is skipped now"
    GONE = "is gone"
    MENDED = "passes now"
    NEW = "is new"


@dataclass(frozen=True)
class Turned:
    """One test on one target. `message` is HEAD's, where it failed or was skipped; `passed` whether it passed in BASE."""

    target: str
    id: str
    turn: Turn
    message: str = ""
    passed: bool = False


@dataclass(frozen=True)
class Turns:
    """The tests that changed sides, or still fail, of `compared` that both runs have."""

    found: tuple[Turned, ...]
    compared: int

    def of(self, *turns: Turn) -> tuple[Turned, ...]:
        """Those with one of these fates."""
        return tuple(one for one in self.found if one.turn in turns)

    @property
    def lost(self) -> tuple[Turned, ...]:
        """The tests that passed in BASE and now are gone or skipped. Of one that did not pass there nothing is lost."""
        return tuple(one for one in self.of(Turn.GONE, Turn.SKIPPED) if one.passed)


def turns(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> Turns:
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
        turn = _turn(old, new)
        doubted = ended[1] if turn in (Turn.GONE, Turn.SKIPPED) else ended[0] if old is None else both
        if turn and key[0] in doubted:
            passed = old is not None and old.verdict is Verdict.PASSED
            found.append(Turned(key[0], key[1], turn, new.message if new else "", passed))
    order = list(Turn)
    return Turns(tuple(sorted(found, key=lambda one: order.index(one.turn))), len(cases[0].keys() & cases[1].keys()))


def _turn(old: CaseResult | None, new: CaseResult | None) -> Turn | None:
    if new is None:
        return Turn.GONE
    if new.verdict in FAILING:
        return Turn.STILL if old and old.verdict in FAILING else Turn.BROKEN
    if old is None:
        return Turn.NEW
    if new.verdict is Verdict.PASSED:
        return None if old.verdict is Verdict.PASSED else Turn.MENDED
    return None if old.verdict is new.verdict else Turn.SKIPPED


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
