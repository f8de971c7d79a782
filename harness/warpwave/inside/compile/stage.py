"""The compile stage: compile every launch of every bench point and test for every architecture, without a GPU.

`python -m warpwave.inside.compile.stage job.json` supervises one worker per architecture, at most two more than there are cores at a time.
A worker runs the package's launches under `fake_gpu.driver.pretended_device`. If a compiler aborts, only one case is lost, and it is
reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import unittest.case
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from warpwave.inside.benchmarks import loading
from warpwave.inside.codegen.recorder import Recorder
from warpwave.inside.compile.candidates import Candidates, Discarded, key, same
from warpwave.inside.environment import enter_links, package_folders, python_path, root_of, temporary_home
from warpwave.inside.handed_over import pack
from warpwave.inside.imports import enter_package
from warpwave.inside.process import forks, sealing
from warpwave.inside.process.journal import Event, Journal, emit
from warpwave.inside.process.outcomes import doubted, few, hint_of, missing_of, with_reasons
from warpwave.inside.process.supervise import WITHOUT_CARD, supervise
from warpwave.inside.process.workers import answered, as_stage, budget_is_up, forked, is_last, report_undisturbed, time_is_up
from warpwave.inside.scripts.script import benches_of, how_to_run_scripts
from warpwave.inside.test.budget import LONGER_BUDGET, MOST_REACHED, Pace, by_function, function_of
from warpwave.inside.test.settings import files_with_tests
from warpwave.records import (
    BUDGET_UP,
    BY_TORCH,
    HOST_CODE,
    MOSTLY_UNSEEN,
    RAISES,
    REFUSED_ON,
    RUNS_ON,
    Architecture,
    CompiledKernel,
    Job,
    NotRun,
    Stage,
    StageReport,
    Verdict,
    to_json,
    worst,
)
from warpwave.records.selection import kernel_of

# Which architectures Triton can compile for. Read in a process that has imported Triton; the stage's own never does.


def without_backend(cards: Sequence[Architecture]) -> list[str]:
    """Return the architectures that no installed backend of Triton compiles for: each launch would fail for the same reason."""
    try:
        from triton.backends import backends
        from triton.backends.compiler import GPUTarget
    except ImportError:  # each case says so
        return []

    def is_known(card: Architecture) -> bool:
        target = GPUTarget(card.backend, card.arch, card.warp_size)
        return any(backend.compiler.supports_target(target) for backend in backends.values())

    return [f"{card.name} ({card.backend})" for card in cards if not is_known(card)]


# How the tests and points of the compile stage ended, each architecture by itself: what was never reached, and whether most was seen.

# What only the package's code raises, whatever a card answers: a name that it lacks, and a string that its dict does not have.
_BY_PACKAGE = ("KeyError: '", 'KeyError: "', "NameError: ", "UnboundLocalError: ")


class Cases:
    """The tests and points of one architecture: which were announced, and how those ended that did."""

    def __init__(self) -> None:
        self.announced: dict[str, None] = {}
        self.ended: dict[str, NotRun | None] = {}
        self.by_package: set[str] = set()  # those that the package's own code ended, for no pretended answer
        self.loaded: set[str] = set()  # benches
        self.cut_short: dict[str, float] = {}  # tests that were ended so that others had a turn, and the time that they had
        self.pace, self.left = Pace(), Counter[str]()  # of tests; what a quick run leaves out, by function

    def note(self, event: Event) -> None:
        """Take one journal event."""
        self.pace.note(event)
        if event["event"] == "collected":
            self.announced.update(dict.fromkeys(event.get("ids", ())))
            self.left |= Counter(event.get("left", {}))
        elif "unfinished" in event:
            self.cut_short[event["id"]] = max(float(event["unfinished"]), self.cut_short.get(event["id"], 0.0))
        elif event["event"] == "ready":
            self.loaded.add(event["id"])
        elif event["event"] in ("finish", "death"):
            # A process that died has not run its case to the end, and gives no other reason.
            why = event.get("not_run") or (NotRun.RAISED if event["event"] == "death" or event.get("reason") else None)
            self.ended[event["id"]] = NotRun(why) if why else None
            if event.get("by_package"):
                self.by_package.add(event["id"])
            self.cut_short.pop(event["id"], None)


def never_reached(hardware: str, cases: Mapping[str, Cases], files: Iterable[str] = ()) -> list[str]:
    """Return the tests that did not end on an architecture, which `cases` has as reports show it. It may not have come to collect them;
    another one has.

    If none has, tests are not known, and `files` stand for those in them.
    """
    known = dict.fromkeys(identity for each in cases.values() for identity in each.announced) or dict.fromkeys(files)
    return [identity for identity in known if identity not in cases[hardware].ended]


def with_its_fault(row: CompiledKernel, cases: Mapping[str, Cases]) -> CompiledKernel:
    """Return the row; as a failure, if its test or point raised, or ended its process, on this architecture and ran to its end on another.

    What runs on one of them is no gap of what is pretended. torch's own refusals are left as they are: they may be about missing data.
    An exception that no data decides counts as well if the other went on to where data decides. A benchmark that its own code ends on
    every architecture fails, too: no later stage without a card runs it. The test stage says which tests fail.
    """
    raised = row.not_run is NotRun.RAISED and not row.reason.endswith(BY_TORCH)
    died = row.function == HOST_CODE and row.verdict is Verdict.CRASHED
    if not (raised or died) or row.origin not in cases[row.hardware].ended:
        return row
    ended = {name: each.ended[row.origin] for name, each in cases.items() if row.origin in each.ended}
    there = [name for name, why in ended.items() if why in (None, NotRun.EMPTY)]
    until = ""
    if not there and row.reason.startswith(_BY_PACKAGE):
        there, until = [name for name, why in ended.items() if why is NotRun.DATA], " until data decides"
    kind, colon, words = row.reason.partition(": ")
    if not there and all(row.origin in each.by_package and row.origin not in each.announced for each in cases.values()):
        where = "every architecture" if len(cases) > 2 else " and ".join(cases)
        return dataclasses.replace(row, verdict=Verdict.FAILED, not_run=None, reason=f"{RAISES} {kind} on {where}{colon}{words}")
    if not there:
        return row
    if kind == "ScriptExit":
        how = f"on {row.hardware} {words}"
    else:
        how = f"raises {kind} on {row.hardware}{colon}{words}" if raised else f"on {row.hardware} {row.reason}"
    reason = f"{RUNS_ON} {few(there)}{until} and {how}"
    return dataclasses.replace(row, verdict=Verdict.FAILED if raised else row.verdict, not_run=None, reason=reason)


def share_done(cases: Collection[Cases]) -> float | None:
    """Return the share of the tests, on all architectures, that ended. None before they are collected. Benches come before them."""
    total = max((len(each.announced) for each in cases), default=0) * len(cases)
    return sum(len(each.ended.keys() & each.announced.keys()) for each in cases) / total if total else None


def never_loaded(cases: Cases, job: Job) -> list[str]:
    """Return the benches that an architecture has not come to, or was loading."""
    known, root = cases.loaded | cases.ended.keys(), Path(job.kernels)
    return [path.relative_to(root).as_posix() for path in benches_of(job) if loading(path, job) not in known]


def never_ran(card: Architecture, identity: str, job: Job, up: bool) -> CompiledKernel:
    """Return the row of a test that did not end, because the time was `up` or somebody stopped the run."""
    why = "the time was up before this test" if up else "the run was stopped before this test"
    kernel = kernel_of(identity.partition("::")[0], job.declared.names)
    kind = NotRun.TIME_UP if up else NotRun.STOPPED
    return CompiledKernel(kernel, HOST_CODE, card.name, Verdict.NOT_RUN, origin=identity, reason=why, not_run=kind, card=card.card)


def mostly_run(report: StageReport, cases: list[Cases]) -> StageReport:
    """Return the report with a note if fewer than half of the cases ran to their end: kernels that nobody launched are not checked."""
    counted = Counter(why for each in cases for why in each.ended.values() if why not in (NotRun.SKIPPED, NotRun.XFAILED, NotRun.EMPTY))
    whole, total = counted[None], counted.total()
    if report.verdict is not Verdict.PASSED or 2 * whole >= total:
        return report
    note = f"{MOSTLY_UNSEEN} {whole} of {total} tests and points ran to their end, so most launches were not seen and not compiled"
    return dataclasses.replace(report, notes=(note, *report.notes))


# Errors of the compiler that a test expects: `with pytest.raises(CompilationError):` around a launch. On a card, such a test passes.
#
# The worker notes in its journal which rows a test caught so. Errors that other code catches stay failures: it may only hide them.


@contextlib.contextmanager
def noticed(recorder: Recorder, journal: Journal) -> Iterator[None]:
    """Note each refused kernel whose error pytest or unittest catches."""

    def leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(context: Any, kind: Any, error: Any, trace: Any) -> Any:
            caught = leave(context, kind, error, trace)
            if caught and recorder.refused is not None and recorder.refused[0] in (error, *_behind(error)):
                journal.write("expected", row=_name(recorder.refused[1]))
            return caught

        return wrapped

    with contextlib.ExitStack() as undo:
        owners: tuple[Any, ...] = (type(pytest.raises(KeyError)), unittest.case._AssertRaisesContext)  # type: ignore[attr-defined]
        for owner in owners:
            undo.callback(setattr, owner, "__exit__", owner.__exit__)
            owner.__exit__ = leaving(owner.__exit__)
        yield


def _as_expected(row: CompiledKernel, expected: Container[str]) -> CompiledKernel:
    """Return the row; as one that its author skips, if a test expects that it does not compile."""
    if row.verdict is not Verdict.FAILED or _name(row) not in expected:
        return row
    return dataclasses.replace(row, verdict=Verdict.NOT_RUN, not_run=NotRun.SKIPPED, reason=f"the test expects this: {row.reason}")


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None and (error := error.__cause__ or error.__context__) is not None:
        yield error


def _name(row: CompiledKernel) -> str:
    return f"{key(row)} {row.origin}"


def compile_all(job: Job) -> StageReport:
    """Supervise the workers and write `compile/kernels.jsonl`."""
    folder = Path(job.output) / Stage.COMPILE.value
    rows: list[CompiledKernel] = []
    wrong: dict[str, None] = {}
    unseen = {"deselected": 0, "left_out": 0}  # tests, the same for every architecture
    cases = {card.shown: Cases() for card in job.architectures}
    notes: dict[str, None] = {}
    discarded, expected = Discarded(), set[str]()  # names of the rows whose errors tests caught
    lock, stop = threading.Lock(), threading.Event()
    sealing.remove(folder / "kernels.jsonl")  # from an interrupted run; the journals hold everything

    def keep(row: CompiledKernel) -> None:
        rows.append(row)
        sealing.append(folder / "kernels.jsonl", to_json(row))

    def report() -> StageReport:
        """Only now is every launch known, and with it which candidates an autotuner discards, and which errors tests expect."""
        report_undisturbed(job)
        before = list(rows)
        rows[:] = (with_its_fault(discarded.mark(_as_expected(row, expected)), cases) for row in _once(rows))
        if rows != before:
            sealing.replace(folder / "kernels.jsonl", "".join(f"{to_json(row)}\n" for row in rows))
        over = budget_is_up(job) or any(note.startswith(BUDGET_UP) for note in notes)
        lost = [path for each in cases.values() for path in never_loaded(each, job)] if over and "bench" in job.what.launches else []
        if lost:
            notes[f"{BUDGET_UP} before these were compiled: {few(list(dict.fromkeys(lost)))}"] = None
        unreached = {name: never_reached(name, cases) if over or job.limits.budget else [] for name in cases}
        if ended := [f"{one} for {name} ({took:.0f} s)" for name, each in cases.items() for one, took in each.cut_short.items()]:
            notes[f"not finished within their share of --budget, and left out: {few(ended)}"] = None
        if over and any(unreached.values()):
            none = few([name for name, each in cases.items() if not (each.announced or each.ended)], 8)
            what = f"anything was compiled for {none}" if none and rows else "all tests were compiled"
            notes[f"{BUDGET_UP} before {what}"] = None
        unseen["left_out"] += len(set().union(*unreached.values()))
        lasts = [each.pace.estimate(each.left + by_function(unreached[name])) for name, each in cases.items()]
        found = _report(job, rows, wrong, notes, unseen, list(cases.values()))
        if over and not rows:
            found = dataclasses.replace(found, reason=f"{BUDGET_UP} before anything was compiled", hint=LONGER_BUDGET)
        cut = job.limits.budget if over or unseen["left_out"] else None
        begun = [card for card in job.architectures if cut and (cases[card.shown].announced or cases[card.shown].ended)]
        reached = Counter[str]()
        for card, each in ((card, cases[card.shown]) for card in begun):
            reached.update({f"{card.name} {name}": 0 for name in [*each.cut_short, *(name for name in each.ended if name.endswith(".py"))]})
            reached.update(f"{card.name} {function_of(name)}" for name in each.ended if "::" in name)
        reached = Counter(dict(reached.most_common(MOST_REACHED)))
        found = dataclasses.replace(found, reached=dict(reached), budget_s=cut.seconds if cut else None)
        return dataclasses.replace(
            found, left_out_s=max(filter(None, lasts), default=None), out_of_time=over or any(each.cut_short for each in cases.values())
        )

    def run(card: Architecture) -> None:
        if is_last(job.limits.budget) and not (folder / f"journal-{card.name}.jsonl").exists():
            notes[f"{BUDGET_UP} before all tests were compiled"] = None
            return
        fresh = _fresh_rows(job.declared.names)

        def on_event(event: Event) -> None:
            with lock:
                kind = event["event"]
                if kind == "note":
                    notes[event["text"]] = None
                elif kind == "candidates":
                    discarded.note(event)
                elif kind == "expected":
                    expected.add(event["row"])
                elif kind == "wrong":
                    wrong[f"{card.name}: {event['reason']}"] = None
                elif kind == "collected":
                    unseen.update({key: max(known, int(event.get(key, 0))) for key, known in unseen.items()})
                cases[card.shown].note(event)
                for row in fresh(event, card):
                    if row.architecture != card.name:
                        wrong[f"{card.name}: a kernel was reported for {row.architecture}"] = None
                    keep(row)
                    emit("case", stage="compile", id=f"{row.function} for {card.name}", done=len(rows), share=share_done(cases.values()))

        start = forked(work, job, card)
        journal = Journal(folder / f"journal-{card.name}.jsonl")
        for death in supervise(start, journal, job.limits.test_s, folder / f"log-{card.name}.txt", on_event, stop, faults=WITHOUT_CARD):
            if death.case is None:
                on_event({"event": "death", "id": "(worker)", "verdict": death.verdict.value, "reason": death.reason})

    # Two more workers than cores. With fewer, the last architectures start late and leave a core idle at the end. With many more, the
    # longest one gets too small a share and finishes alone.
    # With a budget, no more than cores: the first ones, one of each vendor, are done before it is spent on the others.
    several = (os.cpu_count() or 1) + (0 if job.limits.budget else 2)
    with ThreadPoolExecutor(job.workers or max(1, several)) as pool:
        try:
            # What an earlier attempt compiled is read at once, whatever time there is.
            begun = any((folder / f"journal-{card.name}.jsonl").exists() for card in job.architectures)
            if not begun and (missing := answered(without_backend, job.architectures)):
                sealing.replace(folder / "kernels.jsonl", "")
                reason = f"the Triton here has no backend for {', '.join(missing)}"
                hint = "Install the vendor's Triton where this target runs, or use an image that has it. "
                hint += "Triton finds a backend as an installed package with an entry point `triton.backends`."
                return StageReport(Stage.COMPILE, Verdict.INFRA, reason=reason, hint=hint)
            list(pool.map(run, job.architectures))
        except KeyboardInterrupt:  # also while the first process starts, which takes a while on a busy machine
            # Leaving the `with` block waits for the threads, which receive no signal.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if budget_is_up(job):
                return report()
            up = time_is_up()
            files = files_with_tests(job) if "test" in job.what.launches else []
            for card in job.architectures:
                benches = never_loaded(cases[card.shown], job) if "bench" in job.what.launches else []
                for identity in (*benches, *never_reached(card.shown, cases, files)):
                    keep(never_ran(card, identity, job, up))
            ended = report()
            if up:
                sealing.close(ended, job)  # the inside adds that the time was up
            raise
    return report()


def _report(
    job: Job, rows: list[CompiledKernel], wrong: Iterable[str], notes: Iterable[str], unseen: dict[str, int], cases: list[Cases]
) -> StageReport:
    counts = {verdict.value: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    counts = {verdict: count for verdict, count in counts.items() if count}
    # A point whose host code needs data says nothing about the kernels that were compiled.
    verdict = worst([row.verdict for row in rows if row.verdict is not Verdict.NOT_RUN])
    # The first row with the stage's verdict; if nothing failed, the first row that could not run.
    bad = [row for row in rows if row.verdict is not Verdict.PASSED and not row.is_discarded]
    first = next((row for row in bad if row.verdict is verdict), bad[0] if bad else None)
    reason = f"{first.function} for {first.hardware}: {first.reason}"[:500] if first else ""
    hint = hint_of((row.reason for row in rows), root_of(job))
    if not rows:
        reason = f"nothing that launches a Triton kernel was found ({', '.join(job.what.launches)})"
        hint = how_to_run_scripts(job) + f"Looked for pytest's files, and for benches called {', '.join(job.what.benches)}."
    if lacking := missing_of((row.reason for row in rows if row.verdict is not Verdict.PASSED), root_of(job)):
        notes = (lacking, *notes)
    if left_out := job.not_compiled_for:
        compiled_for = ", ".join(card.shown for card in job.architectures)
        by = "--quick" if job.what.quick else "--budget"
        notes = (f"{by} compiled for {compiled_for} only, and left out {', '.join(left_out)}", *notes)
    report = StageReport(Stage.COMPILE, verdict, reason=reason, hint=hint, counts=counts, notes=tuple(notes), **unseen)  # type: ignore[arg-type]
    report = with_reasons(report, Counter(row.not_run for row in rows if row.not_run))
    return doubted(mostly_run(report, cases), wrong)


def _fresh_rows(own: Iterable[str]) -> Callable[[Event, Architecture], list[CompiledKernel]]:
    """Return `_rows` without duplicates: a new worker starts empty and compiles again what an earlier one compiled."""
    earlier: set[str] = set()
    current: set[str] = set()

    def rows(event: Event, card: Architecture) -> list[CompiledKernel]:
        if event["event"] == "worker":
            earlier.update(current)
        found = [(row, key(row)) for row in _rows(event, card, own)]
        current.update(identity for row, identity in found if row.function != HOST_CODE)
        return [row for row, identity in found if identity not in earlier]

    return rows


def _once(rows: list[CompiledKernel]) -> list[CompiledKernel]:
    """Return the rows, of each binary the last one: a launch may be refused, or show what the gates did not know before.

    Several launches may be refused, each for a reason of its own.
    """
    last = {same(row): key(row) for row in rows}
    return [row for row in rows if last[same(row)] == key(row) or REFUSED_ON in row.reason]


def _rows(event: Event, card: Architecture, own: Iterable[str]) -> list[CompiledKernel]:
    """Return the row of an event: a compiled kernel, a point whose host code could not run, or a case that killed its worker.

    If the worker was compiling then, the row is that kernel's: it does not compile.
    """
    if event["event"] == "kernel":
        return [CompiledKernel(**{**event["row"], "verdict": Verdict(event["row"]["verdict"])})]
    if event["event"] == "death" or (event["event"] == "finish" and event.get("reason")):
        kernel = event.get("kernel") or kernel_of(event["id"].partition("::")[0].split()[0], own)
        verdict = Verdict(event["verdict"])
        why = NotRun(event["not_run"]) if event.get("not_run") else None
        told = {"origin": event["id"], "reason": event["reason"], "not_run": why, "card": card.card}
        return [CompiledKernel(kernel, event.get("compiling") or HOST_CODE, card.name, verdict, **told)]
    return []


def work(job: Job, card: Architecture) -> None:
    """Run the package's launches once on a fake `card`."""
    from warpwave.inside.compile.launches import launch_benches, launch_scripts, launch_tests
    from warpwave.inside.fake_gpu.card import pretended_device
    from warpwave.inside.fake_gpu.lanes import first_code_of, lanes_of
    from warpwave.inside.fake_gpu.launches import Launched
    from warpwave.inside.scripts.hooks import Hooks

    # Rows lost to a power cut are compiled already and found in the cache. So do not wait for the disk at each of 5,000 points.
    journal = Journal.from_environment(durable=("end",))
    recorder = Recorder(card, journal, job.what.gates, root_of(job))
    enter_links(job)
    enter_package(package_folders(job), first=python_path(job), root=root_of(job))
    strict = job.what.gates is not None and job.what.gates.candidates == "all"
    followed = contextlib.nullcontext() if strict else Candidates(journal).followed(recorder)
    hooks = Hooks(job.what.quick)

    def launched(source: Any, metadata: Any, grid: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
        Launched.functions[source.name] = None
        if text := first_code_of(source.name, metadata.hash):
            recorder.follow(metadata.hash, lanes_of(text, source.signature, arguments, grid, has_data=False))

    # A home for each architecture: a package may store what it tuned without the name of the architecture. The process of another one would
    # find that, if it came later, and compile something else.
    own_home = temporary_home(Path.home())
    with own_home, pretended_device(card, recorder.load, job.torch_devices, launched), followed, contextlib.ExitStack() as undo:
        if job.what.bench_scripts:
            hooks.install(undo)  # on top of what a pretended device measures with
        if "bench" in job.what.launches:
            launch_benches(job, journal, recorder)
            launch_scripts(job, hooks, journal, recorder)
        if "test" in job.what.launches:
            with noticed(recorder, journal):
                launch_tests(job, journal, recorder)
    journal.write("end")


def main() -> None:
    """Run the stage's process."""
    job = Job.load(Path(sys.argv[1]))
    forks.shut()
    folder = Path(job.output) / Stage.COMPILE.value
    with temporary_home(folder):
        report = compile_all(job)
        pack(job)
    sealing.close(report, job)


if __name__ == "__main__":
    as_stage(main)
