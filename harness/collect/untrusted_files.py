"""Open untrusted files: regular files only, never through a link, and with limits on what reading one may cost.

A raw folder may come from a build artifact that someone else's code wrote. Files are read as streams, so that a limit applies before memory
is allocated. Archives are never unpacked here. A file that does not pass raises an error with one sentence.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

MAX_SECONDS = 120.0  # per file, for any reason: a slow disk, a slow network, a million small items


# Limits for all files of a report. A thousand JUnit files of a thousand tests fit; tests/bench/bundles.py checks a minute and a GB.
REPORT_DISK = 512 << 20
REPORT_MEMORY = 640 << 20
REPORT_ELEMENTS = 6_000_000
_FULL = "all files of a report together may take at most {}"


class RejectedError(Exception):
    """The file exists and cannot be used. The text says why, and where in the file."""


class MissingError(RejectedError):
    """The file is missing."""


class Room:
    """What all files of one report may cost together. Each file has its own limits too, but there may be thousands.

    A file that exceeds the rest is refused like one that is too large; the others are kept.
    """

    def __init__(self) -> None:
        self.disk, self.memory, self.elements = REPORT_DISK, REPORT_MEMORY, REPORT_ELEMENTS

    def read(self, count: int) -> None:
        """Use up bytes on disk."""
        self.disk -= count
        if self.disk < 0:
            raise RejectedError(_FULL.format(f"{REPORT_DISK >> 20} MiB of files"))

    def keep(self, count: int) -> None:
        """Use up bytes of memory. A refused request uses none."""
        if count > self.memory:
            raise RejectedError(_FULL.format(f"{REPORT_MEMORY >> 20} MiB of memory"))
        self.memory -= count

    def parse(self, count: int) -> None:
        """Use up XML elements."""
        self.elements -= count
        if self.elements < 0:
            raise RejectedError(_FULL.format(f"{REPORT_ELEMENTS} elements of XML"))


class Budget:
    """What one file may cost: bytes on disk, estimated bytes of memory, and seconds. It also uses up the shared room."""

    def __init__(self, disk: int, memory: int, room: Room | None = None) -> None:
        self.disk, self.memory = disk, memory
        self._room = room or Room()
        self._read = self._kept = 0
        self._ends = time.monotonic() + MAX_SECONDS

    def read(self, count: int) -> None:
        """Count bytes that were read, and check the clock."""
        self._room.read(count)
        self._read += count
        if self._read > self.disk:
            raise RejectedError(f"it is too large: at most {self.disk} bytes are read")
        if time.monotonic() >= self._ends:
            raise RejectedError(f"it takes too long to read: more than {MAX_SECONDS:.0f} s")

    def keep(self, count: int) -> None:
        """Count memory that will be kept until the report is written."""
        if self._kept + count > self.memory:
            raise RejectedError(f"it is too large: its content would take more than {self.memory >> 20} MiB of memory")
        self._room.keep(count)
        self._kept += count

    def give_back(self) -> None:
        """Return the memory of a refused file."""
        self._room.memory += self._kept
        self._kept = 0

    def parse(self, count: int) -> None:
        """Count XML elements."""
        self._room.parse(count)


@contextlib.contextmanager
def opened(folder: Path, name: str, limit: int) -> Iterator[BinaryIO]:
    """Open a regular file of at most `limit` bytes for reading. `name` is the harness's own text, never one from an artifact.

    Raises:
        MissingError: the file is missing.
        RejectedError: it is too large or not a regular file, or its path contains a link.
    """
    try:
        file = _open(folder, name)
    except FileNotFoundError:
        raise MissingError("it is missing") from None
    except OSError as error:
        raise RejectedError(f"it cannot be read: {error.strerror}") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise RejectedError(f"it is too large: {size} bytes, at most {limit} are read")
        try:
            yield file
        except OSError as error:
            raise RejectedError(f"it cannot be read: {error.strerror}") from None


def clip(text: str, limit: int) -> str:
    """Return at most `limit` characters, and how many were cut."""
    return text if len(text) <= limit else f"{text[:limit]} … {len(text) - limit} characters cut"


def _open(folder: Path, name: str) -> BinaryIO:
    *above, last = PurePosixPath(name).parts
    # Open each folder relative to the last descriptor, so that nothing can be replaced by a link after it was checked.
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in above:
            _refuse_link(part, at)
            at, done = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at), at
            os.close(done)
        # Never open a device: opening alone has an effect on some.
        if not stat.S_ISREG(_refuse_link(last, at)):
            raise RejectedError("it is not a regular file")
        # O_NONBLOCK, so that a named pipe that took the file's place cannot block the report.
        file = open(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at), "rb")  # noqa: SIM115 - the caller closes it
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RejectedError("it is not a regular file")
    return file


def _refuse_link(part: str, at: int) -> int:
    mode = os.stat(part, dir_fd=at, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        raise RejectedError("it is, or lies behind, a symbolic link; links are not followed")
    return mode
