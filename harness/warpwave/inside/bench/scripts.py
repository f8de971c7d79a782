"""Run benchmark scripts and record each `do_bench` call as a point. The script receives the number that it asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import statistics
import traceback
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from warpwave.inside.bench.ceilings import Watch
from warpwave.inside.bench.results import MOST_FUNCTIONS, fields_of, finish, finite, verdict_of, with_timing
from warpwave.inside.bench.timing import Timer, Timing, leading, summary
from warpwave.inside.benchmarks import Point
from warpwave.inside.codegen.recorder import Recorder
from warpwave.inside.environment import root_of
from warpwave.inside.multi_gpu.ledger import is_shared, own_index
from warpwave.inside.multi_gpu.share import claimed_scripts
from warpwave.inside.process.journal import Event, Journal
from warpwave.inside.process.outcomes import describe
from warpwave.inside.scripts.hooks import TIMER_METHODS, Hooks, Launched, Measurement
from warpwave.inside.scripts.script import Call, Names, Script, run, scripts_of
from warpwave.records import Job, Sample, Verdict

InTurns = Callable[[list[Point], Timer, Watch, Recorder, Journal], None]

EMPTY = "it ended without a measurement: no do_bench, no do_bench_cudagraph, no torch.utils.benchmark.Timer, no perf_report"
_GRAPH_TIMER = "replays of a graph, warm cache"
_TORCH_TIMER = "torch.utils.benchmark, wall clock"


class ScriptMeter:
    """Measures the calls of one script on the device. `points` counts them."""

    def __init__(self, script: Script, timer: Timer, watch: Watch, recorder: Recorder, journal: Journal, in_turns: InTurns) -> None:
        self._script, self._timer, self._watch, self._recorder, self._journal = script, timer, watch, recorder, journal
        self._in_turns = in_turns
        self._before = {event["id"]: event for event in journal.read() if event["event"] in ("finish", "death")}
        self.points = 0

    def take(self, call: Call, measurement: Measurement) -> Any:
        """Measure one call. If an earlier worker has, return what it would have returned."""
        self.points += 1
        if call.id in self._before:
            return _again(self._before[call.id], measurement)
        with self._point(call.id, fields_of(call), call.kernel):
            before, launched = self._watch.look(), Launched()
            sample = Sample(**fields_of(call), verdict=Verdict.PASSED, launches_noted=True)

            def with_launches(**known: Any) -> Sample:
                return dataclasses.replace(sample, launched=tuple(launched.names)[:MOST_FUNCTIONS], **known)

            try:
                result, timing = _MEASURES[measurement.kind](self._timer, measurement, launched)
            except Exception as error:
                finish(self._journal, call.id, with_launches(verdict=verdict_of(error), reason=describe(error)))
                raise
            weak = self._watch.weakness(before, self._watch.look())
            finish(self._journal, call.id, with_timing(with_launches(value=finite(timing.returned_ms), weak=weak), timing))
            return result

    def sweep(self, points: list[Point]) -> dict[str, Any]:
        """Measure a `perf_report`, with its providers in turns, as one that stands in a module."""
        returned: dict[str, Any] = {}
        self.points += len(points)
        left = [_noting(point, returned) for point in points if point.id not in self._before]
        self._journal.write("collected", points={point.id: fields_of(point) for point in left})
        for _, together in itertools.groupby(left, key=lambda point: point.case):
            self._in_turns(list(together), self._timer, self._watch, self._recorder, self._journal)
        self._back_to_the_script()
        earlier = {point.id: json.loads(self._before[point.id].get("sample") or "{}") for point in points if point.id in self._before}
        return {**{identity: sample.get("value") for identity, sample in earlier.items() if sample.get("value") is not None}, **returned}

    @contextlib.contextmanager
    def _point(self, identity: str, fields: dict[str, object], kernel: str) -> Iterator[None]:
        self._journal.write("collected", points={identity: fields})
        self._journal.write("start", id=identity)
        self._recorder.kernel, self._recorder.origin = kernel, identity
        try:
            yield
        finally:
            self._back_to_the_script()

    def _back_to_the_script(self) -> None:
        self._recorder.kernel, self._recorder.origin = self._script.kernel, self._script.id
        self._journal.write("turn", id=self._script.id)


def measure_scripts(job: Job, hooks: Hooks, timer: Timer, watch: Watch, recorder: Recorder, journal: Journal, in_turns: InTurns) -> None:
    """Run every script that is not done; if several GPUs share the work, those that this one claims."""
    done = journal.done() | {event["id"] for event in journal.read() if event["event"] == "ready"}
    scripts = scripts_of(job)
    for script in claimed_scripts(job, journal, scripts) if is_shared() else scripts:
        if script.id not in done:
            meter = ScriptMeter(script, timer, watch, recorder, journal, in_turns)
            names = Names(script, root_of(job))
            journal.write("start", id=script.id)
            recorder.kernel, recorder.origin = script.kernel, script.id
            with hooks.script(script, names, meter):
                ended = run(script)
            _end(script, ended, meter, journal)


def _end(script: Script, ended: Exception | None, meter: ScriptMeter, journal: Journal) -> None:
    """Write the script's own row if it failed or measured nothing."""
    if ended is None and meter.points:
        journal.write("ready", id=script.id)
        return
    fields = {"case": script.id, "kernel": script.kernel, "provider": "script", "params": {}, "device": own_index()}
    sample = Sample(**fields, verdict=Verdict.NOT_RUN, reason=EMPTY, source=script.name)  # type: ignore[arg-type]
    if isinstance(ended, unittest.SkipTest):
        sample = dataclasses.replace(sample, reason=str(ended) or "skipped")
    elif ended is not None:
        traceback.print_exception(ended)
        sample = dataclasses.replace(sample, verdict=verdict_of(ended), reason=describe(ended))
    journal.write("collected", points={script.id: fields})
    finish(journal, script.id, sample)


