"""Run a package's bench points and tests once on a fake GPU. Only the code that they compile matters."""

from __future__ import annotations

import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from warpwave.inside.benchmarks import Point, kernel_name, load_points
from warpwave.inside.codegen.recorder import Recorder
from warpwave.inside.environment import root_of
from warpwave.inside.fake_gpu.launches import Launched, LaunchRefusedError
from warpwave.inside.fake_gpu.unknown import Asked, MadeUpTime, explained
from warpwave.inside.multi_gpu.pytest_plugin import TURNS
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.outcomes import Pretended, describe, is_packages, place_in, reason_of
from warpwave.inside.process.workers import is_last
from warpwave.inside.scripts.hooks import TIMER_METHODS, Hooks, Measurement
from warpwave.inside.scripts.script import Call, Names, Script, ScriptExit, benches_of, run, scripts_of
from warpwave.inside.test.budget import Turns, planned
from warpwave.inside.test.collection import Collection, Failure, last_line
from warpwave.inside.test.settings import pytest_options, test_paths
from warpwave.records import BUDGET_UP, BY_TORCH, Job, NotRun, Stage, Verdict

# Run a package's tests on a fake device for their launches, not for their results.
#
# There is no data, so nothing can be compared, and every assertion passes. Anything else that needs a number ends the test. The test then
# gets a row with that reason, because its later launches are not seen.

OnStart = Callable[[str], None]
OnEnd = Callable[[str, "BaseException | Failure | None"], None]
# The ids to run, how many were deselected, and how many of each function a quick run leaves out.
OnCollected = Callable[[list[str], int, "Counter[str]"], None]


class _Runner:
    """The plugin: report each test's start and end, and ignore its result."""

    def __init__(
        self, job: Job, done: set[str], card: str, collection: Collection, on_collected: OnCollected, on_start: OnStart, on_end: OnEnd
    ) -> None:
        self.job, self.done, self.card, self.collection = job, done, card, collection
        self.on_collected, self.on_start, self.on_end = on_collected, on_start, on_end
        self.ended: BaseException | None = None
        self.turns: Turns | None = None  # with a budget

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have no summary written: for it, plugins import all that they have. With some, that is most of what a worker does."""
        vars(session.config.hook)["pytest_terminal_summary"] = lambda **given: []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        """Announce what will run, after all other plugins selected tests. Deselect what an earlier worker has run."""
        found = [item.nodeid for item in items]
        yield
        plan = planned(items, found, self.collection, self.job, self.done, self.card)
        for failure in plan.failures:
            self._not_collected(failure)
        self.on_collected(plan.ids, plan.deselected, plan.left)
        if plan.units:
            self.turns = Turns(plan.units, lambda: bool(Launched.functions))
            config.pluginmanager.register(self.turns, TURNS)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module or a conftest.py that does not import: it launches nothing."""
        if report.failed:
            self._not_collected(self.collection.failure(report))
        elif report.skipped:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else last_line(str(report.longrepr))
            self._not_collected(Failure(report.nodeid, text, NotRun.SKIPPED))

    def _not_collected(self, failure: Failure) -> None:
        if failure.id not in self.done:
            self.done.add(failure.id)
            self.on_start(failure.id)
            self.on_end(failure.id, failure)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Report the start and end of a test, including its fixtures."""
        self.ended = None
        self.on_start(item.nodeid)
        result = yield
        if not self.turns or not self.turns.ended_s:
            self.on_end(item.nodeid, self.ended)
        if is_last(self.job.limits.budget):
            item.session.shouldstop = BUDGET_UP
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what ended the test early, as a failure that its author expects if pytest says so. Teardowns come too late to matter.

        unittest raises for a success that is not expected. Here data are unknown, so any assertion holds.
        """
        report = yield
        if call.excinfo is not None and call.when != "teardown" and self.ended is None:
            is_unittests = getattr(getattr(item, "obj", None), "__unittest_expecting_failure__", False)
            expected = (report.skipped and hasattr(report, "wasxfail")) or is_unittests
            self.ended = pytest.xfail.Exception(getattr(report, "wasxfail", "unittest.expectedFailure")) if expected else call.excinfo.value
        return report


