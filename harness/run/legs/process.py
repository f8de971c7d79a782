"""Run one leg in a child process, forked after all imports: it shares this process's memory, and has signals and a log of its own.

The child tells what happens in lines of JSON through a pipe. It ends as a run of its own would: a signal stops its kernels gracefully, and
its results are kept. If this process is killed, the child gets SIGTERM.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, BinaryIO, NoReturn, TextIO, Union

from harness.engines import signals
from harness.errors import UsageError
from harness.run.legs.plan import Leg
from harness.run.target import run_target

SAY, EVENT, RECORD, REFUSED, FAILED = "say", "event", "record", "refused", "failed"
"""What a child tells: a line, an event of the inside, and at its end a record, a refusal, or its own failure."""

Tell = Callable[[str, Any], None]

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_SET_DEATH_SIGNAL = 1
_MOST_BYTES = 1 << 16  # of one line: the package can print events, too
_PIECE = 1 << 16


class LegProcess:
    """One leg, running in a child process. `pipe` is readable when it has told something. `siblings` are the pipes of other legs."""

    def __init__(self, leg: Leg, siblings: Collection[int] = ()) -> None:
        self.leg = leg
        self.status: Union[int, None] = None
        self._held = b""
        leg.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()
        self.pipe, write = os.pipe()
        gc.freeze()  # what exists now stays shared: the collector would write to it
        # A signal must not arrive in the child before it counts signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self.pipe)
                _run(leg, write, parent, before, siblings)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            gc.unfreeze()
        os.close(write)

    def read(self) -> list[tuple[str, Any]]:
        """Return what the child has told since the last call. At its end, wait for it and close the pipe."""
        piece = os.read(self.pipe, _PIECE)
        *lines, self._held = (self._held + piece).split(b"\n")
        if not piece:
            os.close(self.pipe)
            self.status = os.waitpid(self.pid, 0)[1]
        return [(kind, value) for line in lines for kind, value in json.loads(line).items()]

    def stop(self, number: int) -> None:
        """Ask the child to stop, as the user asked this process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _run(leg: Leg, pipe: int, parent: int, mask: set[Any], siblings: Collection[int]) -> NoReturn:
    """Run the leg and end this process, whatever happens. Never return into the parent's code."""
    try:
        for sibling in siblings:  # a pipe that this process holds open would never break for its writer
            os.close(sibling)
        os.setsid()  # the terminal's Ctrl-C goes to the parent, which passes it on once
        with signals.held(), _redirected(leg) as log, open(pipe, "wb", buffering=0) as stream:
            tell = _teller(stream, log)
            _die_with(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                record = run_target(leg.target, leg.options, lambda line: tell(SAY, line), lambda event: tell(EVENT, event))
                tell(RECORD, asdict(record))
            except UsageError as error:
                tell(REFUSED, [error.happened, error.meaning, error.remedy])
            except BaseException as error:
                log.write(traceback.format_exc())
                tell(FAILED, f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _teller(stream: BinaryIO, log: TextIO) -> Tell:
    """Return a function that writes to the pipe, and what a reader wants to the log. If the parent is gone, only the log is left."""

    def tell(kind: str, value: Any) -> None:
        if text := _logged(kind, value):
            with suppress(OSError):  # a full disk costs the log, not the run
                log.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        line = json.dumps({kind: value}, default=str).encode() + b"\n"
        if kind == EVENT and len(line) > _MOST_BYTES:
            return
        with suppress(OSError):
            while line:
                line = line[stream.write(line) :]

    return tell


def _logged(kind: str, value: Any) -> str:
    """Return the line of the log for what happened; empty for what passes."""
    if kind == SAY:
        text = str(value)
    elif kind == EVENT:
        kind = value.get("event")
        worth = kind in ("stage", "stage-end") or (kind == "result" and value.get("verdict") != "passed")
        words = [str(value[name]) for name in ("stage", "verdict", "id", "seconds", "message") if value.get(name) not in (None, "")]
        text = f"{kind}: {' '.join(words)}" if worth else ""
    elif kind == RECORD:
        text = f"ended: {value['verdict'].value}{': ' + value['reason'] if value['reason'] else ''}"
    else:
        text = " ".join(value) if kind == REFUSED else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


@contextmanager
def _redirected(leg: Leg) -> Iterator[TextIO]:
    """Send what this process prints to the leg's log, and yield the log."""
    descriptor = os.open(leg.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    with open(os.devnull) as nothing, open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        yield log


def _die_with(parent: int) -> None:
    """Get SIGTERM if the parent ends, however it ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
