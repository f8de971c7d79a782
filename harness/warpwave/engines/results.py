"""Clean a results folder after the code under test could write to it: only files and folders remain, and the caller owns them. So a program
that reads, uploads or deletes the folder later follows no link that a kernel package has planted. Folders are opened by descriptor and
never through a link, because a process that still runs could replace a folder by a link at any moment."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Union

from warpwave.options import GIB
from warpwave.records import Cap, write_text

_LONG_PATH = 500  # characters below the results folder, of up to 4 bytes each; the system allows paths of 4096 bytes
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ITSELF = os.O_PATH | os.O_NOFOLLOW
# One such character in a name makes actions/upload-artifact refuse the whole artifact. Control characters and non-text bytes are here too.
_UNPORTABLE = re.compile(r"""["*:<>?|\\\x00-\x1f\x7f\ud800-\udfff]""")

Owner = Union[tuple[int, int], None]


def tidy(folder: Path, owner: Owner = None) -> list[str]:
    """Remove everything but files and folders, then hard links and setuid, setgid and sticky bits. Give the rest to `owner`, if set. Return
    the names of entries that could not be removed."""
    left = clear(folder)
    for at, entry in _entries(folder):
        with suppress(OSError):
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(state.st_mode) and state.st_nlink > 1:
                # The other name may be outside the folder. If all names are in here, the last one that is found stays.
                os.unlink(entry.name, dir_fd=at)
                continue
            # Setuid and setgid would let a program run with the rights of its new owner.
            if (wanted := state.st_mode & 0o777) != stat.S_IMODE(state.st_mode):
                _set_mode(entry.name, at, wanted)
            if owner:
                os.chown(entry.name, *owner, dir_fd=at, follow_symlinks=False)
    if owner:
        with suppress(OSError):
            os.chown(folder, *owner, follow_symlinks=False)
    return left


def put(path: Path, text: str) -> None:
    """Write a file of the host into a results folder, in the place of whatever code under test has put there: a link, a pipe, a folder.
    Raises OSError if the disk is full or broken, or the folder is not ours."""
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        path.rename(aside)  # which works even if what is in it cannot be removed
        shutil.rmtree(aside, ignore_errors=True)
    write_text(path, text)


def clear(folder: Path) -> list[str]:
    """Remove links, pipes, sockets and devices, the first step of `tidy`. This is fast because it does not inspect files. Return the names
    of entries that could not be removed."""
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
    """Rename entries whose names an artifact cannot contain, and make unreadable entries readable for their owner."""
    for at, entry in _entries(folder):
        with suppress(OSError):
            mode = entry.stat(follow_symlinks=False).st_mode
            if not mode & stat.S_IRUSR:
                _set_mode(entry.name, at, stat.S_IMODE(mode) | stat.S_IRUSR)
            if (portable := _UNPORTABLE.sub("_", entry.name)) != entry.name:
                os.rename(entry.name, f"{portable[:100]}-{secrets.token_hex(4)}", src_dir_fd=at, dst_dir_fd=at)


def _entries(folder: Path) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yield every entry below a folder with its parent's descriptor. The contents of a folder come before the folder itself. The tree may
    be too deep for recursion or for a path, so a folder that is too deep moves to the top first. Unreadable ones are skipped."""
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
    """Open a folder, and give its owner full access: without it, the contents can be neither read nor removed."""
    with suppress(PermissionError):
        inner = os.open(name, _FOLDER, dir_fd=at)
        with suppress(OSError):
            if (mode := stat.S_IMODE(os.fstat(inner).st_mode)) & 0o700 != 0o700:
                os.fchmod(inner, mode | 0o700)
        return inner
    _set_mode(name, at, 0o700)
    return os.open(name, _FOLDER, dir_fd=at)


def _set_mode(name: str, at: int | None, mode: int) -> None:
    """Change the mode. Unlike chmod, do not follow a link that has replaced the entry in the meantime."""
    itself = os.open(name, _ITSELF, dir_fd=at)
    try:
        if not stat.S_ISLNK(os.fstat(itself).st_mode):
            os.chmod(f"/proc/self/fd/{itself}", mode)  # noqa: PTH101 - no Path: this names a descriptor
    finally:
        os.close(itself)


# Limit how much a run writes to its results folder. The folder is on the host's disk and has no quota, so we measure it during the run.
#
# A file counts with its size (so holes count) or the space it takes on the disk, whichever is more. A file with several names counts
# once.
# In a container, unnamed files that a process holds open count too. A folder that cannot be measured counts as over the limit. Two things
# are missed: files that are only memory-mapped, without name or descriptor, and files that exist only between two measurements.

LOOK_S = 1.0
_SHARE = 4  # measuring takes at most one part in four of the time
_STATIONS = 200


class Quota:
    """Whether a run's results exceed their limit."""

    exceeded = ""
    hopeless = False  # over twice the limit: the run gets no more time to stop by itself


