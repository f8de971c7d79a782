"""What a search asks of each step (does a test fail, is a gate broken, is a kernel slower?), and the search for the first bad one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Union

from warpwave.compare.changed_codegen import Concern, Trend, diff, merge
from warpwave.compare.changed_speeds import changed_speeds
from warpwave.compare.model import FAILING, Change, is_dead
from warpwave.compare.upgrade import plain
from warpwave.errors import UsageError
from warpwave.records import CompiledKernel, Stage, TargetRun, Verdict
from warpwave.records.selection import NO_SUCH_TEST


class Answer(str, Enum):
    """The answer for one step. A step that is skipped says nothing; an ambiguous one is tried again, and never guessed."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    AMBIGUOUS = "ambiguous"

    def said(self, fixed: bool) -> str:
        """Return the word for a reader. If a repair is searched for (`fixed`), the good steps are those that have the fault."""
        return {Answer.GOOD: "has it", Answer.BAD: "has it no more"}.get(self, self.value) if fixed else self.value


@dataclass(frozen=True)
class Reply:
    """An answer, and what was seen. `broken`: no test could be asked, because files of the package do not import."""

    answer: Answer
    reason: str = ""
    broken: bool = False


class Kind(str, Enum):
    """What is asked."""

    TEST = "test"
    GATE = "gate"
    WORSE = "worse"
    SLOWER = "slower"


