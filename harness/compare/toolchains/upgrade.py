"""Compare the runs of one package on two toolchains: what does the second one change? Uses the other comparisons. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Union

from harness.compare.codegen.bundles import Bundle, bundle, check_comparable
from harness.compare.codegen.changed_code import Diff, diff
from harness.compare.model import Change
from harness.compare.speeds.changed_speeds import SpeedChanges, changed_speeds
from harness.compare.tests.changed_tests import ChangedTests, Fate, changed_tests
from harness.compare.toolchains.lost_barriers import ChangedWaits, changed_waits
from harness.compare.toolchains.numerics import ChangedError, changed_errors
from harness.errors import UsageError
from harness.records import TargetRun, Verdict
from harness.records.toolchain import plain_target

_VERSIONS = ("triton", "torch", "runtime", "driver", "python", "platform", "fp_fusion", "kernels_hash")
_COMPLETE = (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR)


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
    `peers` are the providers that the package declares as not its own.
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


def side_of(runs: Iterable[TargetRun], toolchain: str) -> list[TargetRun]:
    """Return the runs on a toolchain, each under the name of its target."""
    found = (run for run in runs if run.record.toolchain == toolchain)
    return [replace(run, record=replace(run.record, target=plain_target(run.record.target, toolchain))) for run in found]


def upgrade(runs: Sequence[TargetRun], base: str, head: str) -> Upgrade:
    """Compare the runs on toolchain `base` with those on `head`.

    Raises:
        UsageError: one of the two has no run, or they have no target in common.
    """
    sides = side_of(runs, base), side_of(runs, head)
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
        if not left and run.record.verdict not in _COMPLETE:  # it ended in a stage that left no report, or before any
            found.append(f"{where}: {run.record.verdict.value}, {run.record.reason}")
    return found
