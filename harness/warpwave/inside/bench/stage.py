"""The bench stage: measure every point of every `perf_report` mark on the device, and write one JSON line per point.

`python -m warpwave.inside.bench.stage job.json` supervises. With `--worker`, it is the process that measures. A point that crashes or hangs
gets a row with a verdict, and a new process continues the sweep.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
import traceback
import unittest
from pathlib import Path

from warpwave.inside.bench.ceilings import Conditions, Watch, copy_ceiling, product_ceilings
from warpwave.inside.bench.results import Sink, fields_of, finish, finite, verdict_of, with_timing
from warpwave.inside.bench.scripts import measure_scripts
from warpwave.inside.bench.timing import Rounds, Rule, Timer
from warpwave.inside.benchmarks import Point, load_points, one_of_each_first
from warpwave.inside.codegen.recorder import Recorder
from warpwave.inside.environment import compiled_kernels, enter_links, package_folders, python_path, root_of
from warpwave.inside.facts.device import ask_afresh, card_here
from warpwave.inside.imports import enter_package
from warpwave.inside.multi_gpu.ledger import cards, is_shared
from warpwave.inside.multi_gpu.share import claimed_cases, regroup, seats_of, share
from warpwave.inside.precompile import ahead, torch_ahead
from warpwave.inside.process import forks, sealing
from warpwave.inside.process.journal import Journal, settle
from warpwave.inside.process.lease import Lease, await_card, await_card_at_first_use
from warpwave.inside.process.outcomes import describe
from warpwave.inside.process.supervise import Death, supervise
from warpwave.inside.process.workers import as_stage, budget_is_up, spawned
from warpwave.inside.scripts.hooks import Hooks
from warpwave.inside.scripts.script import benches_of, scripts_of
from warpwave.records import Architecture, Job, Sample, Stage, StageReport, Verdict


def measure(job: Job) -> StageReport:
    """Supervise the sweep, and write `bench/samples.jsonl`, `bench/ceilings.jsonl` and `bench/kernels.jsonl` (what the JIT compiled).

    In an A/A run, repeat the whole sweep in another process and write `bench/again.jsonl`, just as a comparison of two runs measures.
    """
    folder = Path(job.output) / Stage.BENCH.value
    benches, scripts = benches_of(job), scripts_of(job)
    if not benches and not scripts:
        looked = ", ".join([*job.what.benches, *(script.pattern for script in job.what.bench_scripts)])
        return StageReport(Stage.BENCH, Verdict.NOT_RUN, reason="no bench was found", hint=f"Looked for {looked}.")
    lease, compiled = Lease(job, Stage.BENCH), compiled_kernels()
    torch_ahead.name_folder(job)
    try:
        if benches:
            ahead.start(job)
        report = _sweep(job, folder, "samples.jsonl", "journal.jsonl", lease)
        second = _sweep(job, folder, "again.jsonl", "journal-again.jsonl", lease) if job.what.again and not report.out_of_time else None
    finally:
        lease.give_back()
        torch_ahead.remove(job)
    report = dataclasses.replace(report, compiled_here=compiled_kernels() - compiled)
    if second is None:
        return report
    report = dataclasses.replace(report, used_s=(report.used_s or 0.0) + (second.used_s or 0.0))
    return report if second.verdict.severity <= report.verdict.severity else dataclasses.replace(report, reason=f"A/A: {second.reason}")


def _sweep(job: Job, folder: Path, name: str, journal: str, lease: Lease) -> StageReport:
    """Measure every point once, with one worker or one per GPU, and write a line each to the file `name`.

    The report says for how many seconds a device was busy with what was timed.
    """
    sink = Sink(folder, name, lease)
    command = [sys.executable, "-m", "warpwave.inside.bench.stage", sys.argv[1], "--worker"]
    several = cards(job)
    regroup(folder, journal, seats_of(several))
    deaths: list[Death] = []
    try:
        if several:
            keep = sink.first and bool(job.what.again)  # a second sweep needs all cards again
            deaths = share(job, Stage.BENCH, seats_of(several), command, journal, sink.on_event, lease, keep)
        else:
            log, path = folder / "log.txt", folder / journal
            deaths = supervise(spawned(command), Journal(path), job.limits.test_s, log, sink.on_event, faults=job.device_faults)
    except KeyboardInterrupt:
        if not budget_is_up(job):
            raise
        sink.leave_out()
    return sink.report(deaths)


def work(job: Job) -> None:
    """Measure everything that is not yet in the journal."""
    import triton.testing

    journal = Journal.from_environment()
    enter_links(job)
    enter_package(package_folders(job), first=python_path(job))
    if not settle(journal, ask_afresh):
        return
    done = journal.done()
    torch_ahead.use(job)
    await_card_at_first_use(journal)
    timer = Timer.when_used(job.what.quick, Rule(job.what.precision), lambda: hidden_cache(job, card_here(job.architectures)))
    triton.testing.do_bench = timer.do_bench
    hooks = Hooks(job.what.quick)
    if job.what.bench_scripts:
        hooks.install()  # before a module of the package takes what it measures with
    todo: list[Point] = []
    for path in benches_of(job):
        todo += load_points(journal, path, job, done)
    todo = one_of_each_first(todo) if job.limits.budget else todo
    ahead.wait()
    await_card(journal)
    timer.begin()
    # Rows like those of the compile stage, but from real launches. They show whether both compile the same code.
    recorder = Recorder(card_here(job.architectures), journal, root=root_of(job))
    journal.write("collected", points={point.id: fields_of(point) for point in todo})
    copy_ceiling(journal, timer, "before", done)
    watch = Watch(timer.device)
    left = itertools.groupby((point for point in todo if point.id not in done), key=lambda point: point.case)
    for together in claimed_cases(job, journal, todo) if is_shared() else (list(group) for _, group in left):
        _measure_in_turns(together, timer, watch, recorder, journal)
    measure_scripts(job, hooks, timer, watch, recorder, journal, _measure_in_turns)
    copy_ceiling(journal, timer, "after", done)
    product_ceilings(journal, timer, {point.unit for point in todo}, done)
    journal.write("end")


def hidden_cache(job: Job, card: Architecture) -> int | None:
    """Return the size of caches that this GPU's driver does not report, in bytes; None if the job does not know the GPU."""
    return next((known.cache_bytes for known in job.architectures if known.name == card.name), None)


