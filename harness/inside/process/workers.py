"""How a supervised worker comes to life: as a process of its own, or forked from one that has imported what all of them need.

torch and what its compiler brings along take seconds to import; a worker an architecture would take them each time. A fork server is a
process without threads, so what it forks holds nobody's locks.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.inside.process.container_limits import NO_ROOM
from harness.records import UNWRITABLE

JOURNAL_VARIABLE = "WARPWAVE_JOURNAL"
FOLDER_VARIABLE = "WARPWAVE_FOLDER"  # where a stage, and what it runs, works
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class Worker(Protocol):
    """A process in a session of its own, as `subprocess.Popen` has it."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""

    def poll(self) -> int | None:
        """`returncode`, looked up."""

    def wait(self, timeout: float) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: it did not come.
        """


# Starts a worker that writes to a journal, with its output in a log.
Start = Callable[[Path, Path], Worker]


def spawned(command: list[str], variables: Mapping[str, str] | None = None) -> Start:
    """A new process, with `variables` on top of this one's."""

    def start(journal: Path, log: Path) -> Worker:
        environment = {**os.environ, **(variables or {}), JOURNAL_VARIABLE: str(journal)}
        with open(log, "ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    return start


def forked(function: Callable[..., None], *arguments: Any) -> Start:
    """`function(*arguments)` in a process that begins with torch and Triton imported. Both must be known by name in a module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.inside.compile.preload"])

    def start(journal: Path, log: Path) -> Worker:
        process = context.Process(target=_begin, args=(str(journal), str(log), function, arguments))
        process.start()
        return _Forked(process)

    return start


class _Forked:
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


def end(worker: Worker, grace_s: float) -> None:
    """End a process and everything it started: SIGINT first, so that a GPU runtime can tear down and results are written; then SIGKILL."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(worker.pid, number)
        except (ProcessLookupError, PermissionError):
            # Gone; or a forked one that leads no group yet.
            if worker.poll() is not None:
                break
            os.kill(worker.pid, number)
        if worker.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(grace_s)
    worker.poll()


def hash_triton() -> None:
    """The hash of all of Triton is in the key of everything that it caches; it takes half a second, and is made once a process."""
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("triton.runtime.cache").triton_key()


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Called in a child: the kernel ends it when its parent is gone, so that a killed run leaves nothing running. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def as_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main` as its process: it ends with its parent, and says by its exit code that results could not be written."""
    die_with_parent()
    if FOLDER_VARIABLE in os.environ:  # by now all of it is imported
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
