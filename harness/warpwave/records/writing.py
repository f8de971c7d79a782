"""Write records to disk, atomically and in strict JSON, and read them back."""

import dataclasses
import functools
import json
import math
import os
import tempfile
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from warpwave.records.words import Scalar

Record = TypeVar("Record")


def finite(value: Scalar) -> Scalar:
    """Return a parameter as strict JSON can hold it: infinity and NaN, which are common constants of kernels, become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_json(record: Any) -> str:
    """Return a record as one line of strict JSON: no NaN, no infinity."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False)


def to_text(record: Any) -> str:
    """Return a record as JSON with indentation, for people to read."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def from_json(kind: type[Record], text: str) -> Record:
    """Return a record from JSON, with every record in it. Raises ValueError if a value is not of its type, or a key is unknown or missing.
    The message names the first one. Bounds are not checked."""
    return _read(kind, json.loads(text), kind.__name__)  # type: ignore[no-any-return]


_hints = functools.cache(functools.partial(get_type_hints, include_extras=True))


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _read(inner[0], value, where)
    if origin is Union:
        wrong: list[ValueError] = []
        for each in inner:
            try:
                return _read(each, value, where)
            except ValueError as error:
                wrong.append(error)
        raise wrong[0]
    if origin is Literal and value in inner:
        return value
    if origin in (tuple, list) and isinstance(value, list):
        return origin(_read(inner[0], each, f"{where}[{place}]") for place, each in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {_read(inner[0], key, where): _read(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(kind)
        if unknown := [key for key in value if key not in hints]:
            raise ValueError(f"{where}.{unknown[0]}: there is no such key")
        try:
            return kind(**{key: _read(hints[key], each, f"{where}.{key}") for key, each in value.items()})
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from None
    if isinstance(kind, type) and issubclass(kind, Enum) and value in [each.value for each in kind]:
        return kind(value)
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{where}: {value!r} is not {getattr(kind, '__name__', kind)}")


def dump(record: Any, path: Path) -> None:
    """Write a record so that a reader sees either the old file or the new one, never half of it."""
    write_text(path, to_text(record))


def write_text(path: Path, text: Union[str, bytes, Iterable[str]]) -> None:
    """Replace a file in one step: temporary file, fsync, rename. A large text may come in pieces. A link in its place is replaced, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name must not be guessable: the code under test may have access to the folder.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            for piece in [text] if isinstance(text, (str, bytes)) else text:
                # A file name that is not valid text contains lone surrogates, which UTF-8 does not have. JSON accepts these escapes.
                file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fchmod(handle, 0o644)
            os.fsync(handle)
        os.replace(temporary, path)  # noqa: PTH105 - a str, and the same on both halves
    finally:
        Path(temporary).unlink(missing_ok=True)
