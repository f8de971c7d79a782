"""Compare the runs of one package on two toolchains: what does the second one change? Uses the other comparisons. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Union

from warpwave.compare.changed_codegen import Bundle, Concern, Diff, Trend, bundle, check_comparable, diff
from warpwave.compare.changed_codegen import Change as CodeChange
from warpwave.compare.changed_speeds import SpeedChanges, changed_speeds
from warpwave.compare.codegen import Room, pair
from warpwave.compare.model import COMPLETE, Change, is_dead
from warpwave.compare.tests import ChangedTests, Fate, changed_tests
from warpwave.errors import UsageError
from warpwave.records import CODE, PASSES, CompiledKernel, Scalar, TargetRun, Verdict, grouped
from warpwave.records.run import plain_target


@dataclass(frozen=True)
class ChangedWaits:
    """A kernel function on one architecture: in how many `configurations` accesses to shared memory (LDS) are in flight at a barrier.

    `example` is the sentence of the side that has more, `origin` the case that launches it.
    """

    kernel: str
    function: str
    architecture: str
    configurations: int
    before: int
    after: int
    example: str
    origin: str

    @property
    def worse(self) -> bool:
        """Whether there are more of them now."""
        return self.after > self.before


def changed_waits(before: Sequence[CompiledKernel], after: Sequence[CompiledKernel]) -> tuple[ChangedWaits, ...]:
    """Return the functions for which the number of such configurations changed, new ones first."""
    sides = [grouped(((row.kernel, row.function, row.architecture), row) for row in rows) for rows in (before, after)]
    found, room = [], Room()
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        if not any(row.in_flight for side in sides for row in side.get(key, ())):
            continue
        both = [(old, new) for old, new in pair(sides[0].get(key, []), sides[1].get(key, []), room) if old and new]
        counts = sum(bool(old.in_flight) for old, _ in both), sum(bool(new.in_flight) for _, new in both)
        if counts[0] != counts[1]:
            shown = next(row for old, new in both for row in ((new,) if counts[1] > counts[0] else (old,)) if row.in_flight)
            found.append(ChangedWaits(*key, len(both), *counts, shown.in_flight[0], shown.origin))
    return tuple(sorted(found, key=lambda one: (not one.worse, -abs(one.after - one.before), one.kernel, one.function)))


# Of the errors that tests record with `record_property`: `max_abs_err`, `max_ulp`.
_NAME = re.compile(r"(^|_)(err(or)?|ulps?|rmse?|diff)(_|$)")
_NOISE = 0.01  # a share; a smaller change of an error is another order of additions


@dataclass(frozen=True)
class ChangedError:
    """One number that a test recorded on one target, where both runs passed. It is the author's own, in the author's unit."""

    target: str
    id: str
    name: str
    before: float
    after: float

    @property
    def worse(self) -> bool:
        """Whether the error grew."""
        return self.after > self.before


def changed_errors(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> tuple[ChangedError, ...]:
    """Return each recorded error that changed by more than 1%, those that grew most first."""
    sides = [{key: value for run in runs for key, value in _recorded(run)} for runs in (base, head)]
    found = [ChangedError(*key, sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]
    moved = [one for one in found if abs(one.after - one.before) > _NOISE * max(one.before, one.after)]
    return tuple(sorted(moved, key=lambda one: (-one.after / one.before if one.before else -math.inf, one.target, one.id, one.name)))


def _recorded(run: TargetRun) -> list[tuple[tuple[str, str, str], float]]:
    found = []
    for case in run.cases:
        for name, text in case.properties.items() if case.verdict is Verdict.PASSED else ():
            try:
                value = float(text) if _NAME.search(name) else math.nan
            except ValueError:
                continue
            if math.isfinite(value) and value >= 0:
                found.append(((run.record.target, case.id, name), value))
    return found


@dataclass(frozen=True)
class FirstPass:
    """Where a kernel of a broken test goes wrong, on an emulated target.

    `told` and `before` say after which step it computes something else, on HEAD and on BASE. `differs` is the first step of HEAD from
    which on no code is one that BASE has, too; empty if BASE has none.
    """

    target: str
    id: str
    kernel: str
    told: str
    before: str
    differs: str


def first_passes(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> tuple[FirstPass, ...]:
    """Return what the runs of broken tests with their passes show, a row for each kernel."""
    sides = [{(run.record.target, case.id): case.properties for run in plain(runs) for case in run.cases} for runs in (base, head)]
    found = []
    for key, new in sides[1].items():
        old = sides[0].get(key, {})
        for kernel in [name.removeprefix(PASSES) for name in new if name.startswith(PASSES)]:
            known = {step.rpartition(":")[2] for step in old.get(f"{CODE}{kernel}", "").split()}
            steps = [step.rpartition(":") for step in new.get(f"{CODE}{kernel}", "").split()]
            same = max((at for at, (_, _, digest) in enumerate(steps) if digest in known), default=-1)  # two front ends may become one
            differs = [*(name for name, _, _ in steps), "LLVM"][same + 1] if known else ""
            found.append(FirstPass(*key, kernel, new[f"{PASSES}{kernel}"], old.get(f"{PASSES}{kernel}", "not launched"), differs))
    return tuple(found)


_VERSIONS = ("triton", "torch", "runtime", "driver", "python", "platform", "fp_fusion", "kernels_hash")


@dataclass(frozen=True)
class Code:
    """The generated code of both sides, and what changed in it."""

    base: Bundle
    head: Bundle
    diff: Diff


@dataclass(frozen=True)
class Upgrade:
    """What changes from toolchain `base` to toolchain `head` for one package.

    `versions` differ between the two, by fact: (base, head). `faults` say which leg is incomplete. `lacking` says what was not compared.
    `peers` are the providers that the package declares as not its own. `passes` are of tests that fail now.
    """

    base: str
    head: str
    targets: tuple[str, ...]
    versions: dict[str, tuple[str, str]]
    tests: ChangedTests
    code: Union[Code, None]
    waits: tuple[ChangedWaits, ...]
    errors: tuple[ChangedError, ...]
    speeds: Union[SpeedChanges, None]
    faults: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    emulated: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    passes: tuple[FirstPass, ...] = ()

    @property
    def broken(self) -> tuple[int, int, int]:
        """How many tests fail now, how many passed and are gone, skipped or expected to fail, and how many points are slower or lost."""
        slower = len(self.speeds.of(Change.SLOWER)) + len(self.speeds.lost) if self.speeds else 0
        return len(self.tests.of(Fate.BROKEN)), len(self.tests.lost), slower

    @property
    def points(self) -> int:
        """Return how many points have a speed that counts on both sides."""
        return sum(point.speedup is not None for point in self.speeds.points) if self.speeds else 0

    @property
    def compared(self) -> bool:
        """Whether anything was compared: a test, a binary or a speed."""
        return bool(self.tests.compared or (self.code and self.code.diff.compared) or self.points)


def plain(runs: Iterable[TargetRun]) -> list[TargetRun]:
    """Return the runs under the names of their targets, whatever toolchain they were on."""
    return [replace(run, record=replace(run.record, target=plain_target(run.record.target, run.record.toolchain))) for run in runs]


def upgrade(runs: Sequence[TargetRun], base: str, head: str) -> Upgrade:
    """Compare the runs on toolchain `base` with those on `head`.

    Raises:
        UsageError: one of the two has no run, or they have no target in common.
    """
    sides = [plain(run for run in runs if run.record.toolchain == toolchain) for toolchain in (base, head)]
    names = [[run.record.target for run in side] for side in sides]
    both = tuple(name for name in dict.fromkeys(names[0]) if name in names[1])
    if not both:
        there = ", ".join(dict.fromkeys(run.record.toolchain for run in runs if run.record.toolchain)) or "none"
        raise UsageError(
            f"There is no target that ran on both {base} and {head}.",
            f"The folders have runs on these toolchains: {there}.",
            "Run both, or name two of those.",
        )
    old, new = ([run for run in side if run.record.target in both] for side in sides)
    code, no_code = _code(old, new, base, head)
    speeds, no_speeds = _speeds(old, new)
    tests = changed_tests(old, new)
    no_tests = "" if tests.compared else "No test was compared: none ran on both."
    return Upgrade(
        base=base,
        head=head,
        targets=both,
        versions=_versions(old, new),
        tests=tests,
        code=code,
        waits=changed_waits(code.base.kernels, code.head.kernels) if code else (),
        errors=changed_errors(old, new),
        speeds=speeds,
        faults=tuple(_faults(old, base) + _faults(new, head)),
        lacking=tuple(filter(None, (no_tests, no_code, no_speeds))),
        emulated=tuple(dict.fromkeys(run.record.target for run in new if run.record.emulated)),
        peers=tuple(dict.fromkeys(name for run in new for name in run.peers)),
    )


def _code(old: Sequence[TargetRun], new: Sequence[TargetRun], base: str, head: str) -> tuple[Code | None, str]:
    try:
        sides = bundle(base, old), bundle(head, new)
        check_comparable(*sides)
    except UsageError as error:
        return None, f"Generated code was not compared: {error.happened}"
    return Code(*sides, diff(sides[0].kernels, sides[1].kernels)), ""


def _speeds(old: Sequence[TargetRun], new: Sequence[TargetRun]) -> tuple[SpeedChanges | None, str]:
    if not any(run.samples for run in (*old, *new)):
        return None, "Speeds were not compared: no target has a card."
    try:
        found = changed_speeds(old, new)
        some = any(point.speedup is not None for point in found.points)
        return found, "" if some else "Speeds were not compared: no point has one that counts on both."
    except UsageError as error:
        return None, f"Speeds were not compared: {error.happened}"


def _versions(old: Sequence[TargetRun], new: Sequence[TargetRun]) -> dict[str, tuple[str, str]]:
    """Return the facts that differ. Usually one does. If two differ, either of them may be the cause."""
    found = {}
    for fact in _VERSIONS:
        sides = [", ".join(dict.fromkeys(str(getattr(run.facts, fact)) for run in side if run.facts)) for side in (old, new)]
        if sides[0] != sides[1]:
            found[fact] = (sides[0] or "unknown", sides[1] or "unknown")
    return found


def _faults(side: Sequence[TargetRun], toolchain: str) -> list[str]:
    """Return why results of a leg may be missing."""
    found = []
    for run in side:
        where = f"{run.record.target} on {toolchain}"
        left = [report for report in run.stages if not report.explained and report.verdict is not Verdict.NOT_RUN]
        found += [f"{where}: {report.stage.value} {report.verdict.value}, {report.reason}" for report in left]
        if not left and run.record.verdict not in COMPLETE:  # it ended in a stage that left no report, or before any
            found.append(f"{where}: {run.record.verdict.value}, {run.record.reason}")
    return found


_OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True)
class Tuned:
    """An entry of a file that a package keeps for its cards: the constants of a launch, with `num_warps` and `num_stages`.

    `function` is a kernel's name; empty for any.
    """

    file: str
    entry: str
    values: dict[str, Scalar]
    function: str = ""


@dataclass(frozen=True)
class Stale:
    """An entry that should be tuned again for one architecture, or one card, and why."""

    file: str
    entry: str
    architecture: str
    why: str


def matches(tuned: Tuned, row: CompiledKernel) -> bool:
    """Return whether a compiled configuration is this entry: every constant that the kernel has, and the options, are equal."""
    if tuned.function and tuned.function != row.function:
        return False
    known = {name: row.constants[name] for name in tuned.values if name in row.constants}
    options = {name: getattr(row, name) for name in _OPTIONS if name in tuned.values}
    found = {**known, **options}
    return bool(known) and all(found[name] == tuned.values[name] for name in found)


def stale(entries: Sequence[Tuned], diff: Diff) -> tuple[Stale, ...]:
    """Return the entries that no longer compile, spill more, or fit less often than before. An entry that no launch uses is not judged."""
    found: dict[tuple[str, str, str], str] = {}
    for change in diff.changes:
        why = _why(change)
        for tuned in entries if why else ():
            if change.after is not None and matches(tuned, change.after):
                found.setdefault((tuned.file, tuned.entry, change.architecture), why)
    return tuple(Stale(file, entry, architecture, why) for (file, entry, architecture), why in found.items())


def used(entries: Sequence[Tuned], rows: Sequence[CompiledKernel]) -> int:
    """Return how many of the entries a launch of this run uses."""
    return sum(any(matches(tuned, row) for row in rows) for tuned in entries)


def _why(change: CodeChange) -> str:
    old, new = change.before, change.after
    if new is None or (old is not None and is_dead(old)):
        return ""
    if is_dead(new):
        return f"it no longer compiles: {new.reason}"
    if new.is_discarded and not (old and old.is_discarded):
        return f"an autotuner would discard it now: {new.reason}"
    worse = [delta for delta in change.deltas if delta.trend is Trend.WORSE and delta.concern in (Concern.SPILLS, Concern.OCCUPANCY)]
    return "; ".join(f"{delta.what} {delta.before} → {delta.after}" for delta in worse)
