"""Start supervised workers: as new processes, or forked from a process that has imported what all of them need.

torch and its compiler take seconds to import, and each of the many workers would import them again. The fork server has no threads, so its
forks do not inherit locked locks.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from warpwave.inside.environment import NO_ROOM
from warpwave.records import UNWRITABLE, Budget, Job

JOURNAL_VARIABLE = "WARPWAVE_JOURNAL"
FOLDER_VARIABLE = "WARPWAVE_FOLDER"  # the working folder of a stage and of what it runs
UNTIL_VARIABLE = "WARPWAVE_UNTIL"  # when the time of a stage is up, on the monotonic clock, which all processes share
_TO_END_S = 4.0  # a process that is interrupted takes seconds to print where it was
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class _Forked:
    """A forked process, with the interface of `subprocess.Popen`."""

    def __init__(self, process: Any) -> None:
        self._process, self.pid = process, process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode  # type: ignore[no-any-return]

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(["forked worker"], timeout)
        return self.returncode


# A process in its own session.
Worker = Union["subprocess.Popen[bytes]", _Forked]
# Starts a worker that writes to a journal, with its output in a log file.
Start = Callable[[Path, Path], Worker]


def spawned(command: list[str], variables: Mapping[str, str] | None = None) -> Start:
    """Start workers as new processes, with `variables` added to this one's."""

    def start(journal: Path, log: Path) -> Worker:
        environment = {**os.environ, **(variables or {}), JOURNAL_VARIABLE: str(journal)}
        with open(log, "ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    return start


def forked(function: Callable[..., None], *arguments: Any) -> Start:
    """Start workers as forks that call `function(*arguments)`, with torch and Triton imported. All must be picklable by name."""

    def start(journal: Path, log: Path) -> Worker:
        process = _server().Process(target=_begin, args=(str(journal), str(log), function, arguments))
        process.start()
        return _Forked(process)

    return start


def answered(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a fork with torch and Triton imported returns for `function(*arguments)`, picklable like `forked`; None if it dies."""
    context = _server()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        process.join()


def _answer(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(function(*arguments))


def _server() -> Any:
    """Return what forks: one process for all of this stage, started with the first fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warpwave.inside.compile.preload"])
    return context


def end(worker: Worker, grace_s: float) -> None:
    """End a process and everything it started: SIGINT first, so that a GPU runtime can shut down and results are written; then SIGKILL."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(worker.pid, number)
        except (ProcessLookupError, PermissionError):
            # It is gone, or it was forked and does not lead a process group yet.
            if worker.poll() is not None:
                break
            os.kill(worker.pid, number)
        if worker.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(grace_s)
    worker.poll()


def waited_s(pid: int, proc: Path = Path("/proc")) -> float:
    """Return the seconds that a process's first thread has waited for a free core since it began; 0 if the kernel does not say.

    Linux, sched-stats.rst: time on the processor and time on the run queue in ns, and the number of time slices.
    """
    try:
        return int((proc / str(pid) / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def hash_triton() -> None:
    """Compute Triton's hash once per process: it is part of every cache key, and takes half a second."""
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("triton.runtime.cache").triton_key()


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Called in a child: the kernel ends it if its parent dies, so that a killed run leaves nothing running. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def seconds_left() -> float:
    """Return how long this stage may go on, in s; below 0 if its time is up."""
    return float(os.environ.get(UNTIL_VARIABLE) or "inf") - time.monotonic()


def time_is_up(early_s: float = 0.0) -> bool:
    """Return whether a stage was stopped because its time was up, and not by the user; or will be within `early_s`."""
    return seconds_left() <= early_s


def budget_is_up(job: Job) -> bool:
    """Return whether a stage was stopped because the run's budget is used up: it then ends as usual, without what is left."""
    return job.limits.budget is not None and time_is_up()


def is_last(budget: Budget | None) -> bool:
    """In a worker: return whether there is no time for another test. It then ends by itself, which is quicker than to be interrupted."""
    return budget is not None and time_is_up(_TO_END_S)


def as_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main` as its process. It ends with its parent, and its exit code says if results could not be written."""
    die_with_parent()
    if FOLDER_VARIABLE in os.environ:  # everything is imported by now
        os.chdir(os.environ.pop(FOLDER_VARIABLE))
    try:
        main()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(UNWRITABLE)


def _begin(journal: str, log: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.setsid()
    die_with_parent()
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(handle, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.dup2(handle, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    os.environ[JOURNAL_VARIABLE] = journal
    function(*arguments)
    sys.stdout.flush()