@dataclass(frozen=True)
class Question:
    """`what` names the tests, a gate, a concern of `codegen diff` or a kernel's group. `kernel` and `architecture` narrow the rows.

    With `fixed`, the search is for what made it good: the answers are swapped.
    """

    kind: Kind
    what: str
    kernel: str = ""
    architecture: str = ""
    fixed: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that answer it."""
        found = {Kind.TEST: (Stage.TEST,), Kind.SLOWER: (Stage.TEST, Stage.BENCH)}
        return found.get(self.kind, (Stage.COMPILE,))

    @property
    def compares(self) -> bool:
        """Whether it compares a step with the first one, which is good by definition."""
        return self.kind in (Kind.WORSE, Kind.SLOWER)

    @property
    def words(self) -> str:
        """The question in words."""
        where = f" for {self.architecture}" if self.architecture else ""
        of = f" of {self.kernel}" if self.kernel else ""
        return {
            Kind.TEST: f"does a test fail ({self.what})?",
            Kind.GATE: f"is the gate {self.what}{of}{where} broken?",
            Kind.WORSE: f"is {self.what}{of}{where} worse than in the first one?",
            Kind.SLOWER: f"is {self.what} slower than in the first one?",
        }[self.kind]


def reply(question: Question, base: Sequence[TargetRun], runs: Sequence[TargetRun]) -> Reply:
    """Return the answer that the runs of a step give; `base` are the runs of the first step, if the question compares with it."""
    for run in runs:
        if run.record.verdict in (Verdict.INFRA, Verdict.STALE, Verdict.INVALID) or run.facts is None:
            return Reply(Answer.SKIPPED, f"{run.record.target} could not run: {run.record.reason or 'it left no facts'}")
    found = _ANSWERS[question.kind](question, plain(base), plain(runs))
    swapped = {Answer.GOOD: Answer.BAD, Answer.BAD: Answer.GOOD} if question.fixed else {}
    return replace(found, answer=swapped.get(found.answer, found.answer))


def _test(question: Question, base: Sequence[TargetRun], runs: Sequence[TargetRun]) -> Reply:
    cases = [case for run in runs for case in run.cases]  # the run has the tests that were asked for, and no other
    failing = [case for case in cases if case.verdict in FAILING]
    unimported = [case for case in failing if "::" not in case.id]  # a file whose tests pytest could not find
    unbuilt = unimported + [case for case in failing if case.message.endswith(NO_SUCH_TEST)]
    failed = [case for case in failing if case not in unbuilt]
    if failed:
        return Reply(Answer.BAD, f"{failed[0].id}: {failed[0].message or failed[0].verdict.value}")
    if unbuilt:
        return Reply(Answer.SKIPPED, f"{unbuilt[0].id}: {unbuilt[0].message}", broken=bool(unimported))
    ran = [case for case in cases if case.verdict is Verdict.PASSED]
    return Reply(Answer.GOOD, f"{len(ran)} passed") if ran else Reply(Answer.SKIPPED, "none of the tests ran")


def _gate(question: Question, base: Sequence[TargetRun], runs: Sequence[TargetRun]) -> Reply:
    rows = _rows(question, runs)
    for row in rows:
        if found := {**row.advice, **row.broken}.get(question.what):
            return Reply(Answer.BAD, f"{row.function} for {row.hardware}: {found}")
    return _compiled(rows) or Reply(Answer.GOOD, f"{len(rows)} configurations keep it")


def _worse(question: Question, base: Sequence[TargetRun], runs: Sequence[TargetRun]) -> Reply:
    before, rows, concern = _rows(question, base), _rows(question, runs), Concern(question.what)
    changes = [change for change in diff(before, rows).changes if change.worse_in([concern])]
    if changes:
        one = changes[0]
        moved = next(delta for delta in one.deltas if delta.concern is concern and delta.trend is Trend.WORSE)
        return Reply(Answer.BAD, f"{one.function} for {one.hardware}: {moved.what} {moved.before} → {moved.after}")
    return _compiled(rows) or Reply(Answer.GOOD, f"none of {len(rows)} configurations is worse")


def _compiled(rows: Sequence[CompiledKernel]) -> Reply | None:
    """Return why rows without a finding say nothing: there are none, or some have no binary."""
    if not rows:
        return Reply(Answer.SKIPPED, "nothing was compiled that the question is about")
    lost = [row for row in rows if is_dead(row)]
    return Reply(Answer.SKIPPED, f"{lost[0].function} does not compile for {lost[0].hardware}: {lost[0].reason}") if lost else None


def _rows(question: Question, runs: Sequence[TargetRun]) -> list[CompiledKernel]:
    def wanted(row: CompiledKernel) -> bool:
        named = not question.kernel or question.kernel in (row.kernel, row.function)
        return row.was_compiled and named and question.architecture in ("", row.architecture)

    return [row for row in merge([run.compiled for run in runs]) if wanted(row)]


def _slower(question: Question, base: Sequence[TargetRun], runs: Sequence[TargetRun]) -> Reply:
    try:
        points = [point for point in changed_speeds(base, runs).points if question.what in ("*", point.kernel)]
    except UsageError as error:
        return Reply(Answer.SKIPPED, error.happened)
    slower = [point for point in points if point.change is Change.SLOWER or point.lost]
    if slower:
        speedup = f"{slower[0].speedup:.3f}" if slower[0].speedup else "lost"
        return Reply(Answer.BAD, f"{len(slower)} of {len(points)} points, {slower[0].case}: {speedup}")
    if any(point.change is Change.AMBIGUOUS for point in points):
        return Reply(Answer.AMBIGUOUS, "the intervals include both no change and a slowdown")
    same = [point for point in points if point.change in (Change.SAME, Change.FASTER)]
    return Reply(Answer.GOOD, f"{len(same)} points") if same else Reply(Answer.SKIPPED, f"no point of {question.what} could be compared")


_ANSWERS = {Kind.TEST: _test, Kind.GATE: _gate, Kind.WORSE: _worse, Kind.SLOWER: _slower}


@dataclass(frozen=True)
class Tried:
    """A step and its answer."""

    name: str
    reply: Reply


@dataclass(frozen=True)
class Bisection:
    """What a search found. `first_bad` is None if an end is not what it should be; `fault` then says so.

    `suspects` are skipped steps between the last good and the first bad one: any of them may be the first bad one.
    """

    question: str
    tried: tuple[Tried, ...]
    last_good: Union[str, None] = None
    first_bad: Union[str, None] = None
    suspects: tuple[str, ...] = ()
    fault: str = ""


def bisect(question: str, names: Sequence[str], ask: Callable[[str], Reply]) -> Bisection:
    """Search `names`, in order: the first one is good, the last one is bad; both are checked. About log2(n) + 2 steps are asked."""
    tried: list[Tried] = []

    def answer(position: int) -> Answer:
        tried.append(Tried(names[position], ask(names[position])))
        return tried[-1].reply.answer

    for position, wanted in ((0, Answer.GOOD), (len(names) - 1, Answer.BAD)):
        if answer(position) is not wanted:
            found = tried[-1]
            fault = f"{found.name} is {found.reply.answer.value}, and should be {wanted.value}: {found.reply.reason}"
            return Bisection(question, tuple(tried), fault=fault)
    good, bad, skipped = 0, len(names) - 1, set[int]()
    while left := [position for position in range(good + 1, bad) if position not in skipped]:
        middle = min(left, key=lambda position: (abs(2 * position - good - bad), position))
        found_here = answer(middle)
        if found_here is Answer.GOOD:
            good = middle
        elif found_here is Answer.BAD:
            bad = middle
        else:
            skipped.add(middle)
    between = tuple(names[position] for position in range(good + 1, bad))
    return Bisection(question, tuple(tried), names[good], names[bad], between)
