"""A kernel made ready to run: decoded once, packed for the C core, kept while it is in use."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import os
import re
import struct
import tempfile
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from warpwave.emulator.code_object import Kernel, source
from warpwave.emulator.decode.decoder import FAMILIES, context, decode
from warpwave.emulator.decode.instruction import Instruction
from warpwave.emulator.decode.memory import mark_widened
from warpwave.emulator.errors import Place, Unimplemented
from warpwave.emulator.library import Core, core

# Decoded code that is kept on disk, beside the C core: a kernel that Triton's cache has is decoded no second time either.

_HEAD = struct.Struct("<IIIII")
_MOST_CACHED_BYTES = 256 << 20  # of all files together: the least recently used go first
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
        _evict(path.parent, _MOST_CACHED_BYTES)
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


def _evict(folder: Path, most: int) -> None:
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
    for file in sorted(Path(__file__).with_name("decode").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Program:
    """A kernel's decoded code: the records of its `count` instructions, and the index of each by word of the image."""

    kernel: Kernel
    core: Core
    count: int
    entry: int
    records: Any  # ctypes buffers: the core reads them where they are
    index_of: Any
    units: tuple[int, int]  # bytes of the smallest access to LDS, and to global memory: 1, 2 or 4

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions for people. Only a place that a message names needs them: what was decoded before comes from the disk."""
        return _instructions(self.kernel, self.core)

    def place(self, index: int) -> Place:
        """Return where an instruction is, with its source line if the code object has one."""
        one = self.instructions[index]
        file, line = source(self.kernel.elf, one.pc)
        return Place(self.kernel.name, one.pc - self.kernel.entry, str(one), f"{PurePosixPath(file).name}:{line}" if file else None, file)


# The programs that were launched last, the latest at the end. A suite launches hundreds, each a few times: the others come from the disk
# again in a millisecond.
_PROGRAMS: dict[Kernel, Program] = {}
_MOST_BYTES = 16 << 20


def program(kernel: Kernel) -> Program:
    """Return the program of a kernel; raise `Unimplemented` for an architecture that is not implemented."""
    if (known := _PROGRAMS.pop(kernel, None)) is not None:
        _PROGRAMS[kernel] = known
        return known
    if kernel.architecture not in FAMILIES:
        known_names = ", ".join(sorted(FAMILIES))
        raise Unimplemented(
            f"Kernel {kernel.name} is compiled for {kernel.architecture}, which the emulator does not have. Compile it for {known_names}."
        )
    loaded = core(kernel.wavefront)
    found = kept(kernel, loaded.path, lambda: _decoded(kernel, loaded))
    records = at_fixed_address(found.records)
    loaded.library.prepare_code(records, found.count + 1)
    entry = array("I", found.index_of)[kernel.entry // 4]
    made = Program(kernel, loaded, found.count, entry, records, at_fixed_address(found.index_of), found.units)
    _PROGRAMS[kernel] = made
    _forget()
    return made


def _forget() -> None:
    kept_bytes = 0
    for age, (kernel, made) in enumerate(reversed(list(_PROGRAMS.items()))):
        kept_bytes += len(made.records) + len(made.index_of)
        if age and kept_bytes > _MOST_BYTES:
            _PROGRAMS.pop(kernel, None)


def _instructions(kernel: Kernel, loaded: Core) -> list[Instruction]:
    collects = gc.isenabled()
    gc.disable()  # thousands of small objects, all of which stay: every collection would look through all modules in vain
    try:
        return decode(context(kernel.image, kernel.architecture, kernel.wavefront, loaded.operations), *kernel.text)
    finally:
        if collects:
            gc.enable()


def _decoded(kernel: Kernel, loaded: Core) -> Decoded:
    instructions = _instructions(kernel, loaded)
    mark_widened(instructions)
    index_of = array("I", [0xFFFFFFFF]) * (len(kernel.image) // 4 + 1)
    for n, one in reversed(list(enumerate(instructions))):
        index_of[one.pc // 4] = n  # of the first half, where two are executed at once
    missing = loaded.operations["unimplemented"].address
    for one in instructions:
        if one.target is not None:
            index = index_of[one.target // 4] if 0 <= one.target < len(kernel.image) else 0xFFFFFFFF
            one.imm, one.operation = (0, None) if index == 0xFFFFFFFF else (index, one.operation)
    # The code may end in an instruction that is no s_endpgm; what follows stops the wave.
    records = [one.record(loaded.number(one.operation or missing)) for one in (*instructions, Instruction("end", 4))]
    units = _unit(instructions, ("ds_",)), _unit(instructions, ("global_", "buffer_", "flat_", "s_load", "s_buffer"))
    return Decoded(len(instructions), b"".join(records), index_of.tobytes(), units)


def _unit(instructions: list[Instruction], prefixes: tuple[str, ...]) -> int:
    names = {one.name for one in instructions if one.name.startswith(prefixes)}
    if any(re.search(r"_[bui]8|byte", name) for name in names):
        return 1
    return 2 if any(re.search(r"_[bui]16|short|d16", name) for name in names) else 4


def at_fixed_address(data: bytes) -> Any:
    """Return a ctypes buffer with a copy of `data`, which C may read while the buffer lives."""
    return (ctypes.c_char * max(len(data), 1)).from_buffer(bytearray(data or b"\0"))
