"""The test stage: run pytest over the kernel package, with a result for every test, whatever happens to the process.

Run as `python -m harness.inside.test.stage job.json`. A crash or hang is attributed to its test, and the others still run
(`process/supervise.py`). This process writes the JUnit file from the journal, so it does not matter how pytest died.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from harness.inside.environment.compiler_imports import tell_workers
from harness.inside.environment.package_path import root_of
from harness.inside.environment.temporary_home import temporary_home
from harness.inside.environment.triton_cache import compiled_kernels
from harness.inside.multi_gpu.cards import cards
from harness.inside.multi_gpu.seats import regroup, seats_for_tests
from harness.inside.multi_gpu.share import share
from harness.inside.process import sealing
from harness.inside.process.exceptions import doubted
from harness.inside.process.journal import Journal
from harness.inside.process.not_run import with_reasons
from harness.inside.process.remedies import hint_of, missing_of
from harness.inside.process.supervise import LOST_DEVICE, Death, supervise
from harness.inside.process.workers import as_stage, spawned, time_is_up
from harness.inside.test.bench_modules import BENCHES_VARIABLE
from harness.inside.test.notes import again_alone, executed_by_emulator, refusal, replaced_compiler
from harness.inside.test.pytest_plugin import (
    AUTOTUNE_VARIABLE,
    CARD_VARIABLE,
    DEVICES_VARIABLE,
    EMULATED_VARIABLE,
    NARROWED_VARIABLE,
    QUICK_VARIABLE,
    SANITIZE_VARIABLE,
)
from harness.inside.test.results import Results
from harness.inside.test.settings import files_with_tests, is_narrowed, pytest_options, test_paths
from harness.records import (
    HARMLESS,
    Job,
    NotRun,
    Stage,
    StageReport,
    Verdict,
    to_json,
    worst,
)
from harness.records.selection.chosen import RAN_NO_TEST


def verify(job: Job) -> StageReport:
    """Run the package's tests and write `test/junit.xml`."""
    folder = Path(job.output) / Stage.TEST.value
    results = Results(job, folder)
    # Capture only Python's streams. What a GPU's runtime prints before it aborts must reach the log.
    options = ["--capture=sys", *pytest_options(job, folder)]
    command = [sys.executable, "-m", "pytest", "-p", "harness.inside.test.pytest_plugin", *options, *test_paths(job)]
    os.environ[BENCHES_VARIABLE] = os.pathsep.join(job.benches)
    os.environ[DEVICES_VARIABLE] = os.pathsep.join(job.torch_devices)
    os.environ[EMULATED_VARIABLE] = str(job.test_limit_s) if job.emulate else ""
    if card := job.emulate or job.interpret_as or next(iter(job.architectures), None):
        os.environ[CARD_VARIABLE] = to_json(card)
    os.environ[QUICK_VARIABLE] = "1" if job.quick else ""
    os.environ[SANITIZE_VARIABLE] = "1" if job.sanitizes else ""
    os.environ[AUTOTUNE_VARIABLE] = "1" if job.autotune == "all" else ""
    os.environ[NARROWED_VARIABLE] = "1" if is_narrowed(job) else ""
    tell_workers(job)
    why, kind, deaths, ended = "the run was stopped before this test", NotRun.STOPPED, list[Death](), False
    try:
        deaths = _run(job, folder, command, results)
        if deaths and deaths[-1].case is None:
            why = f"pytest stopped early: {deaths[-1].reason}"
        else:
            ended = True
            results.check_complete()
    except KeyboardInterrupt:
        if time_is_up():
            why, kind = "the time was up before this test", NotRun.TIME_UP
        raise
    finally:
        results.lease.give_back()
        results.never_ran(why, kind, ended)
        results.write()
        if kind is NotRun.TIME_UP:
            sealing.close(_report(results, deaths, folder), job)  # the inside adds that the time was up
    return _report(results, deaths, folder)


