"""Run a package's bench points and tests once on a fake GPU. Only the code that they compile matters."""

from __future__ import annotations

import traceback
from pathlib import Path

from harness.inside.benchmarks import find_benches, kernel_name, load_case, points
from harness.inside.codegen.recorder import Recorder
from harness.inside.compile.pytest_launches import run_tests
from harness.inside.process.exceptions import describe
from harness.inside.process.journal import Journal
from harness.inside.test.settings import pytest_options, test_paths
from harness.records import Job, Stage, Verdict


def launch_benches(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Run every point of every sweep, except the peers', that is not yet in the journal."""
    root, done = Path(job.kernels), journal.done()
    for path in find_benches(root, job.benches):
        recorder.kernel, recorder.origin = kernel_name(path, root), path.name
        module = load_case(journal, path, root, done)
        for point in points(module, path, root, job.quick) if module is not None else ():
            if point.id in done or point.provider in job.peers:
                continue
            recorder.kernel, recorder.origin, recorder.failure = point.kernel, point.id, None
            journal.write("start", id=point.id)
            ended: Exception | None = None
            try:
                point.run()
            except Exception as error:
                ended = error
            _finish(journal, recorder, ended)


def launch_tests(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Run every test that is not yet in the journal."""
    root = Path(job.kernels)

    def on_start(nodeid: str) -> None:
        recorder.kernel, recorder.origin, recorder.failure = kernel_name(root / nodeid.split("::")[0], root), nodeid, None
        journal.write("start", id=nodeid)

    def on_end(nodeid: str, ended: BaseException | str | None) -> None:
        _finish(journal, recorder, ended)

    options = [*pytest_options(job, Path(job.output) / Stage.COMPILE.value), *test_paths(job)]
    run_tests(options, journal.done(), on_start, on_end)


def _finish(journal: Journal, recorder: Recorder, ended: BaseException | str | None) -> None:
    """Record the end of a point or test, with the reason if it ended early and no kernel row explains it."""
    reason = ended if isinstance(ended, str) else ""
    # A kernel that does not compile or cannot be launched already has a row.
    if isinstance(ended, BaseException) and ended is not recorder.failure and type(ended).__name__ != "OutOfResources":
        traceback.print_exception(ended)
        reason = describe(ended)
    journal.write("finish", id=recorder.origin, kernel=recorder.kernel, verdict=Verdict.NOT_RUN.value, reason=reason)
