"""Untrusted JSON → records. Nothing of a raw folder is believed before it has passed through here; JUnit goes through `cases`.

Sizes are capped before parsing; duplicate keys, NaN, infinity and integers beyond 64 bits are refused; depths, lengths, counts and the
memory of what is kept are capped. What does not pass is a `Fault` with one sentence; it never reaches the user as a traceback.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness.collect.untrusted import Budget, MissingError, RejectedError, Room, clip, opened
from harness.records import SCHEMA_VERSION, Verdict

MAX_JSON_BYTES = 8 << 20
MAX_LINES_BYTES = 256 << 20
MAX_LINE_BYTES = 8 << 20
MAX_LINES = 200_000
MAX_WRONG_LINES = 100
MAX_MEMORY = 192 << 20  # a short line can hold much: `1,` is 2 bytes on disk and 32 in a tuple of floats
MAX_JSON_DEPTH = 32
MAX_VALUES = 100_000  # in one record, a line or a file of its own
MAX_STRING = 100_000
MAX_INTEGER = 1 << 63

_MAX_ERRORS = 100
_RECORD_BYTES = 1500  # of the largest record, all fields at their defaults

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """What is wrong with one file: `invalid`, or `incomplete` where it is missing or was cut off."""

    name: str
    verdict: Verdict
    text: str
    missing: bool = False

    def __str__(self) -> str:
        """The line that a report shows."""
        return f"{self.name}: {self.verdict.value}: {self.text}"


def read_record(folder: Path, name: str, kind: type[T], room: Room | None = None) -> tuple[T | None, Fault | None]:
    """One JSON file as one record. `room` is what the files of a report share."""

    def read() -> T:
        with opened(folder, name, MAX_JSON_BYTES) as file:
            # As much as is there, and a byte more: room for the largest would be made each time.
            data = file.read(min(os.fstat(file.fileno()).st_size, MAX_JSON_BYTES) + 1)
            budget = Budget(MAX_JSON_BYTES, MAX_MEMORY, room)
            budget.read(len(data))
            record, size = _parse(data, _adapter(kind))
            budget.keep(size)
            return record

    return guarded(name, read)


def read_lines(folder: Path, name: str, kind: type[T], room: Room | None = None) -> tuple[tuple[T, ...], Fault | None]:
    """A file of one JSON record a line. Good lines are kept whatever the others hold; a last line may be cut off."""

    def read() -> tuple[tuple[T, ...], int, str, bool]:
        with opened(folder, name, MAX_LINES_BYTES) as file:
            budget = Budget(MAX_LINES_BYTES, MAX_MEMORY, room)
            try:
                return _lines(file, _adapter(kind), budget)
            except RejectedError:
                budget.give_back()
                raise

    content, fault = guarded(name, read)
    if content is None:
        return (), fault
    records, wrong, first, cut = content
    if wrong:
        more = f"; and {wrong - 1} more lines" if wrong > 1 else ""
        more += ", then it was given up" if wrong == MAX_WRONG_LINES else ""
        fault = Fault(name, Verdict.INVALID, first + more)
    elif cut:
        fault = Fault(name, Verdict.INCOMPLETE, f"the last line is cut off; the {len(records)} before it are kept")
    return records, fault


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Made once a kind: making one takes longer than reading a small file with it."""
    return _ADAPTERS.setdefault(kind, _ADAPTERS.get(kind) or TypeAdapter(kind))


def guarded(name: str, read: Callable[[], T]) -> tuple[T | None, Fault | None]:
    """What `read` returns, or the fault that kept it from returning."""
    try:
        return read(), None
    except MissingError as error:
        return None, Fault(name, Verdict.INCOMPLETE, str(error), missing=True)
    except RejectedError as error:
        return None, Fault(name, Verdict.INVALID, str(error))


def _lines(file: BinaryIO, adapter: TypeAdapter[T], budget: Budget) -> tuple[tuple[T, ...], int, str, bool]:
    """The records, how many lines are wrong, what is wrong with the first of them, and whether the last one is cut off."""
    records: list[T] = []
    wrong, first = 0, ""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        budget.read(len(line))
        if number > MAX_LINES:
            raise RejectedError(f"it is too large: more than {MAX_LINES} lines")
        if len(line) > MAX_LINE_BYTES:
            # What follows would not be the next line but the rest of this one.
            raise RejectedError(f"it is too large: line {number} is longer than {MAX_LINE_BYTES} bytes")
        if not line.strip():
            continue
        try:
            record, size = _parse(line.strip(), adapter)
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


def _parse(data: bytes, adapter: TypeAdapter[T]) -> tuple[T, int]:
    """A record, and about how many bytes of memory it takes."""
    # Twice on purpose: the standard library sees duplicate keys and every literal, pydantic holds the record to its annotations.
    raw = _decode(data)
    size = _measure(raw)
    version = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise RejectedError(f"schema_version is {clip(repr(version), 40)}, this warpwave reads {SCHEMA_VERSION}")
    try:
        return adapter.validate_json(data, strict=True), size
    except ValidationError as error:
        if error.error_count() > _MAX_ERRORS:  # each told with its place would take many times the memory of the file
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
    """About how many bytes of memory it takes.

    Raises:
        RejectedError: a text in it is too long, there are too many values in it, or they are nested too deep.
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
            raise RejectedError(f"the key {clip(key, 80)!r} is there twice")
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
