"""The environments in the user's cache folder: where they are, which of them a run uses, and how to remove old ones."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DAY_S = 86400.0
_MARK = "warpwave.json"


@dataclass(frozen=True)
class Unused:
    """An environment that no run uses: its folder, the days since a run used it, and its size in bytes."""

    folder: Path
    days: float
    bytes: int


def environments() -> Path:
    """Return the folder of all environments."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache"))  # noqa: PTH111 - also without a home
    return cache / "warpwave" / "environments"


def use(venv: Path) -> None:
    """Note that a run uses the environment now, and keep it from being removed until this process ends."""
    with suppress(OSError):  # a cache that is read-only works, too
        os.utime(venv / _MARK)
        # Never closed: the end of this process closes it, and so ends the lock.
        fcntl.flock(os.open(_lock_of(venv), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), fcntl.LOCK_SH | fcntl.LOCK_NB)


def unused(days: float, *, remove: bool = False) -> list[Unused]:
    """Return the environments that no run has used for so many days, the oldest first. With `remove`, remove them.

    One that a run uses, or that is being made, is left alone.
    """
    found = []
    folder = environments()
    for venv in sorted(folder.iterdir()) if folder.is_dir() else ():
        if venv.is_symlink() or not (venv / _MARK).is_file():
            continue
        idle = (time.time() - (venv / _MARK).stat().st_mtime) / _DAY_S
        if idle < days:
            continue
        with _lock_of(venv).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            found.append(Unused(venv, idle, _size(venv)))
            if remove:
                (venv / _MARK).unlink(missing_ok=True)  # a removal that is cut short leaves nothing that looks complete
                shutil.rmtree(venv, ignore_errors=True)
    return sorted(found, key=lambda one: -one.days)


def _lock_of(venv: Path) -> Path:
    return venv.with_name(f"{venv.name}.used")


def _size(folder: Path) -> int:
    """Return the bytes of its files. A link counts as nothing."""
    return sum(entry.lstat().st_size for entry in folder.rglob("*") if not entry.is_symlink() and entry.is_file())
