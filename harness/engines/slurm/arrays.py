"""Submit the shards of a leg together, as one array job. Each shard has a process of its own; they meet in a folder on this machine.

A shard that is ready leaves a file there and waits. The first one to see that all are ready, or that no more come, submits the array.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.engines import signals
from harness.errors import InfrastructureError

_SETTLED_S = 5.0  # no more shards come if none has come for so long
_POLL_S = 0.1
_WAIT_S = 600.0
_FAILED = "failed "


def submit_together(meeting: Path, leg: str, shards: int, submit: Callable[[Sequence[str]], Sequence[str]]) -> str:
    """Return the id of this leg's job. `submit` submits one job for several legs and returns their ids.

    Raises:
        KeyboardInterrupt: the user wants to stop. Nothing was submitted for this leg.
        InfrastructureError: another shard could not submit the array, or hangs.
    """
    meeting.mkdir(parents=True, exist_ok=True)
    ticket = secrets.token_hex(8)
    ready, answer = meeting / f"{ticket}.ready", meeting / f"{ticket}.id"
    (meeting / f"{ticket}.new").write_text(leg)
    (meeting / f"{ticket}.new").rename(ready)
    until = time.monotonic() + _WAIT_S
    try:
        while time.monotonic() < until:
            with _locked(meeting):
                if not answer.exists():
                    _submit_ready(meeting, shards, submit)
            if answer.exists():
                return _read(answer)
            with signals.interruptible():
                time.sleep(_POLL_S)
    finally:
        ready.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    raise InfrastructureError(
        f"{leg}: no other shard of this leg submitted the array job within {_WAIT_S:g} s.",
        "The process of that shard hangs, most often in its connection to the login node.",
        "End this run and continue with --resume.",
    )


def _submit_ready(meeting: Path, shards: int, submit: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Submit for all that are ready, if all shards are there or no more come. The others' processes read how it ended."""
    ready = sorted(meeting.glob("*.ready"), key=lambda path: path.read_text())
    youngest = max(path.stat().st_mtime for path in ready)
    if len(ready) < shards and time.time() - youngest < _SETTLED_S:
        return
    try:
        answers = list(submit([path.read_text() for path in ready]))
    except BaseException as error:
        answers = [_FAILED + " ".join(str(error).split("\n")[:1])] * len(ready)
        raise
    finally:
        for path, answer in zip(ready, answers, strict=True):
            path.with_suffix(".id.new").write_text(answer)
            path.with_suffix(".id.new").rename(path.with_suffix(".id"))
            path.unlink()


def _read(answer: Path) -> str:
    text = answer.read_text()
    if text.startswith(_FAILED):
        raise InfrastructureError(
            text.removeprefix(_FAILED) or "The array job was not submitted.",
            "Another shard of this leg submitted the array for all of them, and Slurm refused it.",
            "Its message says more; correct that, then continue with --resume.",
        )
    return text


@contextmanager
def _locked(meeting: Path) -> Iterator[None]:
    descriptor = os.open(meeting / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
