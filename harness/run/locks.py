"""Lock what only one run at a time may use: a GPU, because two runs on one card spoil each other's times, and a results folder.

The locks belong to the operating system (`flock`), which releases them when the process ends, however it ends.
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

from harness.engines.protocol import Say
from harness.errors import InfrastructureError

_POLL_S = 0.2


class Held:
    """The GPUs that a run chose and has locked. It can release each one alone. Empty if the run locked all GPUs of the machine."""

    def __init__(self, descriptors: dict[str, int]) -> None:
        self._descriptors = descriptors

    def __len__(self) -> int:
        return len(self._descriptors)

    def release(self, position: int) -> bool:
        """Release the GPU at a position among the chosen ones, as a process that sees them all counts them. Return whether it was held.

        Engines and drivers count GPUs in the order of their numbers. In a list that is in another order, or of names, the position does
        not say which one it is, and nothing is released.
        """
        names = list(self._descriptors)
        if not all(map(str.isdecimal, names)) or sorted(names, key=int) != names or not 0 <= position < len(names):
            return False
        descriptor, self._descriptors[names[position]] = self._descriptors[names[position]], -1
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        return descriptor >= 0


@contextmanager
def gpus(target: str, chosen: Union[str, None], run_id: str, wait_s: float, say: Say) -> Iterator[Held]:
    """Lock the chosen GPUs of a target, or all of them if none is chosen.

    Raises:
        InfrastructureError: another run on this machine uses one of them, and did not release it within `wait_s` seconds.
    """
    machine = _open(f"warpwave-{target}.lock")
    with ExitStack() as stack:
        stack.callback(os.close, machine)
        # Runs that choose GPUs share this lock. A run that uses all GPUs takes it exclusively.
        _take(machine, fcntl.LOCK_SH if chosen else fcntl.LOCK_EX, f"a GPU of {target}", wait_s, say)
        held = {"": machine}
        # All runs lock in the same order, so that two runs never wait for each other.
        for index in sorted({word.strip() for word in chosen.split(",")}) if chosen else ():
            card = _open(f"warpwave-{target}-{index.replace('/', '_')}.lock")
            stack.callback(os.close, card)
            _take(card, fcntl.LOCK_EX, f"GPU {index} of {target}", wait_s, say)
            held[index] = card
        for descriptor in held.values():
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"run {run_id}, process {os.getpid()}".encode(), 0)
        names = [word.strip() for word in chosen.split(",")] if chosen else []
        yield Held({name: held[name] for name in names})


@contextmanager
def folder(path: Path, wait_s: float, say: Say) -> Iterator[int]:
    """Lock a results folder. Yield the lock's descriptor, so that a child process can hold it too.

    Raises:
        InfrastructureError: another run, or a remaining process of a killed run, still writes to the folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _take(descriptor, fcntl.LOCK_EX, f"the folder {path}", wait_s, say)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(name: str) -> int:
    path = Path(tempfile.gettempdir()) / name
    with suppress(PermissionError):  # in a shared folder, the kernel may refuse O_CREAT on another user's file
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
        return descriptor
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW)


def _take(descriptor: int, how: int, what: str, wait_s: float, say: Say) -> None:
    until, announced = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = _owner(descriptor)
        if time.monotonic() > until:
            raise InfrastructureError(
                f"{what} is in use{owner}.",
                f"Another run on this machine uses it and did not end within {wait_s:g} s. Two runs at a time would spoil both.",
                "Wait for it, choose another card with --gpu, or end that process; `warpwave clean` lists what dead runs left behind.",
            ) from None
        if not announced:
            say(f"{what} is in use{owner}: waiting up to {wait_s:g} s")
            announced = True
        time.sleep(_POLL_S)


def _owner(descriptor: int) -> str:
    with suppress(OSError):  # a folder cannot be read like a file
        text = os.pread(descriptor, 200, 0).decode("utf-8", "replace")
        return f" by {text}" if text.isprintable() and text else ""
    return ""
