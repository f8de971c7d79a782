"""A results folder after the code under test had it: nothing stays but files and folders, and they are the caller's.

Whoever reads, uploads or deletes the folder later then follows nothing that a kernel package has put there. Folders are entered by
descriptor and never through a link, since what still runs may exchange one for the other in the meantime.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Union

_LONG_PATH = 500  # characters below the results folder, of up to 4 bytes each; the system takes paths of 4096 bytes
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ITSELF = os.O_PATH | os.O_NOFOLLOW
# What actions/upload-artifact refuses in a name, and with it the whole artifact; control characters and bytes that are no text too.
_UNPORTABLE = re.compile(r"""["*:<>?|\\\x00-\x1f\x7f\ud800-\udfff]""")

Owner = Union[tuple[int, int], None]


def tidy(folder: Path, owner: Owner = None) -> list[str]:
    """Remove what is neither file nor folder, then hard links and modes that give rights; make the rest `owner`'s where one is given.

    Returns the names of what could not be removed.
    """
    left = clear(folder)
    for at, entry in _entries(folder):
        with suppress(OSError):
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(state.st_mode) and state.st_nlink > 1:
                # Its other name may be outside of the folder. Of several names in here the last one that is met stays.
                os.unlink(entry.name, dir_fd=at)
                continue
            # No program that would run as whoever owns it now.
            if (wanted := state.st_mode & 0o777) != stat.S_IMODE(state.st_mode):
                _set_mode(entry.name, at, wanted)
            if owner:
                os.chown(entry.name, *owner, dir_fd=at, follow_symlinks=False)
    if owner:
        with suppress(OSError):
            os.chown(folder, *owner, follow_symlinks=False)
    return left


def clear(folder: Path) -> list[str]:
    """Remove links, pipes, sockets and devices, the first thing that `tidy` does: fast, since no file is looked at.

    Returns the names of what could not be removed.
    """
    left = []
    for at, entry in _entries(folder):
        if not entry.is_dir(follow_symlinks=False) and not entry.is_file(follow_symlinks=False):
            try:
                os.unlink(entry.name, dir_fd=at)
            except FileNotFoundError:
                pass
            except OSError:
                left.append(entry.name)
    return left


def make_portable(folder: Path) -> None:
    """Rename what is called as no artifact can hold it; open to the caller what is closed to them."""
    for at, entry in _entries(folder):
        with suppress(OSError):
            mode = entry.stat(follow_symlinks=False).st_mode
            if not mode & stat.S_IRUSR:
                _set_mode(entry.name, at, stat.S_IMODE(mode) | stat.S_IRUSR)
            if (portable := _UNPORTABLE.sub("_", entry.name)) != entry.name:
                os.rename(entry.name, f"{portable[:100]}-{secrets.token_hex(4)}", src_dir_fd=at, dst_dir_fd=at)


def _entries(folder: Path) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Everything below a folder, what is in a folder before the folder itself, each with the descriptor of the folder that it is in.

    The tree may be deeper than recursion, or a path, may be long: what is too deep is brought up first. What cannot be read is left out.
    """
    try:
        top = _enter(str(folder), None)
    except OSError:
        return
    deep: list[str] = []
    try:
        yield from _below(top, 0, top, deep)
        while deep:
            with suppress(OSError):
                at = _enter(name := deep.pop(), top)
                try:
                    yield from _below(at, len(name) + 1, top, deep)
                finally:
                    os.close(at)
    finally:
        os.close(top)


def _below(at: int, length: int, top: int, deep: list[str]) -> Iterator[tuple[int, os.DirEntry[str]]]:
    try:
        with os.scandir(at) as found:
            entries = list(found)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            with suppress(OSError):
                inner = _enter(entry.name, at)
                try:
                    if length + len(entry.name) > _LONG_PATH:
                        name = f"too-deep-{secrets.token_hex(4)}"
                        os.rename(entry.name, name, src_dir_fd=at, dst_dir_fd=top)
                        deep.append(name)
                        continue
                    yield from _below(inner, length + len(entry.name) + 1, top, deep)
                finally:
                    os.close(inner)
        yield at, entry


def _enter(name: str, at: int | None) -> int:
    """Open a folder, and have it open to its owner: in a closed one nothing could be looked at or removed."""
    with suppress(PermissionError):
        inner = os.open(name, _FOLDER, dir_fd=at)
        with suppress(OSError):
            if (mode := stat.S_IMODE(os.fstat(inner).st_mode)) & 0o700 != 0o700:
                os.fchmod(inner, mode | 0o700)
        return inner
    _set_mode(name, at, 0o700)
    return os.open(name, _FOLDER, dir_fd=at)


def _set_mode(name: str, at: int | None, mode: int) -> None:
    """Like chmod, which would follow a link that has taken the place of what was looked at."""
    itself = os.open(name, _ITSELF, dir_fd=at)
    try:
        if not stat.S_ISLNK(os.fstat(itself).st_mode):
            os.chmod(f"/proc/self/fd/{itself}", mode)  # noqa: PTH101 - no Path: this names a descriptor
    finally:
        os.close(itself)
