"""What only one run at a time may have: a GPU, because two on one card make both times wrong, and a results folder.

Locks of the kernel's (`flock`): they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Union

from harness.engines.seam import Say
from harness.errors import InfrastructureError

_POLL_S = 0.2


@contextmanager
def gpus(target: str, chosen: Union[str, None], run_id: str, wait_s: float, say: Say) -> Iterator[None]:
    """Have the chosen GPUs of a target for oneself, or all of them where none is chosen.

    Raises:
        InfrastructureError: another run of this machine has one of them, and has not given it back within `wait_s` seconds.
    """
    machine = _open(f"warpwave-{target}.lock")
    with ExitStack() as stack:
        stack.callback(os.close, machine)
        # Who chooses shares the machine with others who choose; who takes all of them shares it with nobody.
        _take(machine, fcntl.LOCK_SH if chosen else fcntl.LOCK_EX, f"a GPU of {target}", wait_s, say)
        held = [machine]
        # In one order, so that two runs never wait for each other.
        for index in sorted({word.strip() for word in chosen.split(",")}) if chosen else ():
            card = _open(f"warpwave-{target}-{index.replace('/', '_')}.lock")
            stack.callback(os.close, card)
            _take(card, fcntl.LOCK_EX, f"GPU {index} of {target}", wait_s, say)
            held.append(card)
        for descriptor in held:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"run {run_id}, process {os.getpid()}".encode(), 0)
        yield


@contextmanager
def folder(path: Path, wait_s: float, say: Say) -> Iterator[int]:
    """Have a results folder for oneself; hands out the lock, so that a child can hold it on.

    Raises:
        InfrastructureError: another run, or what is left of one that was killed, still writes to it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _take(descriptor, fcntl.LOCK_EX, f"the folder {path}", wait_s, say)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(name: str) -> int:
    path = Path(tempfile.gettempdir()) / name
    with suppress(PermissionError):  # another user's, which must not be created anew in a folder that is everybody's
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
        return descriptor
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW)


def _take(descriptor: int, how: int, what: str, wait_s: float, say: Say) -> None:
    until, told = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = _owner(descriptor)
        if time.monotonic() > until:
            raise InfrastructureError(
                f"{what} is in use{owner}.",
                f"Another run of this machine has it, and did not end within {wait_s:g} s; two at a time would spoil both.",
                "Wait for it, choose another card with --gpu, or end that process; `warpwave clean` lists what dead runs have left.",
            ) from None
        if not told:
            say(f"{what} is in use{owner}: waiting up to {wait_s:g} s")
            told = True
        time.sleep(_POLL_S)


def _owner(descriptor: int) -> str:
    with suppress(OSError):  # a folder has no text
        text = os.pread(descriptor, 200, 0).decode("utf-8", "replace")
        return f" by {text}" if text.isprintable() and text else ""
    return ""
