"""Hand kernels that another run compiled to this one: `--compiled`. The host finds them, checks their hash, and copies them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from harness.collect.untrusted_files import RejectedError, opened
from harness.errors import UsageError
from harness.records import COMPILED_FOLDER, COMPILED_HERE, COMPILED_MANIFEST, COMPILED_NAME

_MOST_FILES, _MOST_LIST, _MOST_BYTES, _MOST_TOGETHER = 100_000, 32 << 20, 256 << 20, 4 << 30  # files; bytes of their list, of each, of all
_REMEDY = "Compile again with --save-compiled, and hand over that run."


def find(folder: Path) -> Path:
    """Return the compiled kernels in a run's folder, in its `raw/`, or in a target's folder.

    Raises:
        UsageError: there are none, or those of several targets.
    """
    places = [folder, *sorted((folder / "raw").glob("*")), *sorted(folder.glob("*"))]
    found = list(dict.fromkeys(place / COMPILED_FOLDER for place in places if (place / COMPILED_FOLDER / COMPILED_MANIFEST).is_file()))
    if len(found) != 1:
        raise UsageError(
            f"--compiled {folder}: {'there are no compiled kernels' if not found else 'there are several targets with compiled kernels'}.",
            "A run leaves them with --save-compiled ARCHITECTURE, in raw/TARGET/compile/.",
            "Name that run's folder, or the folder of one of its targets.",
        )
    return found[0]


def digest_of(folder: Path, expected: str = "") -> str:
    """Return the SHA-256 of the kernels' list, which holds the hash of each file.

    Raises:
        UsageError: it is not the `expected` one, or cannot be read.
    """
    digest = hashlib.sha256(_read(folder, COMPILED_MANIFEST, _MOST_LIST)).hexdigest()
    if expected and digest != expected:
        raise UsageError(
            f"{folder} does not hold the kernels that were planned: the SHA-256 of their list is {digest}.",
            "--compiled-hash names another one, so the artifact was replaced or is of another run.",
            _REMEDY,
        )
    return digest


def copy(folder: Path, raw: Path, planned: str) -> None:
    """Copy the kernels into a target's folder, where the inside looks for them. Nothing outside of their list is taken, and no link.

    Raises:
        UsageError: they have changed since `planned`, the SHA-256 of their list; it names something else; or they would fill the disk.
    """
    digest_of(folder, planned)
    text = _read(folder, COMPILED_MANIFEST, _MOST_LIST)
    try:
        files = json.loads(text)["files"]
        if not isinstance(files, dict) or len(files) > _MOST_FILES or not all(COMPILED_NAME.fullmatch(name) for name in files):
            raise ValueError("it names something other than files of kernels")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"The list of the kernels in {folder} cannot be read: {error}.", "It was damaged or forged.", _REMEDY) from None
    room = _MOST_TOGETHER
    for name, digest in files.items():
        data = _read(folder, name, _MOST_BYTES)
        room -= len(data)
        if room < 0:
            raise UsageError(
                f"The kernels in {folder} have more than {_MOST_TOGETHER >> 30} GiB.",
                "A package's kernels take far less, so their list was forged or damaged.",
                _REMEDY,
            )
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(f"{folder / name} was changed after it was compiled.", "The artifact was damaged or forged.", _REMEDY)
        _write(raw / COMPILED_HERE / name, data)
    _write(raw / COMPILED_HERE / COMPILED_MANIFEST, text)


def _read(folder: Path, name: str, most: int) -> bytes:
    try:
        with opened(folder, name, most) as file:
            return file.read()
    except (RejectedError, OSError) as error:
        raise UsageError(f"{folder / name}: {error}.", "The kernels of --compiled are not complete.", _REMEDY) from None


def _write(path: Path, data: bytes) -> None:
    """Write a file before anything of the package runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with open(handle, "wb") as file:
        file.write(data)
