"""Run a package's bench points and tests once on a fake GPU. Only the code that they compile matters."""

from __future__ import annotations

import traceback
from pathlib import Path

from harness.inside.benchmarks import kernel_name, load_points
from harness.inside.codegen.jit_recorder import Recorder
from harness.inside.compile.pytest_launches import Choice, run_tests
from harness.inside.fake_gpu.launch_limits import LaunchRefusedError
from harness.inside.fake_gpu.no_data.unknown import Asked, explained
from harness.inside.process.exceptions import describe
from harness.inside.process.journal import Journal
from harness.inside.process.not_run import why_not_run
from harness.inside.process.pretended_answers import Pretended
from harness.inside.scripts.script import benches_of
from harness.inside.test.collection import Failure
from harness.inside.test.settings import is_narrowed, pytest_options, test_paths
from harness.records import BY_TORCH, Job, NotRun, Stage, Verdict


def launch_benches(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Run every point of every sweep, except the peers', that is not yet in the journal."""
    done = journal.done()
    for path in benches_of(job):
        recorder.kernel, recorder.origin = kernel_name(path, job), path.name
        for point in load_points(journal, path, job, done):
            if point.id in done or point.provider in job.peers:
                continue
            recorder.kernel, recorder.origin, recorder.failure = point.kernel, point.id, None
            journal.write("start", id=point.id)
            ended: Exception | None = None
            try:
                point.run()
            except Exception as error:
                ended = error
            finish(journal, recorder, ended)


def launch_tests(job: Job, journal: Journal, recorder: Recorder) -> None:
    """Run every test that is not yet in the journal."""
    root = Path(job.kernels)

    def on_start(nodeid: str) -> None:
        recorder.kernel, recorder.origin, recorder.failure = kernel_name(root / nodeid.split("::")[0], job), nodeid, None
        Asked.since_begin = Pretended.memory = False
        journal.write("start", id=nodeid)

    def on_end(nodeid: str, ended: BaseException | Failure | None) -> None:
        finish(journal, recorder, explained(ended) if isinstance(ended, BaseException) else ended)

    def on_collected(ids: list[str], deselected: int, left_out: int) -> None:
        journal.write("collected", ids=ids, deselected=deselected, left_out=left_out)

    options = [*pytest_options(job, Path(job.output) / Stage.COMPILE.value), *test_paths(job)]
    choice = Choice(journal.done(), job.quick, narrowed=is_narrowed(job), benches=job.benches)
    run_tests(options, choice, on_collected, on_start, on_end)


def finish(journal: Journal, recorder: Recorder, ended: BaseException | Failure | None) -> None:
    """Record the end of a point or test, with the reason if it ended early and no kernel row explains it."""
    reason, why, broken = "", None, False
    if isinstance(ended, Failure):
        reason, why, broken = ended.message, ended.why, ended.broken
    elif refused := _refused(ended):
        recorder.refuse_launch(refused.binary, str(refused))
        why = NotRun.RAISED
    # A kernel that does not compile or needs more than the card has already has a row.
    elif ended is not None and ended is not recorder.failure and type(ended).__name__ != "OutOfResources":
        traceback.print_exception(ended)
        reason, why = describe(ended), why_not_run(ended)
        broken = why is NotRun.IMPORT
        last = traceback.extract_tb(ended.__traceback__)[-1:]
        if isinstance(ended, RuntimeError) and any("/torch/" in frame.filename or "/harness/inside/" in frame.filename for frame in last):
            reason += BY_TORCH
    elif ended is not None:
        why = NotRun.RAISED
    verdict = Verdict.ERROR if broken else Verdict.NOT_RUN
    journal.write("finish", id=recorder.origin, kernel=recorder.kernel, verdict=verdict.value, reason=reason, not_run=why)


def _refused(ended: BaseException | None) -> LaunchRefusedError | None:
    """Return the refused launch that ended a point or test, also if the package raised its own error from it."""
    while ended is not None and not isinstance(ended, LaunchRefusedError):
        ended = ended.__cause__
    return ended