def run_tests(
    job: Job,
    stage: Stage,
    done: set[str],
    on_collected: OnCollected = lambda *told: None,
    on_start: OnStart = lambda nodeid: None,
    on_end: OnEnd = lambda nodeid, ended: None,
    card: str = "",
    plugins: Sequence[object] = (),
) -> bool:
    """Run the job's tests that are not `done`, with the options of a stage. `on_end` receives what ended one early, or None.

    Return whether the budget was up before all of them had run.
    """
    collection = Collection(elsewhere=job.what.benches, stage="compile")
    runner = _Runner(job, done, card, collection, on_collected, on_start, on_end)
    options = [*pytest_options(job, Path(job.output) / stage.value), *test_paths(job)]
    ended = pytest.main(["-q", "--no-header", "--tb=no", "--capture=no", *options], plugins=[collection, runner, *plugins])
    cut = ended is pytest.ExitCode.INTERRUPTED and is_last(job.limits.budget)
    reported = ended is pytest.ExitCode.USAGE_ERROR and bool(collection.raised)  # a conftest.py that does not import
    if ended in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED) and not (cut or reported):
        how = pytest.ExitCode(ended).name.lower().replace("_", " ")
        said = f"pytest ended early ({how}), so some tests did not run: see the stage's log"
        on_collected(["(pytest)"], 0, Counter())  # a row of ours: without it, the audit blames the package
        on_start("(pytest)")
        # A wrong option is no failure of the package. The test stage, which has the same options, says what pytest said.
        on_end("(pytest)", Failure("(pytest)", said, NotRun.STOPPED, broken=ended is not pytest.ExitCode.USAGE_ERROR))
    return cut


