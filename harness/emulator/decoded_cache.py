"""Decoded code that is kept on disk, beside the C core: a kernel that Triton's cache has is decoded no second time either."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.emulator.code_object import Kernel

_HEAD = struct.Struct("<IIIII")
_MOST_BYTES = 256 << 20  # of all files together: the least recently used go first
_LEVEL = 1  # records repeat themselves: to a fifteenth of their size in a millisecond


@dataclass(frozen=True)
class Decoded:
    """What the C core reads of `count` instructions: their records and one that ends them, and the index of each by word of the image.

    `units` are bytes of the smallest access to LDS, and to global memory.
    """

    count: int
    records: bytes
    index_of: bytes
    units: tuple[int, int]


def kept(kernel: Kernel, core: Path, decode: Callable[[], Decoded]) -> Decoded:
    """Return what `decode` once returned for this code, for this decoder and for the C core in the file `core`."""
    digest = hashlib.sha256(f"{core.name} {_decoder()} {kernel.architecture} {kernel.wavefront} {kernel.text}".encode())
    digest.update(kernel.image)
    path = core.parent / "decoded" / digest.hexdigest()[:32]
    with contextlib.suppress(OSError, zlib.error, struct.error, ValueError):
        found = _restored(path.read_bytes())
        with contextlib.suppress(OSError):  # another user's file, a read-only disk
            os.utime(path)  # used now: access times are often switched off
        return found
    found = decode()
    with contextlib.suppress(OSError):  # a full or read-only disk costs time only
        path.parent.mkdir(exist_ok=True)
        _write(path, found)
        _forget(path.parent, _MOST_BYTES)
    return found


def _restored(data: bytes) -> Decoded:
    count, records, index_of, *units = _HEAD.unpack_from(data)
    whole = zlib.decompress(data[_HEAD.size :])
    if len(whole) != records + index_of:
        raise ValueError("cut off")
    return Decoded(count, whole[:records], whole[records:], (units[0], units[1]))


def _write(path: Path, found: Decoded) -> None:
    head = _HEAD.pack(found.count, len(found.records), len(found.index_of), *found.units)
    descriptor, new = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(head + zlib.compress(found.records + found.index_of, _LEVEL))
    Path(new).replace(path)


def _forget(folder: Path, most: int) -> None:
    """Remove the files that were used least recently until all of them have at most three quarters of `most` bytes, if they have more."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # another process may remove it first
            found = entry.stat()
            files.append((found.st_mtime, found.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    if total <= most:
        return
    for _, size, path in sorted(files):
        if total <= most * 3 // 4:
            return
        Path(path).unlink(missing_ok=True)
        total -= size


@cache
def _decoder() -> str:
    """Return a hash of the decoder's sources and of the version of its tables."""
    from importlib.metadata import version

    digest = hashlib.sha256(version("tinygrad").encode())
    for source in sorted(Path(__file__).with_name("decode").rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
