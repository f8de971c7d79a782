"""Untrusted bytes → records. Nothing of a raw folder is believed before it has passed through here.

A raw folder may come from a build artifact that somebody else's code wrote. So: only regular files, no symbolic link anywhere below the
folder, sizes capped before parsing, no document types in XML, no duplicate keys, no NaN or infinity in JSON, depths and lengths capped.
What does not pass is a `Fault` with one sentence; it never reaches the user as a traceback.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness.records import SCHEMA_VERSION, Verdict

MAX_JSON_BYTES = 8 << 20
MAX_LINES_BYTES = 256 << 20
MAX_LINE_BYTES = 8 << 20
MAX_LINES = 200_000
MAX_XML_BYTES = 64 << 20
MAX_XML_ELEMENTS = 1_000_000
MAX_XML_DEPTH = 32
MAX_JSON_DEPTH = 32
MAX_STRING = 100_000
MAX_INTEGER = 1 << 63

T = TypeVar("T")


class RejectedError(Exception):
    """The file is there and cannot be used; the text says why, and where in it."""


class MissingError(RejectedError):
    """The file is not there."""


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


def read_bytes(folder: Path, name: str, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes. `name` is the harness's own text, never one from an artifact."""
    path = folder
    for part in PurePosixPath(name).parts:
        path = path / part
        if path.is_symlink():
            raise RejectedError("it is, or lies behind, a symbolic link; links are not followed")
    try:
        # O_NOFOLLOW for a link that appears after the check, O_NONBLOCK so that a named pipe cannot hold the report up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise RejectedError("it is not a regular file")
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise MissingError("it is missing") from None
    except OSError as error:
        raise RejectedError(f"it cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise RejectedError(f"it is too large: {state.st_size} bytes, at most {limit} are read")
    return data


def read_record(folder: Path, name: str, kind: type[T]) -> tuple[T | None, Fault | None]:
    """One JSON file as one record."""
    return guarded(name, lambda: _parse(read_bytes(folder, name, MAX_JSON_BYTES), _adapter(kind)))


def read_lines(folder: Path, name: str, kind: type[T]) -> tuple[tuple[T, ...], Fault | None]:
    """A file of one JSON record a line. Good lines are kept whatever the others hold; a last line may be cut off."""
    content, fault = guarded(name, lambda: _lines(read_bytes(folder, name, MAX_LINES_BYTES), _adapter(kind)))
    if content is None:
        return (), fault
    records, wrong, cut = content
    if wrong:
        more = f"; and {len(wrong) - 1} more lines" if len(wrong) > 1 else ""
        fault = Fault(name, Verdict.INVALID, wrong[0] + more)
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


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, and a word on how many were cut."""
    return text if len(text) <= limit else f"{text[:limit]} … {len(text) - limit} characters cut"


def _lines(data: bytes, adapter: TypeAdapter[T]) -> tuple[tuple[T, ...], list[str], bool]:
    records: list[T] = []
    wrong: list[str] = []
    for number, line in enumerate(io.BytesIO(data), start=1):
        if number > MAX_LINES:
            raise RejectedError(f"it is too large: more than {MAX_LINES} lines")
        if not line.strip():
            continue
        try:
            if len(line) > MAX_LINE_BYTES:
                raise RejectedError(f"{len(line)} bytes, at most {MAX_LINE_BYTES} are read")
            records.append(_parse(line.strip(), adapter))
        except RejectedError as error:
            if not line.endswith(b"\n"):
                return tuple(records), wrong, True
            wrong.append(f"line {number}: {error}")
    return tuple(records), wrong, False


def _parse(data: bytes, adapter: TypeAdapter[T]) -> T:
    # Twice on purpose: the standard library sees duplicate keys and every literal, pydantic holds the record to its annotations.
    raw = _decode(data)
    version = raw.get("schema_version", SCHEMA_VERSION) if isinstance(raw, dict) else SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise RejectedError(f"schema_version is {clip(repr(version), 40)}, this warpwave reads {SCHEMA_VERSION}")
    try:
        return adapter.validate_json(data, strict=True)
    except ValidationError as error:
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
    _check_bounds(value)
    return value


def _check_bounds(value: object) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, str) and len(item) > MAX_STRING:
                raise RejectedError(f"a text of {len(item)} characters, at most {MAX_STRING} are read")
            if isinstance(item, dict):
                below.extend((*item, *item.values()))
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
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