NO_QUOTA = Quota()


class Watch(threading.Thread, Quota):
    """Measures a folder at intervals and notes when it is over its limit. Use as a context manager."""

    def __init__(self, folder: Path, cap: Cap, inside: Union[str, None] = None) -> None:
        """`inside` is the folder's path in the container, or None if there is no container."""
        super().__init__(daemon=True)
        self.folder, self.cap, self.inside = folder, cap, inside
        self._enough = threading.Event()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._enough.set()

    def run(self) -> None:
        """Measure until the context ends."""
        pause = 0.0
        while not self._enough.wait(pause):
            begun = time.monotonic()
            self.exceeded = self.exceeded or over(self.folder, self.cap, self.inside)
            if self.exceeded:
                twice = Cap(2 * self.cap.bytes, 2 * self.cap.files)
                self.hopeless = bool(over(self.folder, twice, self.inside))
            pause = max(LOOK_S if not self.exceeded else LOOK_S / 4, (_SHARE - 1) * (time.monotonic() - begun))


def over(folder: Path, cap: Cap, inside: Union[str, None] = None) -> str:
    """Return a phrase that says which limit the folder exceeds, or an empty string."""
    seen: set[tuple[int, int]] = set()
    size = files = 0
    try:
        with ExitStack() as opened:
            root = os.open(folder, _FOLDER)
            opened.callback(os.close, root)
            unnamed = _unlinked(os.fstat(root), inside) if inside is not None else ()
            for state in chain(_walk(root, opened), unnamed):
                if state.st_nlink != 1 and not stat.S_ISDIR(state.st_mode):
                    if (state.st_dev, state.st_ino) in seen:
                        continue
                    seen.add((state.st_dev, state.st_ino))
                files += 1
                size += max(state.st_blocks * 512, state.st_size if stat.S_ISREG(state.st_mode) else 0)
                if size > cap.bytes or files > cap.files:
                    what = f"more than {cap.bytes / GIB:g} GiB" if size > cap.bytes else f"more than {cap.files} files and folders"
                    return f"it wrote {what} to its results; the limit is {cap}"
    except OSError as error:
        return f"its results cannot be measured ({error.strerror}), so the limit of {cap} cannot be kept"
    return ""


def _walk(root: int, opened: ExitStack) -> Iterator[os.stat_result]:
    # A tree may be deeper than the longest allowed path. So we keep some folders on the way open ("stations") and start new paths there.
    waiting, stations = [(root, ".")], 0
    while waiting:
        above, path = waiting.pop()
        try:
            at = os.open(path, _FOLDER, dir_fd=above)
        except (FileNotFoundError, NotADirectoryError):  # removed or replaced in the meantime
            continue
        far = len(path) > _LONG_PATH
        if far and (stations := stations + 1) > _STATIONS:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        with ExitStack() as here, os.scandir(at) as entries:
            (opened if far else here).callback(os.close, at)
            for entry in entries:
                with suppress(FileNotFoundError):
                    yield (state := entry.stat(follow_symlinks=False))
                    if stat.S_ISDIR(state.st_mode):
                        waiting.append((at, entry.name) if far else (above, f"{path}/{entry.name}"))


def _unlinked(root: os.stat_result, inside: str) -> Iterator[os.stat_result]:
    """Yield the unnamed files on the folder's disk that a process of the container holds open. A process belongs to the container if it
    sees the folder at `inside`. Processes that we have no permission to inspect are skipped."""
    for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError):
            seen = os.stat(f"/proc/{process}/root{inside}")  # noqa: PTH116
            same_folder = (seen.st_dev, seen.st_ino) == (root.st_dev, root.st_ino)
            descriptors = os.listdir(f"/proc/{process}/fd") if same_folder else []  # noqa: PTH208
            for number in descriptors:
                with suppress(OSError):
                    state = os.stat(f"/proc/{process}/fd/{number}")  # noqa: PTH116
                    if state.st_nlink == 0 and state.st_dev == root.st_dev and stat.S_ISREG(state.st_mode):
                        yield state
