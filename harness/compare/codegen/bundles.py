"""A bundle: the generated code of all targets of one run, ready to be compared with another bundle. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.codegen.changed_code import merge
from harness.errors import UsageError
from harness.records import CompiledKernel, Stage, TargetRun, Verdict


@dataclass(frozen=True)
class Bundle:
    """One side of a diff. `faults` are sentences on why kernels may be missing; empty if the bundle is complete.

    `narrowed` says by which options the runs had some of the package's tests only.
    """

    folder: str
    targets: tuple[str, ...]
    commits: tuple[str, ...]
    triton: tuple[str, ...]
    kernels: tuple[CompiledKernel, ...]
    faults: tuple[str, ...]
    narrowed: tuple[str, ...] = ()

    @property
    def architectures(self) -> frozenset[str]:
        """The architectures that the run compiled for."""
        return frozenset(row.architecture for row in self.kernels)


def bundle(folder: str, runs: Sequence[TargetRun]) -> Bundle:
    """Join the targets of one run that generated code.

    Raises:
        UsageError: no target has generated code.
    """
    # A stale folder mixes files of two runs, so its results belong to neither.
    sound = [run for run in runs if run.record.verdict is not Verdict.STALE]
    compiled = [run for run in sound if run.compiled]
    if not compiled:
        stages = [f"{run.record.target}: {_why(run)}" for run in runs]
        raise UsageError(
            f"There is no generated code in {folder}.",
            f"It comes from the compile stage, which needs no GPU; here it left no kernel ({'; '.join(stages)}).",
            "Run `warpwave run cpu --stage compile --out FOLDER`, and give that FOLDER.",
        )
    return Bundle(
        folder=folder,
        targets=tuple(run.record.target for run in compiled),
        commits=tuple(dict.fromkeys(run.record.commit or "unknown" for run in compiled)),
        triton=tuple(dict.fromkeys(run.facts.triton if run.facts else "unknown" for run in compiled)),
        kernels=tuple(merge([run.compiled for run in compiled])),
        faults=tuple(fault for run in runs for fault in _faults(run)),
        narrowed=tuple(dict.fromkeys(" ".join(run.narrowed.by) for run in compiled if run.narrowed.by)),
    )


def check_comparable(base: Bundle, head: Bundle) -> None:
    """Refuse two bundles without an architecture in common.

    Raises:
        UsageError: they have no architecture in common.
    """
    if not base.architectures & head.architectures:
        sides = [", ".join(sorted(side.architectures)) for side in (base, head)]
        raise UsageError(
            f"The two runs have no architecture in common: {base.folder} compiled for {sides[0]}, {head.folder} for {sides[1]}.",
            "Binaries for different GPUs cannot be compared; the two runs were made with different targets.",
            "Compile both with the same targets.",
        )


def notes(base: Bundle, head: Bundle) -> tuple[str, ...]:
    """Return what a reader must know before the first figure."""
    found = []
    if base.triton != head.triton:
        old, new = (", ".join(side.triton) for side in (base, head))
        found.append(f"Triton differs ({old} in BASE, {new} in HEAD): every binary may differ for that reason alone.")
    for side, mine, theirs in (("BASE", base, head), ("HEAD", head, base)):
        if only := mine.architectures - theirs.architectures:
            found.append(f"Only {side} compiled for {', '.join(sorted(only))}: not compared.")
        if mine.narrowed != theirs.narrowed and mine.narrowed:
            found.append(f"{side} had some of the package's tests only ({'; '.join(mine.narrowed)}): kernels may be missing from it.")
        found += [f"{side} is incomplete, kernels may be missing from it: {fault}." for fault in mine.faults]
    return tuple(found)


def _why(run: TargetRun) -> str:
    if run.record.verdict is Verdict.STALE:
        return "its files are of two runs"
    report = next((report for report in run.stages if report.stage is Stage.COMPILE), None)
    if report is None:
        return "no compile stage"
    return f"{report.verdict.value}{f', {report.reason}' if report.reason else ''}"


def _faults(run: TargetRun) -> list[str]:
    """Return why kernels may be missing:

    a stage that ended early, or unreadable files. A kernel that crashed has a row, so it is no fault.
    """
    if run.record.verdict is Verdict.STALE:
        return [f"{run.record.target}: its files are of two runs"]
    shards = [f"{run.record.target}: {run.missing}"] if run.missing else []
    return shards + [
        f"{run.record.target}: {report.verdict.value}{f', {report.reason}' if report.reason else ''}"
        for report in run.stages
        if report.stage is Stage.COMPILE and report.verdict is not Verdict.NOT_RUN and not report.explained
    ]
