"""Start supervised workers: as new processes or, in a stage, as forks of one that has imported what all of them need; see `forks`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from warpwave.inside.environment import NO_ROOM, WORK_VARIABLE
from warpwave.inside.process import forks
from warpwave.records import FORKS_VARIABLE, UNWRITABLE, Budget, Job

JOURNAL_VARIABLE = "WARPWAVE_JOURNAL"
FOLDER_VARIABLE = "WARPWAVE_FOLDER"  # the working folder of a stage and of what it runs
UNTIL_VARIABLE = "WARPWAVE_UNTIL"  # when the time of a stage is up, on the monotonic clock, which all processes share
GO_VARIABLE = "WARPWAVE_GO"  # a pipe: what compiles ahead begins once a byte is in it
_TO_END_S = 4.0  # a process that is interrupted takes seconds to print where it was
_ANSWER_VARIABLE = "WARPWAVE_ANSWER"
_PRELOAD = "warpwave.inside.compile.preload"


# A process in its own session.
Worker = Union["subprocess.Popen[bytes]", forks.Forked]
# Starts a worker that writes to a journal, with its output in a log file.
Start = Callable[[Path, Path], Worker]


def spawned(command: list[str], variables: Mapping[str, str] | None = None) -> Start:
    """Start workers as new processes, with `variables` added to this one's; as forks of a stage, if that runs a module of Python."""

    def start(journal: Path, log: Path) -> Worker:
        environment = {**os.environ, **(variables or {}), JOURNAL_VARIABLE: str(journal)}
        with open(log, "ab") as output:
            if (module := forks.module_of(command)) and _Forks.of_stage:
                with contextlib.suppress(OSError):  # it was killed
                    return forks.start(_Forks.of_stage, forks.Task(module, tuple(command[3:]), environment), output.fileno())
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    return start


def forked(function: Callable[..., None], *arguments: Any) -> Start:
    """Start workers as forks that call `function(*arguments)`, with torch and Triton imported. All must be picklable by name."""

    def start(journal: Path, log: Path) -> Worker:
        task = forks.Task(function, arguments, {**os.environ, JOURNAL_VARIABLE: str(journal)})
        with open(log, "ab") as output:
            return _Forks.compiling(lambda channel: forks.start(channel, task, output.fileno()))

    return start


def answered(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a fork with torch and Triton imported returns for `function(*arguments)`: what JSON can hold; None if it dies."""
    reading, writing = os.pipe()
    task = forks.Task(_answer, (function, arguments), dict(os.environ))
    with open(reading, "rb") as answer:
        try:
            process = _Forks.compiling(lambda channel: forks.start(channel, task, _output(), {_ANSWER_VARIABLE: writing}))
        finally:
            os.close(writing)
        said = answer.read()
    process.wait()
    return json.loads(said) if said else None


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with open(int(os.environ[_ANSWER_VARIABLE]), "w", encoding="utf-8") as file:
        json.dump(function(*arguments), file)


def _output() -> int:
    return sys.__stderr__.fileno() if sys.__stderr__ else 2


class _Forks:
    """What the workers of this stage are forked from: a fork of the stage, and one of that with what compiling needs, once it is asked."""

    of_stage: socket.socket | None = None
    _of_compiling: socket.socket | None = None
    _server: forks.Forked  # of compiling; it is ended if nobody holds this
    _lock = threading.Lock()

    @classmethod
    def open(cls) -> socket.socket:
        """Fork what forks, before this process has threads, and return where to ask it."""
        own, theirs = forks.open_channel()
        if not forks.fork():
            forks.apart()
            forks.close_all_but(theirs.fileno())
            forks.shut()  # the package's code will run in its forks, and must not look into it
            forks.run(forks.serve(theirs))
        theirs.close()
        cls.of_stage = own
        return own

    @classmethod
    def compiling(cls, ask: Callable[[socket.socket], Worker]) -> Worker:
        """Ask for a fork that can compile; start what it is forked from if there is none, or it was killed."""
        with cls._lock:
            if cls._of_compiling is not None:
                with contextlib.suppress(OSError):
                    return ask(cls._of_compiling)
            stage = cls.of_stage or cls.open()
            cls._of_compiling, theirs = forks.open_channel()
            task = forks.Task(_serve_compiling, (), dict(os.environ))
            with theirs:
                cls._server = forks.start(stage, task, _output(), {FORKS_VARIABLE: theirs.fileno()})
            return ask(cls._of_compiling)


def _serve_compiling() -> None:
    if _PRELOAD not in sys.modules:  # else what the stage was forked from has imported what it needs
        with contextlib.suppress(ImportError):
            importlib.import_module("torch._dynamo")
        importlib.import_module(_PRELOAD)
    forks.shut()
    forks.run(forks.serve(socket.socket(fileno=int(os.environ.pop(FORKS_VARIABLE)))))


def end(worker: Worker, grace_s: float) -> None:
    """End a process and everything it started: SIGINT first, so that a GPU runtime can shut down and results are written; then SIGKILL."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(worker.pid, number)
        except (ProcessLookupError, PermissionError):
            # It is gone, or it was forked and does not lead a process group yet.
            if worker.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and its exit code is on the way
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


def report_undisturbed(job: Job) -> None:
    """In a stage whose workers have ended: with a budget, its end comes while the stage writes what they found, and must not stop that."""
    if job.limits.budget:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Ended(BaseException):
    """A test has used up its share of a budget. It is no Exception, so that a package does not catch it."""


def as_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main` as its process. It ends with its parent, and its exit code says if results could not be written."""
    forks.die_with_parent()
    if FOLDER_VARIABLE in os.environ:  # everything is imported by now
        os.chdir(os.environ.pop(FOLDER_VARIABLE))
    _Forks.open()
    try:
        with tempfile.TemporaryDirectory(prefix="warpwave-", ignore_cleanup_errors=True) as work:
            os.environ[WORK_VARIABLE] = os.path.realpath(work)
            main()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(UNWRITABLE)
