"""What a package launches: its bench points and its tests, run once on a pretended card. Only the code that they compile is of interest."""

from __future__ import annotations

import traceback
from pathlib import Path

from harness.inside.codegen.recorder import Recorder
from harness.inside.compile.pytest_launches import run_tests
from harness.inside.marks import find_benches, kernel_name, load_case, points
from harness.inside.process.exceptions import describe
from harness.inside.process.journal import Journal
from harness.inside.test.stage import pytest_options
from harness.records import Job, Stage, Verdict


def launch_benches(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Every point of every sweep, but for peers', that the journal does not have yet."""
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
    """Every test that the journal does not have yet."""
    root = Path(job.kernels)

    def on_start(nodeid: str) -> None:
        recorder.kernel, recorder.origin, recorder.failure = kernel_name(root / nodeid.split("::")[0], root), nodeid, None
        journal.write("start", id=nodeid)

    def on_end(nodeid: str, ended: BaseException | str | None) -> None:
        _finish(journal, recorder, ended)

    run_tests(root, pytest_options(job, Path(job.output) / Stage.COMPILE.value), journal.done(), on_start, on_end)


def _finish(journal: Journal, recorder: Recorder, ended: BaseException | str | None) -> None:
    """A point or a test is over; why it did not get to its end, where that is not told by a row of its own."""
    reason = ended if isinstance(ended, str) else ""
    # A kernel that does not compile, or that no launch could take, has its row already.
    if isinstance(ended, BaseException) and ended is not recorder.failure and type(ended).__name__ != "OutOfResources":
        traceback.print_exception(ended)
        reason = describe(ended)
    journal.write("finish", id=recorder.origin, kernel=recorder.kernel, verdict=Verdict.NOT_RUN.value, reason=reason)
