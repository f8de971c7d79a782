"""Adopt and end orphans: processes that outlive the process that started them. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_KILL_S = 10.0


@contextmanager
def adopted() -> Iterator[Callable[[float], None]]:
    """Become the parent of every orphan below this process. Yield a function that ends all of them.

    The function waits for the given seconds of grace, then sends SIGKILL. It leaves children alone that existed before.
    """
    before = _children()
    _adopt(True)
    try:
        yield lambda grace_s: _end(before, grace_s)
    finally:
        _adopt(False)


def _end(spared: set[int], grace_s: float) -> None:
    now = time.monotonic()
    while (found := _children() - spared) and time.monotonic() < now + grace_s + _KILL_S:
        for pid in found:
            if time.monotonic() >= now + grace_s:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(OSError):  # `subprocess` may have waited for its own child already
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_POLL_S)


def _children() -> set[int]:
    """Return the ids of this process's children."""
    found, own = set(), str(os.getpid())
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # the process has ended in the meantime
                # The format is `pid (name) state parent …`. A name may contain spaces and brackets.
                if Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1].decode() == own:
                    found.add(int(entry.name))
    return found


def _adopt(on: bool) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
