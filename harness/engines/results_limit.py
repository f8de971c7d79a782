"""Limit how much a run writes to its results folder. The folder is on the host's disk and has no quota, so we measure it during the run.

A file counts with its size (so holes count) or the space it takes on the disk, whichever is more. A file with several names counts once.
In a container, unnamed files that a process holds open count too. A folder that cannot be measured counts as over the limit. Two things
are missed: files that are only memory-mapped, without name or descriptor, and files that exist only between two measurements.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Union

from harness.options import GIB, Cap

LOOK_S = 1.0
_SHARE = 4  # measuring takes at most one part in four of the time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONG_PATH = 500  # characters, of up to 4 bytes each
_STATIONS = 200


class Watch(threading.Thread):
    """Measures a folder at intervals and notes when it is over its limit. Use as a context manager."""

    def __init__(self, folder: Path, cap: Cap, inside: Union[str, None] = None) -> None:
        """`inside` is the folder's path in the container, or None if there is no container."""
        super().__init__(daemon=True)
        self.folder, self.cap, self.inside = folder, cap, inside
        self.exceeded = ""
        self.hopeless = False  # over twice the limit: the run gets no more time to stop by itself
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
    limits = f"{cap.bytes / GIB:g} GiB, and {cap.files} files"
    try:
        for state in _everything(str(folder), inside):
            if state.st_nlink != 1 and not stat.S_ISDIR(state.st_mode):
                if (state.st_dev, state.st_ino) in seen:
                    continue
                seen.add((state.st_dev, state.st_ino))
            files += 1
            size += max(state.st_blocks * 512, state.st_size if stat.S_ISREG(state.st_mode) else 0)
            if size > cap.bytes or files > cap.files:
                what = f"more than {cap.bytes / GIB:g} GiB" if size > cap.bytes else f"more than {cap.files} files and folders"
                return f"it wrote {what} to its results; the limit is {limits}"
    except OSError as error:
        return f"its results cannot be measured ({error.strerror}), so the limit of {limits} cannot be kept"
    return ""


def _everything(folder: str, inside: Union[str, None]) -> Iterator[os.stat_result]:
    with ExitStack() as opened:
        root = os.open(folder, _FOLDER)
        opened.callback(os.close, root)
        yield from _below(root, opened)
        if inside is not None:
            yield from _unlinked(os.fstat(root), inside)


def _below(root: int, opened: ExitStack) -> Iterator[os.stat_result]:
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
    """Yield the unnamed files on the folder's disk that a process of the container holds open.

    A process belongs to the container if it sees the folder at `inside`. Processes that we have no permission to inspect are skipped.
    """
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
