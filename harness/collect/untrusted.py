"""Untrusted files, opened: regular ones only, never through a link, and what reading one may cost.

A raw folder may come from a build artifact that somebody else's code wrote. Its files are read as a stream, so that a cap is met before
memory is taken; no archive is ever unpacked here. What does not pass raises, with one sentence that says why.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

MAX_SECONDS = 120.0  # for one file, however it comes to be slow: a disk, a network, a million small things


# Of all files of a report. A thousand JUnit files of a thousand tests fit; tests/bench/bundles.py holds the rest to a minute and a GB.
REPORT_DISK = 512 << 20
REPORT_MEMORY = 640 << 20
REPORT_ELEMENTS = 6_000_000
_FULL = "there is no room for it: all files of a report take at most {}"


class RejectedError(Exception):
    """The file is there and cannot be used; the text says why, and where in it."""


class MissingError(RejectedError):
    """The file is not there."""


class Room:
    """What all files of one report may cost together. Each of them has caps of its own; there may be thousands of them.

    A file for which there is no room left is refused like one that is too large; the others stay.
    """

    def __init__(self) -> None:
        self.disk, self.memory, self.elements = REPORT_DISK, REPORT_MEMORY, REPORT_ELEMENTS

    def read(self, count: int) -> None:
        """Take bytes on disk."""
        self.disk -= count
        if self.disk < 0:
            raise RejectedError(_FULL.format(f"{REPORT_DISK >> 20} MiB of files"))

    def keep(self, count: int) -> None:
        """Take memory; what is refused takes none."""
        if count > self.memory:
            raise RejectedError(_FULL.format(f"{REPORT_MEMORY >> 20} MiB of memory"))
        self.memory -= count

    def parse(self, count: int) -> None:
        """Take elements of XML."""
        self.elements -= count
        if self.elements < 0:
            raise RejectedError(_FULL.format(f"{REPORT_ELEMENTS} elements of XML"))


class Budget:
    """What one file may cost: bytes on disk, bytes of memory for what is made of it (an estimate), and seconds; and its part of a room."""

    def __init__(self, disk: int, memory: int, room: Room | None = None) -> None:
        self.disk, self.memory = disk, memory
        self._room = room or Room()
        self._read = self._kept = 0
        self._ends = time.monotonic() + MAX_SECONDS

    def read(self, count: int) -> None:
        """Bytes have been read; the clock is looked at too."""
        self._room.read(count)
        self._read += count
        if self._read > self.disk:
            raise RejectedError(f"it is too large: at most {self.disk} bytes are read")
        if time.monotonic() >= self._ends:
            raise RejectedError(f"it takes too long to read: more than {MAX_SECONDS:.0f} s")

    def keep(self, count: int) -> None:
        """Memory is about to be kept until the report is written."""
        if self._kept + count > self.memory:
            raise RejectedError(f"it is too large: what is in it would take more than {self.memory >> 20} MiB of memory")
        self._room.keep(count)
        self._kept += count

    def give_back(self) -> None:
        """The file is refused, and nothing of it is kept."""
        self._room.memory += self._kept
        self._kept = 0

    def parse(self, count: int) -> None:
        """Elements of XML have been met."""
        self._room.parse(count)


@contextlib.contextmanager
def opened(folder: Path, name: str, limit: int) -> Iterator[BinaryIO]:
    """A regular file of at most `limit` bytes, for reading. `name` is the harness's own text, never one from an artifact.

    Raises:
        MissingError: it is not there.
        RejectedError: it is too large or no regular file, or a link is on the way to it.
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
    """At most `limit` characters, and a word on how many were cut."""
    return text if len(text) <= limit else f"{text[:limit]} … {len(text) - limit} characters cut"


def _open(folder: Path, name: str) -> BinaryIO:
    *above, last = PurePosixPath(name).parts
    # From folder to folder by descriptor: what has been looked at cannot be exchanged for a link before it is used.
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in above:
            _refuse_link(part, at)
            at, done = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at), at
            os.close(done)
        # A device is never opened: some act on that alone.
        if not stat.S_ISREG(_refuse_link(last, at)):
            raise RejectedError("it is not a regular file")
        # O_NONBLOCK, so that a named pipe that has taken its place cannot hold the report up.
        file = open(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at), "rb")  # noqa: SIM115 - closed by whoever called
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