def _measure_in_turns(together: list[Point], timer: Timer, watch: Watch, recorder: Recorder, journal: Journal) -> None:
    """Measure the providers of one case in turns, a round each, until each has enough."""
    series = {point.id: Rounds(timer.rule) for point in together}
    before: dict[str, Conditions] = {}
    while together:
        for point in list(together):
            journal.write("turn" if point.id in before else "start", id=point.id)
            recorder.kernel, recorder.origin = point.kernel, point.id
            if point.id not in before:
                before[point.id] = watch.look()
            timer.turn(series[point.id])
            sample = _measure(point, timer, series[point.id])
            if sample is None:
                continue
            together.remove(point)
            if sample.verdict is Verdict.PASSED:
                sample = dataclasses.replace(sample, weak=watch.weakness(before[point.id], watch.look()))
            finish(journal, point.id, sample, timed_s=timer.busy_s())
    timer.series = None


def _measure(point: Point, timer: Timer, series: Rounds | None = None) -> Sample | None:
    """Call the author's function once under the timer. Return None if the series needs another round."""
    base = Sample(**fields_of(point), verdict=Verdict.PASSED)
    try:
        returned = point.run()
        if series is not None and not series.enough:
            return None
        value, low, high = (*returned, None, None)[:3] if isinstance(returned, (tuple, list)) else (returned, None, None)
        value = None if value is None else float(value)
    except unittest.SkipTest as skipped:
        return dataclasses.replace(base, verdict=Verdict.NOT_RUN, reason=str(skipped) or "skipped")
    except Exception as error:
        traceback.print_exc()
        return dataclasses.replace(base, verdict=verdict_of(error), reason=describe(error))
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return dataclasses.replace(base, verdict=Verdict.INVALID, reason=f"the benchmark returned {returned!r}")
    sample = dataclasses.replace(base, value=value, low=finite(low), high=finite(high))
    return sample if timer.last is None else with_timing(sample, timer.last)


def main() -> None:
    """Run the stage's process, or its worker."""
    job = Job.load(Path(sys.argv[1]))
    if "--worker" in sys.argv:
        work(job)
        sys.stdout.flush()
        sys.stderr.flush()
        # The card is held until this process is gone, and Python would take seconds to end it. Everything is written.
        os._exit(0)
    forks.shut()
    started = time.monotonic()
    report = dataclasses.replace(measure(job), seconds=time.monotonic() - started)
    sealing.close(report, job)


if __name__ == "__main__":
    as_stage(main)
