"""How the tests and points of the compile stage ended, each architecture by itself: what was never reached, and whether most was seen."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.inside.benchmarks import loading
from harness.inside.process.audit import Event
from harness.inside.process.exceptions import few
from harness.inside.scripts.script import benches_of
from harness.records import BY_TORCH, HOST_CODE, RUNS_ON, CompiledKernel, Job, NotRun, StageReport, Verdict
from harness.records.selection.package import kernel_of

# What only the package's code raises, whatever a card answers: a name that it lacks, and a string that its dict does not have.
_BY_PACKAGE = ("KeyError: '", 'KeyError: "', "NameError: ", "UnboundLocalError: ")


class Cases:
    """The tests and points of one architecture: which were announced, and how those ended that did."""

    def __init__(self) -> None:
        self.announced: dict[str, None] = {}
        self.ended: dict[str, NotRun | None] = {}
        self.loaded: set[str] = set()  # benches

    def note(self, event: Event) -> None:
        """Take one journal event."""
        if event["event"] == "collected":
            self.announced.update(dict.fromkeys(event.get("ids", ())))
        elif event["event"] == "ready":
            self.loaded.add(event["id"])
        elif event["event"] in ("finish", "death"):
            # A process that died has not run its case to the end, and gives no other reason.
            why = event.get("not_run") or (NotRun.RAISED if event["event"] == "death" or event.get("reason") else None)
            self.ended[event["id"]] = NotRun(why) if why else None


def never_reached(architecture: str, cases: Mapping[str, Cases], files: Iterable[str] = ()) -> list[str]:
    """Return the tests that did not end on an architecture. It may not have come to collect them; another one has.

    If none has, tests are not known, and `files` stand for those in them.
    """
    known = dict.fromkeys(identity for each in cases.values() for identity in each.announced) or dict.fromkeys(files)
    return [identity for identity in known if identity not in cases[architecture].ended]


def fails_here_only(row: CompiledKernel, cases: Mapping[str, Cases]) -> CompiledKernel:
    """Return the row; as a failure, if its test or point raised, or ended its process, on this architecture and ran to its end on another.

    What runs on one of them is no gap of what is pretended. torch's own refusals are left as they are: they may be about missing data.
    An exception that no data decides counts as well if the other went on to where data decides.
    """
    raised = row.not_run is NotRun.RAISED and not row.reason.endswith(BY_TORCH)
    died = row.function == HOST_CODE and row.verdict is Verdict.CRASHED
    if not (raised or died) or row.origin not in cases[row.architecture].ended:
        return row
    ended = {name: each.ended[row.origin] for name, each in cases.items() if row.origin in each.ended}
    there = [name for name, why in ended.items() if why in (None, NotRun.EMPTY)]
    until = ""
    if not there and row.reason.startswith(_BY_PACKAGE):
        there, until = [name for name, why in ended.items() if why is NotRun.DATA], " until data decides"
    if not there:
        return row
    kind, colon, words = row.reason.partition(": ")
    how = f"raises {kind} on {row.architecture}{colon}{words}" if raised else f"on {row.architecture} {row.reason}"
    reason = f"{RUNS_ON} {few(there)}{until} and {how}"
    return dataclasses.replace(row, verdict=Verdict.FAILED if raised else row.verdict, not_run=None, reason=reason)


def never_loaded(cases: Cases, job: Job) -> list[str]:
    """Return the benches that an architecture has not come to, or was loading."""
    known, root = cases.loaded | cases.ended.keys(), Path(job.kernels)
    return [path.relative_to(root).as_posix() for path in benches_of(job) if loading(path, job) not in known]


def never_ran(architecture: str, identity: str, job: Job, up: bool) -> CompiledKernel:
    """Return the row of a test that did not end, because the time was `up` or somebody stopped the run."""
    why = "the time was up before this test" if up else "the run was stopped before this test"
    kernel = kernel_of(identity.partition("::")[0], job.package_names)
    kind = NotRun.TIME_UP if up else NotRun.STOPPED
    return CompiledKernel(kernel, HOST_CODE, architecture, Verdict.NOT_RUN, origin=identity, reason=why, not_run=kind)


def mostly_run(report: StageReport, cases: list[Cases]) -> StageReport:
    """Return the report as incomplete if fewer than half of the cases ran to their end: kernels that nobody launched are not good ones."""
    counted = Counter(why for each in cases for why in each.ended.values() if why not in (NotRun.SKIPPED, NotRun.XFAILED, NotRun.EMPTY))
    whole, total = counted[None], counted.total()
    if report.verdict is not Verdict.PASSED or 2 * whole >= total:
        return report
    reason = f"only {whole} of {total} tests and points ran to their end, so most launches were not seen; {report.reason}"
    hint = "Each row says why. Give the kernels benchmarks whose host code does not depend on data, or run the tests on a card."
    return dataclasses.replace(report, verdict=Verdict.INCOMPLETE, reason=reason[:500], hint=hint)
