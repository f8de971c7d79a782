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
    """One test on one target. `message` is HEAD's, where it failed or was skipped."""

    target: str
    id: str
    turn: Turn
    message: str = ""


@dataclass(frozen=True)
class Turns:
    """The tests that changed sides, or still fail, of `compared` that both runs have."""

    found: tuple[Turned, ...]
    compared: int

    def of(self, *turns: Turn) -> tuple[Turned, ...]:
        """Those with one of these fates."""
        return tuple(one for one in self.found if one.turn in turns)


def turns(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> Turns:
    """Hold the tests of each target of HEAD against those of BASE's target of the same name.

    A test is gone, or new, only where the other side's test stage came to its end: what a dead one left out says nothing.
    """
    sides = [{run.record.target: run for run in runs if run.cases and run.record.verdict is not Verdict.STALE} for runs in (base, head)]
    both = [name for name in sides[0] if name in sides[1]]
    cases = [{(name, *key): case for name in both for key, case in _numbered(side[name].cases)} for side in sides]
    ended = [{name for name in both if _ended(side[name])} for side in sides]
    found = []
    for key in dict.fromkeys([*cases[0], *cases[1]]):
        old, new = (side.get(key) for side in cases)
        whole = key[0] in (ended[1] if new is None else ended[0])
        turn = _turn(old, new) if (old and new) or whole else None
        if turn:
            found.append(Turned(key[0], key[1], turn, new.message if new else ""))
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
    """Whether the test stage came to its end, whatever its tests came to."""
    report = next((report for report in run.stages if report.stage is Stage.TEST), None)
    return report is not None and (report.verdict in COMPLETE or report.verdict.value in report.counts)