def launch_benches(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Run every point of every sweep, except the peers', that is not yet in the journal."""
    done = journal.done()
    for path in benches_of(job):
        recorder.kernel, recorder.origin = kernel_name(path, job), path.name
        for point in load_points(journal, path, job, done):
            if point.id in done or point.provider in job.what.peers:
                continue
            if is_last(job.limits.budget):
                journal.write("note", text=f"{BUDGET_UP} before all points of {path.name} were compiled")
                return
            _launch_once(journal, recorder, point.id, point.kernel, point.run)


def _launch_once(journal: Journal, recorder: Recorder, identity: str, kernel: str, launch: Callable[[], Any]) -> None:
    """Call what launches, as a case. Whatever it raises is the end of this case alone."""
    recorder.kernel, recorder.origin, recorder.failure = kernel, identity, None
    Pretended.asked.clear()
    Pretended.refused = Pretended.by_time = Asked.since_begin = False
    journal.write("start", id=identity)
    ended: BaseException | None = None
    try:
        launch()
    except Exception as error:
        ended = explained(error)
    except SystemExit as error:  # `if device_count() < 2: sys.exit()`
        ended = ScriptExit(f"it exited with {error.code}") if error.code else unittest.SkipTest("it ended itself")
    finish(journal, recorder, ended)


def launch_tests(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Run every test that is not yet in the journal."""
    root = Path(job.kernels)

    def on_start(nodeid: str) -> None:
        recorder.kernel, recorder.origin, recorder.failure = kernel_name(root / nodeid.split("::")[0], job), nodeid, None
        Asked.since_begin = False
        Launched.functions.clear()
        Pretended.asked.clear()
        journal.write("start", id=nodeid)

    def on_end(nodeid: str, ended: BaseException | Failure | None) -> None:
        finish(journal, recorder, explained(ended) if isinstance(ended, BaseException) else ended)

    def on_collected(ids: list[str], deselected: int, left: Counter[str]) -> None:
        journal.write("collected", ids=ids, deselected=deselected, left_out=left.total(), left=left)

    card = recorder.card.name
    if is_last(job.limits.budget) or run_tests(job, Stage.COMPILE, journal.done(), on_collected, on_start, on_end, card):
        journal.write("note", text=f"{BUDGET_UP} before all tests were compiled")


def finish(journal: Journal, recorder: Recorder, ended: BaseException | Failure | None) -> None:
    """Record the end of a point or test, with the reason if it ended early and no kernel row explains it."""
    reason, why, broken, by_package = "", None, False, False
    if isinstance(ended, Failure):
        reason, why, broken = ended.message, ended.why, ended.broken
    elif refused := _refused(ended):
        recorder.refuse_launch(refused.binary, str(refused))
        why = NotRun.RAISED
    # A kernel that does not compile or needs more than the card has already has a row.
    elif ended is not None and ended is not recorder.failure and type(ended).__name__ != "OutOfResources":
        traceback.print_exception(ended)
        why, words = reason_of(ended)
        reason = words or describe(ended)
        broken = why is NotRun.IMPORT
        last = "".join(frame.filename for frame in traceback.extract_tb(ended.__traceback__)[-1:])
        # What stands in for torch may raise anything; what it raises on a card, too, is marked so.
        stands_in = "/warpwave/inside/" in last and not getattr(ended, "_of_a_card", False)
        if stands_in or (isinstance(ended, RuntimeError) and ("/torch/" in last or "/warpwave/inside/" in last)):
            reason += BY_TORCH
        elif why is NotRun.RAISED and recorder.root and (place := place_in(ended, recorder.root)):
            reason += f" ({place})"
            by_package = is_packages(ended, recorder.root, Asked.since_begin)
    elif ended is not None:
        why = NotRun.RAISED
    verdict = Verdict.ERROR if broken else Verdict.NOT_RUN
    told = {"reason": reason, "not_run": why, "by_package": by_package}
    journal.write("finish", id=recorder.origin, kernel=recorder.kernel, verdict=verdict.value, **told)


def _refused(ended: BaseException | None) -> LaunchRefusedError | None:
    """Return the refused launch that ended a point or test, also if the package raised its own error from it."""
    while ended is not None and not isinstance(ended, LaunchRefusedError):
        ended = ended.__cause__
    return ended


# Run a package's benchmark scripts once on a fake GPU, for what they launch. Nothing is timed: every measurement is a millisecond.

_MILLISECOND = 1e-3
EMPTY = "it ended without a measurement; what it launched before is compiled"


class LaunchMeter:
    """Calls once what a script measures. `points` counts the calls."""

    def __init__(self, script: Script, job: Job, journal: Journal, recorder: Recorder, done: set[str]) -> None:
        self._script, self._peers, self._journal, self._recorder, self._done = script, job.what.peers, journal, recorder, done
        self.points = 0

    def take(self, call: Call, measurement: Measurement) -> Any:
        """Call it, unless it is a peer's. Whatever it raises is a row of its own, and the script goes on."""
        is_timer = measurement.kind in TIMER_METHODS
        launch = (lambda: measurement.function._timer.timeit(1)) if is_timer else measurement.function
        self._once(call.id, call.kernel, call.provider, launch)
        Pretended.by_time |= is_timer  # torch summarizes its times with NumPy
        return _made_up(measurement)

    def sweep(self, points: list[Point]) -> dict[str, Any]:
        """Call each point of a `perf_report`."""
        for point in points:
            self._once(point.id, point.kernel, point.provider, point.run)
        Pretended.by_time = True  # pandas makes a table of them
        return dict.fromkeys((point.id for point in points), 1.0)

    def _once(self, identity: str, kernel: str, provider: str, launch: Callable[[], Any]) -> None:
        self.points += 1
        if identity in self._done or provider in self._peers:
            return
        asked, *before = {*Pretended.asked}, Pretended.refused, Pretended.by_time, Asked.since_begin
        _launch_once(self._journal, self._recorder, identity, kernel, launch)
        Pretended.asked |= {*asked, "do_bench"}  # what the script does next may depend on the time that it gets
        now = Pretended.refused, Pretended.by_time, Asked.since_begin
        Pretended.refused, Pretended.by_time, Asked.since_begin = (a or b for a, b in zip(before, now, strict=True))
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
        if is_last(job.limits.budget):
            journal.write("note", text=f"{BUDGET_UP} before {script.id} was compiled")
            return
        journal.write("start", id=script.id)
        meter = LaunchMeter(script, job, journal, recorder, done)
        meter.back_to_the_script()
        Pretended.asked.clear()
        Pretended.refused = Pretended.by_time = Asked.since_begin = False
        with hooks.script(script, Names(script, root_of(job)), meter):
            ended = run(script)
        nothing = Failure(script.id, EMPTY, NotRun.EMPTY) if ended is None and not meter.points else None
        finish(journal, recorder, nothing or (explained(ended) if ended else None))


def _made_up(measurement: Measurement) -> Any:
    """Return what was asked for, as if everything took a millisecond: callers divide by it."""
    if measurement.kind in TIMER_METHODS:
        from torch.utils.benchmark import Measurement as Measured

        return Measured(1, [_MILLISECOND], measurement.function._task_spec)
    quantiles, time = measurement.options.get("quantiles"), MadeUpTime(1)
    if quantiles:
        return time if len(quantiles) == 1 else [time] * len(quantiles)
    return [time] if measurement.options.get("return_mode") == "all" else time
