"""Write records to disk: atomically, and in strict JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Union

from warpwave.records.words import Scalar


def finite(value: Scalar) -> Scalar:
    """Return a parameter as strict JSON can hold it: infinity and NaN, which are common constants of kernels, become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_json(record: Any) -> str:
    """Return a record as one line of strict JSON: no NaN, no infinity."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False)


def to_text(record: Any) -> str:
    """Return a record as JSON with indentation, for people to read."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False, indent=1) + "\n"


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
