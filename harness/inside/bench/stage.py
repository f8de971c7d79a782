"""The bench stage: measure every point of every `perf_report` mark on the device, and write one JSON line per point.

`python -m harness.inside.bench.stage job.json` supervises. With `--worker`, it is the process that measures. A point that crashes or hangs
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
from typing import Any

from harness.inside.bench import precompile
from harness.inside.bench.do_bench import Timer, Timing
from harness.inside.bench.interference import Conditions, Watch
from harness.inside.bench.results import Sink
from harness.inside.bench.samples import fields_of, finite, verdict_of, with_timing
from harness.inside.bench.scripts import measure_scripts
from harness.inside.bench.stopping_rule import Rounds, Rule
from harness.inside.benchmarks import Point, load_points
from harness.inside.codegen.recorder import Recorder
from harness.inside.facts.architecture import card_here
from harness.inside.facts.device import accelerator, ask_afresh, is_usable
from harness.inside.multi_gpu.cards import cards, is_shared, own_index
from harness.inside.multi_gpu.claims import claimed_cases
from harness.inside.multi_gpu.share import share
from harness.inside.process import sealing
from harness.inside.process.exceptions import describe
from harness.inside.process.journal import Journal, settle
from harness.inside.process.package_path import enter, package_folders, python_path, root_of
from harness.inside.process.supervise import supervise
from harness.inside.process.workers import as_stage, spawned
from harness.inside.scripts.hooks import Hooks
from harness.inside.scripts.script import benches_of, scripts_of
from harness.records import Architecture, Ceiling, Job, Sample, Stage, StageReport, Verdict, to_json

# One copy reads and writes this much in total: far more than any cache holds, and little on any GPU.
_COPY_BYTES = 4 << 30


def measure(job: Job) -> StageReport:
    """Supervise the sweep, and write `bench/samples.jsonl`, `bench/ceilings.jsonl` and `bench/kernels.jsonl` (what the JIT compiled).

    In an A/A run, repeat the whole sweep in another process and write `bench/again.jsonl`, just as a comparison of two runs measures.
    """
    folder = Path(job.output) / Stage.BENCH.value
    benches, scripts = benches_of(job), scripts_of(job)
    if not benches and not scripts:
        looked = ", ".join([*job.benches, *(script.pattern for script in job.bench_scripts)])
        return StageReport(Stage.BENCH, Verdict.NOT_RUN, reason="no bench was found", hint=f"Looked for {looked}.")
    if benches:
        precompile.start(job)
    report = _sweep(job, folder, "samples.jsonl", "journal.jsonl")
    if not job.again:
        return report
    second = _sweep(job, folder, "again.jsonl", "journal-again.jsonl")
    return report if second.verdict.severity <= report.verdict.severity else dataclasses.replace(report, reason=f"A/A: {second.reason}")


def _sweep(job: Job, folder: Path, name: str, journal: str) -> StageReport:
    """Measure every point once, with one worker or one per GPU, and write a line each to the file `name`."""
    sink = Sink(folder, name)
    command = [sys.executable, "-m", "harness.inside.bench.stage", sys.argv[1], "--worker"]
    if several := cards(job):
        return sink.report(share(job, Stage.BENCH, several, command, journal, sink.on_event))
    log, path = folder / "log.txt", folder / journal
    return sink.report(supervise(spawned(command), Journal(path), job.test_limit_s, log, sink.on_event, faults=job.device_faults))


def work(job: Job) -> None:
    """Measure everything that is not yet in the journal."""
    import triton.testing

    journal = Journal.from_environment()
    enter(package_folders(job), first=python_path(job))
    if not settle(journal, ask_afresh):
        return
    done = journal.done()
    card = card_here(job.architectures)
    timer = Timer.on_active_device(job.quick, hidden_cache(job, card), Rule(job.precision))
    triton.testing.do_bench = timer.do_bench
    hooks = Hooks(job.quick)
    if job.bench_scripts:
        hooks.install()  # before a module of the package takes what it measures with
    # Rows like those of the compile stage, but from real launches. They show whether both compile the same code.
    recorder = Recorder(card, journal, root=root_of(job))
    todo: list[Point] = []
    for path in benches_of(job):
        todo += load_points(journal, path, job, done)
    precompile.wait()
    journal.write("collected", points={point.id: fields_of(point) for point in todo})
    _ceiling(journal, timer, "before", done)
    watch = Watch(timer.device)
    left = itertools.groupby((point for point in todo if point.id not in done), key=lambda point: point.case)
    for together in claimed_cases(job, journal, todo) if is_shared() else (list(group) for _, group in left):
        _measure_in_turns(together, timer, watch, recorder, journal)
    measure_scripts(job, hooks, timer, watch, recorder, journal, _measure_in_turns)
    _ceiling(journal, timer, "after", done)
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
            before.setdefault(point.id, watch.look())
            timer.turn(series[point.id])
            sample = _measure(point, timer, series[point.id])
            if sample is None:
                continue
            together.remove(point)
            if sample.verdict is Verdict.PASSED:
                sample = dataclasses.replace(sample, weak=watch.weakness(before[point.id], watch.look()))
            poisoned = sample.verdict is not Verdict.PASSED and not is_usable()
            fields = {"id": point.id, "verdict": sample.verdict.value, "reason": sample.reason, "sample": to_json(sample)}
            journal.write("poisoned" if poisoned else "finish", **fields)
            if poisoned:
                os._exit(1)
    timer.series = None


def _measure(point: Point, timer: Timer, series: Rounds | None = None) -> Sample | None:
    """Call the author's function once under the timer. Return None if the series needs another round."""
    base = Sample(**fields_of(point), verdict=Verdict.PASSED)  # type: ignore[arg-type]
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


def _ceiling(journal: Journal, timer: Timer, when: str, done: set[str]) -> None:
    """Measure a device-to-device copy in this run: the ceiling that shares refer to."""
    import triton

    identity = f"ceiling {when}, GPU {own_index()}" if is_shared() else f"ceiling {when}"
    if identity in done:
        return
    journal.write("start", id=identity)
    # A GPU with little free memory copies less; the record includes the size.
    here = accelerator()
    assert here is not None
    size = min(_COPY_BYTES, here[1].mem_get_info()[0] // 2) // 2 // 256 * 256
    timing = _time_copy(timer, size, triton.runtime.driver.active.get_active_torch_device())
    record = Ceiling(own_index(), 2 * size, timing.median_ms, timing.quantile_ms(0.2), timing.quantile_ms(0.8), when)
    journal.write("finish", id=identity, verdict=Verdict.PASSED.value, reason="", ceiling=to_json(record))
    here[1].empty_cache()


def _time_copy(timer: Timer, size: int, device: Any) -> Timing:
    """Copy `size` bytes of random data, and free the buffers."""
    import torch

    source = torch.empty(size, dtype=torch.uint8, device=device).random_()
    destination = torch.empty_like(source)
    timer.do_bench(lambda: destination.copy_(source), return_mode="median")
    assert timer.last is not None
    return timer.last


def main() -> None:
    """Run the stage's process, or its worker."""
    job = Job.load(Path(sys.argv[1]))
    if "--worker" in sys.argv:
        work(job)
        return
    sealing.shut()
    started = time.monotonic()
    report = dataclasses.replace(measure(job), seconds=time.monotonic() - started)
    sealing.close(report, job)


if __name__ == "__main__":
    as_stage(main)
