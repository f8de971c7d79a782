"""Open untrusted files: regular files only, never through a link, and with limits on what reading one may cost.

A raw folder may come from a build artifact that someone else's code wrote. Files are read as streams, so that a limit applies before memory
is allocated. Archives are never unpacked here. A file that does not pass raises an error with one sentence.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from warpwave.records import SCHEMA_VERSION, Job, Verdict

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


# Untrusted JSON → records. Everything in a raw folder passes through here, except JUnit, which `cases` reads.
#
# Sizes are capped before parsing. Duplicate keys, NaN, infinity and integers beyond 64 bits are refused. Depths, lengths, counts
# and memory are capped. A file that does not pass becomes a `Fault` with one sentence, never a traceback.

MAX_JSON_BYTES = 8 << 20
MAX_LINES_BYTES = 256 << 20
MAX_LINE_BYTES = 8 << 20
MAX_LINES = 200_000
MAX_WRONG_LINES = 100
MAX_MEMORY = 192 << 20  # short text can take much memory: `1,` is 2 bytes on disk and 32 in a tuple of floats
MAX_JSON_DEPTH = 32
MAX_VALUES = 100_000  # in one record: a line, or a whole file
MAX_STRING = 100_000
MAX_INTEGER = 1 << 63

_MAX_ERRORS = 100
_RECORD_BYTES = 1500  # size of the largest record with default fields

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """What is wrong with one file: `invalid`, or `incomplete` if it is missing or cut off."""

    name: str
    verdict: Verdict
    text: str
    missing: bool = False

    def __str__(self) -> str:
        """Return the line that a report shows."""
        return f"{self.name}: {self.verdict.value}: {self.text}"


def read_record(folder: Path, name: str, kind: type[T], room: Room | None = None) -> tuple[T | None, Fault | None]:
    """Read a JSON file as one record. `room` is the budget that all files of a report share."""

    def read() -> T:
        with opened(folder, name, MAX_JSON_BYTES) as file:
            # Read the file's size and one byte more. Python would allocate a buffer of the maximum size otherwise.
            data = file.read(min(os.fstat(file.fileno()).st_size, MAX_JSON_BYTES) + 1)
            budget = Budget(MAX_JSON_BYTES, MAX_MEMORY, room)
            budget.read(len(data))
            record, size = _parse(data, kind)
            budget.keep(size)
            return record

    return guarded(name, read)


def read_lines(folder: Path, name: str, kind: type[T], room: Room | None = None) -> tuple[tuple[T, ...], Fault | None]:
    """Read a file with one JSON record per line. Good lines are kept whatever the others hold; the last line may be cut off."""

    def read() -> tuple[tuple[T, ...], int, str, bool]:
        with opened(folder, name, MAX_LINES_BYTES) as file:
            budget = Budget(MAX_LINES_BYTES, MAX_MEMORY, room)
            try:
                return _lines(file, kind, budget)
            except RejectedError:
                budget.give_back()
                raise

    content, fault = guarded(name, read)
    if content is None:
        return (), fault
    records, wrong, first, cut = content
    if wrong:
        more = f"; and {wrong - 1} more lines" if wrong > 1 else ""
        more += ", and the rest was not read" if wrong == MAX_WRONG_LINES else ""
        fault = Fault(name, Verdict.INVALID, first + more)
    elif cut:
        fault = Fault(name, Verdict.INCOMPLETE, f"the last line is cut off; the {len(records)} before it are kept")
    return records, fault


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def guarded(name: str, read: Callable[[], T]) -> tuple[T | None, Fault | None]:
    """Return what `read` returns, or the fault that stopped it."""
    try:
        return read(), None
    except MissingError as error:
        return None, Fault(name, Verdict.INCOMPLETE, str(error), missing=True)
    except RejectedError as error:
        return None, Fault(name, Verdict.INVALID, str(error))


def _lines(file: BinaryIO, kind: type[T], budget: Budget) -> tuple[tuple[T, ...], int, str, bool]:
    """Return the records, the number of wrong lines, the first error, and whether the last line is cut off."""
    records: list[T] = []
    wrong, first = 0, ""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        budget.read(len(line))
        if number > MAX_LINES:
            raise RejectedError(f"it is too large: more than {MAX_LINES} lines")
        if len(line) > MAX_LINE_BYTES:
            # Reading on would return the rest of this line instead of the next one.
            raise RejectedError(f"it is too large: line {number} is longer than {MAX_LINE_BYTES} bytes")
        if not line.strip():
            continue
        try:
            record, size = _parse(line.strip(), kind)
        except RejectedError as error:
            if not line.endswith(b"\n"):
                return tuple(records), wrong, first, True
            wrong += 1
            first = first or f"line {number}: {error}"
            if wrong == MAX_WRONG_LINES:
                break
        else:
            budget.keep(size)
            records.append(record)
    return tuple(records), wrong, first, False


def _parse(data: bytes, kind: type[T]) -> tuple[T, int]:
    """Return a record, and the approximate bytes of memory it takes."""
    # Parse twice on purpose: the standard library detects duplicate keys and every literal, pydantic validates the annotations.
    raw = _decode(data)
    size = _measure(raw)
    current = getattr(kind, "schema_version", SCHEMA_VERSION)
    # A file that names no version has the first one: tools that write these files by hand leave it out.
    version = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else current
    if kind is Job and isinstance(raw, dict) and type(version) is int and version == 1:
        data, version = json.dumps(Job.of_version_1(raw)).encode(), current
    if version != current:
        raise RejectedError(f"schema_version is {clip(repr(version), 40)}, this warpwave reads {current}")
    try:
        # From a cache: building one takes longer than reading a small file.
        return _ADAPTERS.setdefault(kind, _ADAPTERS.get(kind) or TypeAdapter(kind)).validate_json(data, strict=True), size
    except ValidationError as error:
        if error.error_count() > _MAX_ERRORS:  # listing each error would take many times the memory of the file
            raise RejectedError(f"{error.error_count()} of its values are wrong") from None
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "(top level)"
        raise RejectedError(f"{clip(where, 200)}: {clip(first['msg'], 300)}") from None


def _decode(data: bytes) -> object:
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except UnicodeDecodeError as error:
        raise RejectedError(f"not UTF-8, byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise RejectedError(f"not JSON, line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise RejectedError(f"nested deeper than {MAX_JSON_DEPTH}") from None
    return value


def _measure(value: object) -> int:
    """Return the approximate bytes of memory that a value takes.

    Raises:
        RejectedError: a text is too long, there are too many values, or they are nested too deep.
    """
    size, count = _RECORD_BYTES, 0
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        below: list[object] = []
        count += len(level)
        if count > MAX_VALUES:
            raise RejectedError(f"more than {MAX_VALUES} values in one record")
        for item in level:
            size += sys.getsizeof(item) + 8
            if isinstance(item, str) and len(item) > MAX_STRING:
                raise RejectedError(f"a text of {len(item)} characters, at most {MAX_STRING} are read")
            if isinstance(item, dict):
                below.extend((*item, *item.values()))
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return size
        level = below
    raise RejectedError(f"nested deeper than {MAX_JSON_DEPTH}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RejectedError(f"the key {clip(key, 80)!r} occurs twice")
        found[key] = value
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise RejectedError(f"{text} is not a finite number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise RejectedError(f"{clip(text, 40)} is not a finite number")
    return number


def _bounded(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= MAX_INTEGER:
        raise RejectedError(f"the integer {clip(text, 20)} is too large")
    return int(text)
