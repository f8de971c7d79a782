"""The compile stage: compile every launch of every bench point and test for every architecture, without a GPU.

`python -m harness.inside.compile.stage job.json` supervises one worker per architecture, at most two more than there are cores at a time. A
worker runs the package's launches under `fake_gpu.driver.pretended_device`. If a compiler aborts, only one case is lost, and it is
reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.inside.codegen.jit_recorder import Recorder
from harness.inside.compile.backends import without_backend
from harness.inside.compile.candidates import Candidates, Discarded, key
from harness.inside.compile.cases import Cases, fails_here_only, mostly_run, never_loaded, never_ran, never_reached
from harness.inside.compile.expected import Expected, noticed
from harness.inside.compile.pack import pack
from harness.inside.environment.package_path import package_folders, python_path, root_of
from harness.inside.environment.temporary_home import temporary_home
from harness.inside.imports.extensions import enter_package
from harness.inside.process import sealing
from harness.inside.process.audit import Event
from harness.inside.process.events import emit
from harness.inside.process.exceptions import doubted
from harness.inside.process.journal import Journal
from harness.inside.process.not_run import with_reasons
from harness.inside.process.remedies import hint_of, missing_of
from harness.inside.process.supervise import supervise
from harness.inside.process.workers import answered, as_stage, forked, time_is_up
from harness.inside.test.settings import files_with_tests
from harness.records import HOST_CODE, Architecture, CompiledKernel, Job, NotRun, Stage, StageReport, Verdict, to_json, worst


def compile_all(job: Job) -> StageReport:
    """Supervise the workers and write `compile/kernels.jsonl`."""
    folder = Path(job.output) / Stage.COMPILE.value
    rows: list[CompiledKernel] = []
    wrong: dict[str, None] = {}
    unseen = {"deselected": 0, "left_out": 0}  # tests, the same for every architecture
    cases = {card.name: Cases() for card in job.architectures}
    notes: dict[str, None] = {}
    discarded, expected = Discarded(), Expected()
    lock, stop = threading.Lock(), threading.Event()
    sealing.remove(folder / "kernels.jsonl")  # from an interrupted run; the journals hold everything

    def keep(row: CompiledKernel) -> None:
        rows.append(row)
        sealing.append(folder / "kernels.jsonl", to_json(row))

    def report() -> StageReport:
        """Only now is every launch known, and with it which candidates an autotuner discards, and which errors tests expect."""
        before = list(rows)
        rows[:] = (fails_here_only(discarded.mark(expected.mark(row)), cases) for row in _once(rows))
        if rows != before:
            sealing.replace(folder / "kernels.jsonl", "".join(f"{to_json(row)}\n" for row in rows))
        return _report(job, rows, (wrong, notes), unseen, list(cases.values()))

    def run(card: Architecture) -> None:
        fresh = _fresh_rows()

        def on_event(event: Event) -> None:
            with lock:
                if event["event"] == "note":
                    notes[event["text"]] = None
                if event["event"] == "candidates":
                    discarded.note(event)
                if event["event"] == "expected":
                    expected.note(event)
                if event["event"] == "wrong":
                    wrong[f"{card.name}: {event['reason']}"] = None
                if event["event"] == "collected":
                    unseen.update({key: max(known, int(event.get(key, 0))) for key, known in unseen.items()})
                cases[card.name].note(event)
                for row in fresh(event, card):
                    if row.architecture != card.name:
                        wrong[f"{card.name}: a kernel was reported for {row.architecture}"] = None
                    keep(row)
                    emit("case", stage="compile", id=f"{row.function} for {card.name}", done=len(rows), total=None)

        start = forked(work, job, card)
        journal = Journal(folder / f"journal-{card.name}.jsonl")
        for death in supervise(start, journal, job.test_limit_s, folder / f"log-{card.name}.txt", on_event, stop):
            if death.case is None:
                on_event({"event": "death", "id": "(worker)", "verdict": death.verdict.value, "reason": death.reason})

    # Two more workers than cores. With fewer, the last architectures start late and leave a core idle at the end. With many more, the
    # longest one gets too small a share and finishes alone.
    with ThreadPoolExecutor(job.workers or (os.cpu_count() or 1) + 2) as pool:
        try:
            if missing := answered(without_backend, job.architectures):
                sealing.replace(folder / "kernels.jsonl", "")
                return _no_backend(missing)
            list(pool.map(run, job.architectures))
        except KeyboardInterrupt:  # also while the first process starts, which takes a while on a busy machine
            # Leaving the `with` block waits for the threads, which receive no signal.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            up = time_is_up()
            files = files_with_tests(job) if "test" in job.launches else []
            for card in job.architectures:
                benches = never_loaded(cases[card.name], job) if "bench" in job.launches else []
                for identity in (*benches, *never_reached(card.name, cases, files)):
                    keep(never_ran(card.name, identity, job, up))
            ended = report()
            if up:
                sealing.close(ended, job)  # the inside adds that the time was up
            raise
    return report()


def _no_backend(missing: Iterable[str]) -> StageReport:
    return StageReport(
        Stage.COMPILE,
        Verdict.INFRA,
        reason=f"the Triton here has no backend for {', '.join(missing)}",
        hint="Install the vendor's Triton where this target runs, or use an image that has it. Triton finds a backend as an installed "
        "package with an entry point `triton.backends`.",
    )


def _report(
    job: Job, rows: list[CompiledKernel], told: tuple[Iterable[str], Iterable[str]], unseen: dict[str, int], cases: list[Cases]
) -> StageReport:
    wrong, notes = told
    counts = {verdict.value: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    counts = {verdict: count for verdict, count in counts.items() if count}
    # A point whose host code needs data says nothing about the kernels that were compiled.
    verdict = worst([row.verdict for row in rows if row.verdict is not Verdict.NOT_RUN])
    reason = _reason(rows, verdict) if rows else f"nothing that launches a Triton kernel was found ({', '.join(job.launches)})"
    hint = (
        hint_of((row.reason for row in rows), root_of(job))
        if rows
        else f"Looked for pytest's files, and for benches called {', '.join(job.benches)}."
    )
    if lacking := missing_of((row.reason for row in rows if row.verdict is not Verdict.PASSED), root_of(job)):
        notes = (lacking, *notes)
    if left_out := job.not_compiled_for:
        compiled_for = ", ".join(card.name for card in job.architectures)
        notes = (f"--quick compiled for {compiled_for} only, and left out {', '.join(left_out)}", *notes)
    report = StageReport(Stage.COMPILE, verdict, reason=reason, hint=hint, counts=counts, notes=tuple(notes), **unseen)  # type: ignore[arg-type]
    gap = next((f"{row.origin}: {row.reason}" for row in rows if row.not_run is NotRun.NOT_PRETENDED), "")
    report = with_reasons(report, Counter(row.not_run for row in rows if row.not_run), "launch", gap)
    return doubted(mostly_run(report, cases), wrong)


def _fresh_rows() -> Callable[[Event, Architecture], list[CompiledKernel]]:
    """Return `_rows` without duplicates: a new worker starts empty and compiles again what an earlier one compiled."""
    earlier: set[str] = set()
    current: set[str] = set()

    def rows(event: Event, card: Architecture) -> list[CompiledKernel]:
        if event["event"] == "worker":
            earlier.update(current)
        found = [(row, to_json(dataclasses.replace(row, origin="", seconds=0.0))) for row in _rows(event, card)]
        current.update(identity for row, identity in found if row.function != HOST_CODE)
        return [row for row, identity in found if identity not in earlier]

    return rows


def _once(rows: list[CompiledKernel]) -> list[CompiledKernel]:
    """Return the rows without those of kernels that compile and were later refused by a launch: these have a row that says so."""

    def same(row: CompiledKernel) -> str:
        return key(dataclasses.replace(row, verdict=Verdict.PASSED, reason=""))

    refused = {same(row) for row in rows if row.verdict is Verdict.FAILED and row.binary_hash}
    return [row for row in rows if row.verdict is not Verdict.PASSED or same(row) not in refused] if refused else rows


def _reason(rows: list[CompiledKernel], verdict: Verdict) -> str:
    """Return the reason of the first row with the stage's verdict; if nothing failed, that of the first row that could not run."""
    wrong = [row for row in rows if row.verdict is not Verdict.PASSED and not row.is_discarded]
    first = next((row for row in wrong if row.verdict is verdict), wrong[0] if wrong else None)
    return f"{first.function} for {first.architecture}: {first.reason}"[:500] if first else ""


