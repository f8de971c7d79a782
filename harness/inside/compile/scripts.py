"""Run a package's benchmark scripts once on a fake GPU, for what they launch. Nothing is timed: every measurement is a millisecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.inside.benchmarks import Point
from harness.inside.codegen.jit_recorder import Recorder
from harness.inside.compile.launches import finish
from harness.inside.environment.package_path import root_of
from harness.inside.process.journal import Journal
from harness.inside.scripts.calls import Call, Names
from harness.inside.scripts.hooks import TIMER_METHODS, Hooks, Measurement
from harness.inside.scripts.script import Script, run, scripts_of
from harness.inside.test.collection import Failure
from harness.records import Job, NotRun

_MILLISECOND = 1e-3
EMPTY = "it ended without a measurement; what it launched before is compiled"


class LaunchMeter:
    """Calls once what a script measures. `points` counts the calls."""

    def __init__(self, script: Script, job: Job, journal: Journal, recorder: Recorder, done: set[str]) -> None:
        self._script, self._peers, self._journal, self._recorder, self._done = script, job.peers, journal, recorder, done
        self.points = 0

    def take(self, call: Call, measurement: Measurement) -> Any:
        """Call it, unless it is a peer's. Whatever it raises is a row of its own, and the script goes on."""
        self._once(call.id, call.kernel, call.provider, _launch_of(measurement))
        return _made_up(measurement)

    def sweep(self, points: list[Point]) -> dict[str, Any]:
        """Call each point of a `perf_report`."""
        for point in points:
            self._once(point.id, point.kernel, point.provider, point.run)
        return dict.fromkeys((point.id for point in points), 1.0)

    def _once(self, identity: str, kernel: str, provider: str, launch: Callable[[], Any]) -> None:
        self.points += 1
        if identity in self._done or provider in self._peers:
            return
        self._recorder.kernel, self._recorder.origin, self._recorder.failure = kernel, identity, None
        self._journal.write("start", id=identity)
        ended: Exception | None = None
        try:
            launch()
        except Exception as error:
            ended = error
        finish(self._journal, self._recorder, ended)
        self.back_to_the_script()

    def back_to_the_script(self) -> None:
        """From here on, launches are the script's own."""
        self._recorder.kernel, self._recorder.origin, self._recorder.failure = self._script.kernel, self._script.id, None
        self._journal.write("turn", id=self._script.id)


def launch_scripts(job: Job, hooks: Hooks, journal: Journal, recorder: Recorder) -> None:
    """Run every script that is not yet in the journal."""
    done = journal.done()
    for script in scripts_of(job):
        if script.id in done:
            continue
        journal.write("start", id=script.id)
        meter = LaunchMeter(script, job, journal, recorder, done)
        meter.back_to_the_script()
        with hooks.script(script, Names(script, root_of(job)), meter):
            ended = run(script)
        nothing = Failure(script.id, EMPTY, NotRun.EMPTY) if ended is None and not meter.points else None
        finish(journal, recorder, nothing or ended)


def _launch_of(measurement: Measurement) -> Callable[[], Any]:
    if measurement.kind in TIMER_METHODS:
        return lambda: measurement.function._timer.timeit(1)
    launch: Callable[[], Any] = measurement.function
    return launch


def _made_up(measurement: Measurement) -> Any:
    """Return what was asked for, as if everything took a millisecond: callers divide by it."""
    if measurement.kind in TIMER_METHODS:
        from torch.utils.benchmark import Measurement as Measured

        return Measured(1, [_MILLISECOND], measurement.function._task_spec)
    quantiles = measurement.options.get("quantiles")
    if quantiles:
        return 1.0 if len(quantiles) == 1 else [1.0] * len(quantiles)
    return [1.0] if measurement.options.get("return_mode") == "all" else 1.0