def _run(job: Job, folder: Path, command: list[str], results: Results) -> list[Death]:
    """Run one pytest over everything, or several that share the files."""
    seats = seats_for_tests(job, cards(job), len(files_with_tests(job)))
    regroup(folder, "journal.jsonl", seats)
    if seats:
        results.several = True
        shared = [*command[:3], "-p", "harness.inside.multi_gpu.pytest_plugin", *command[3:]]
        deaths = share(job, Stage.TEST, seats, shared, "journal.jsonl", results.on_event, results.lease)
        results.put_in_order()
        return deaths
    journal = Journal(folder / "journal.jsonl")
    return supervise(spawned(command), journal, job.test_limit_s, folder / "log.txt", results.on_event, faults=job.device_faults)


_PYTEST_IS_WRONG = (
    "Its options, its settings or a plugin do not fit this pytest. --pytest-args '-p no:NAME' runs without a plugin, "
    "--pytest-args '-o addopts=' without the options of the package's settings."
)


def _report(results: Results, deaths: list[Death], folder: Path) -> StageReport:
    cases = list(results.cases.values())
    counts = {verdict.value: sum(case.verdict is verdict for case in cases) for verdict in Verdict}
    counts = {verdict: count for verdict, count in counts.items() if count}
    ran = [case for case in cases if case.verdict is not Verdict.NOT_RUN]
    tests = [case for case in cases if case.not_run is not NotRun.EMPTY]
    verdict = worst([Verdict.PASSED if case.verdict is Verdict.XFAILED else case.verdict for case in ran])
    bad = [case for case in ran if case.verdict not in HARMLESS]
    reason = "" if ran else "every test was skipped" if tests else "no test was found"
    if not tests and results.stopped:
        reason = f"no test was found; pytest stopped early: {results.stopped}"
    if bad:
        reason = f"{bad[0].id}: {next(iter(bad[0].message.splitlines()), '')}"
    hint = hint_of((case.message for case in bad), root_of(results.job))
    if not tests:
        hint = "pytest collects files called test_*.py below the kernel folder; see test/log.txt."
        if results.deselected:
            hint = f"There are tests ({results.deselected}), and the options that choose tests left out each of them."
    elif any(case.verdict is Verdict.ERROR and "::" not in case.id for case in bad):
        usual = "A module does not import: the environment lacks what it needs, or its code is broken."
        hint = f"{hint or usual} Its traceback is in test/log.txt."
    started = not deaths or deaths[-1].case is not None
    refused = refusal(folder / "log.txt") if not results.announced and not ran else ""
    if refused and not started:
        verdict, reason, hint = Verdict.ERROR, f"pytest did not start: {refused}", _PYTEST_IS_WRONG
    elif not started:
        verdict, reason, hint = deaths[-1].verdict, f"pytest: {deaths[-1].reason}", f"The end of {folder.name}/log.txt says why."
        if verdict is Verdict.INFRA:
            reason, hint = deaths[-1].reason, LOST_DEVICE
    elif refused:
        verdict, reason, hint = (
            Verdict.ERROR,
            f"{RAN_NO_TEST}{refused}",
            "An option for pytest is wrong, such as the expression of -k.",
        )
    job = results.job
    notes = [*results.notes, *again_alone(len(results.postponed)), *executed_by_emulator(results.job, cases), *replaced_compiler(cases)]
    report = StageReport(
        Stage.TEST,
        verdict,
        reason=reason[:500],
        hint=hint,
        counts=counts,
        deselected=results.deselected,
        left_out=results.left_out,
        used_s=round(sum(used.seconds for used in results.used.values()), 3) if job.needs_card else None,
        compiled_here=compiled_kernels() - results.compiled_before,
        notes=tuple(filter(None, [missing_of((case.message for case in bad), root_of(results.job)), *notes])),
    )
    gap = next((f"{case.id}: {case.message}" for case in cases if case.not_run is NotRun.NOT_PRETENDED), "")
    return doubted(with_reasons(report, Counter(case.not_run for case in cases if case.not_run), "test", gap), results.wrong)


def main() -> None:
    """Run the stage's process."""
    job = Job.load(Path(sys.argv[1]))
    sealing.shut()
    folder = Path(job.output) / Stage.TEST.value
    with nullcontext() if job.needs_card else temporary_home(folder, compiles=False):
        sealing.close(verify(job), job)


if __name__ == "__main__":
    as_stage(main)