def _rows(event: Event, card: Architecture) -> list[CompiledKernel]:
    """Return the row of an event: a compiled kernel, a point whose host code could not run, or a case that killed its worker."""
    if event["event"] == "kernel":
        return [CompiledKernel(**{**event["row"], "verdict": Verdict(event["row"]["verdict"])})]
    if event["event"] == "death" or (event["event"] == "finish" and event.get("reason")):
        kernel = event.get("kernel") or event["id"].split("/")[0].split()[0]
        verdict = Verdict(event["verdict"])
        why = NotRun(event["not_run"]) if event.get("not_run") else None
        return [CompiledKernel(kernel, HOST_CODE, card.name, verdict, origin=event["id"], reason=event["reason"], not_run=why)]
    return []


def work(job: Job, card: Architecture) -> None:
    """Run the package's launches once on a fake `card`."""
    from harness.inside.compile.launches import launch_benches, launch_tests
    from harness.inside.compile.scripts import launch_scripts
    from harness.inside.fake_gpu.driver import pretended_device
    from harness.inside.scripts.hooks import Hooks

    # Rows lost to a power cut are compiled already and found in the cache. So do not wait for the disk at each of 5,000 points.
    journal = Journal.from_environment(durable=("end",))
    recorder = Recorder(card, journal, job.gates, root_of(job))
    enter_package(package_folders(job), first=python_path(job))
    strict = job.gates is not None and job.gates.candidates == "all"
    followed = contextlib.nullcontext() if strict else Candidates(journal).followed(recorder)
    hooks = Hooks(job.quick)
    with pretended_device(card, recorder.load, job.torch_devices), followed, contextlib.ExitStack() as undo:
        if job.bench_scripts:
            hooks.install(undo)  # on top of what a pretended device measures with
        if "bench" in job.launches:
            launch_benches(job, journal, recorder)
            launch_scripts(job, hooks, journal, recorder)
        if "test" in job.launches:
            with noticed(recorder, journal):
                launch_tests(job, journal, recorder)
    journal.write("end")


def main() -> None:
    """Run the stage's process."""
    job = Job.load(Path(sys.argv[1]))
    sealing.shut()
    folder = Path(job.output) / Stage.COMPILE.value
    with temporary_home(folder):
        report = compile_all(job)
        pack(job)
    sealing.close(report, job)


if __name__ == "__main__":
    as_stage(main)