def _noting(point: Point, returned: dict[str, Any]) -> Point:
    """Return the point with a function that notes what it returns."""

    def function(**arguments: Any) -> Any:
        returned[point.id] = point.function(**arguments)
        return returned[point.id]

    return dataclasses.replace(point, function=function)


def _bench(timer: Timer, asked: Measurement, launched: Launched) -> tuple[Any, Timing]:
    result = asked.plain(launched.first(asked.function), **asked.options)
    assert timer.last is not None
    return result, timer.last


def _graph(timer: Timer, asked: Measurement, launched: Launched) -> tuple[Any, Timing]:
    """Let Triton measure, and keep its raw timings."""
    options = dict(asked.options)
    quantiles, mode = options.pop("quantiles", None), options.pop("return_mode", "mean")
    if timer.quick:
        options["rep"] = options.get("rep", 20) / 5
    times = [float(time_ms) for time_ms in asked.plain(launched.first(asked.function), **options, return_mode="all")]
    result = summary(times, quantiles, mode)
    return result, Timing(tuple(times), 0, 0, leading(result, times, quantiles), None, timer=_GRAPH_TIMER)


def _torch(timer: Timer, asked: Measurement, launched: Launched) -> tuple[Any, Timing]:
    """Let torch measure. The launches are noted in its warm-up, not in what it times."""
    inner = asked.function._timer
    plain = inner.timeit

    def timeit(number: int = 1) -> Any:
        if number < 1:  # it times its own overhead
            return plain(number)
        vars(inner).pop("timeit", None)
        with launched.noted():
            return plain(number)

    with contextlib.suppress(AttributeError):  # a timer of C++ statements may be none of Python's objects
        inner.timeit = timeit
    try:
        result = asked.plain(asked.function, **asked.options)
    finally:
        getattr(inner, "__dict__", {}).pop("timeit", None)
    times = tuple(seconds * 1e3 for seconds in result.times)
    return result, Timing(times, 0, 0, statistics.median(times), None, timer=_TORCH_TIMER)


_MEASURES = {"do_bench": _bench, "do_bench_cudagraph": _graph, **dict.fromkeys(TIMER_METHODS, _torch)}


def _again(event: Event, asked: Measurement) -> Any:
    """Return what a script got from an earlier worker. The call that ended that worker has no time, and the script goes on without it."""
    sample = json.loads(event.get("sample") or "{}")
    if event["event"] != "death" and event["verdict"] != Verdict.PASSED.value:
        import torch

        kind = torch.OutOfMemoryError if event["verdict"] == Verdict.OOM.value else RuntimeError
        raise kind(event["reason"])
    times = sample.get("times_ms") or [float("nan")]
    if asked.kind in TIMER_METHODS:
        from torch.utils.benchmark import Measurement as Measured

        return Measured(1, [time_ms / 1e3 for time_ms in times], asked.function._task_spec)
    return summary(times, asked.options.get("quantiles"), asked.options.get("return_mode", "mean"))
