"""A kernel made ready to run: decoded once, packed for the C core, kept while it is in use."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import linecache
import os
import re
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from warpwave.emulator.code_object import Kernel, Line, source
from warpwave.emulator.decode.decoder import FAMILIES, context, decode
from warpwave.emulator.decode.instruction import RECORD_BYTES, Instruction
from warpwave.emulator.decode.memory import mark_widened
from warpwave.emulator.errors import Place, Unimplemented
from warpwave.emulator.library import Core, core

# Decoded code that is kept on disk, beside the C core: a kernel that Triton's cache has is decoded no second time either.

_MOST_CACHED_BYTES = 256 << 20  # of all files together: the least recently used go first
_LEVEL = 1  # records repeat themselves: to a fifteenth of their size in a millisecond
_NOWHERE = 0xFFFFFFFF
_NEAR = 16  # instructions in which an atomic's line is looked for


class Decoded(NamedTuple):
    """What the C core reads: the records of all instructions and one that ends them, and the index of each by word of the image.

    `units` are bytes of the smallest access to LDS, and to global memory: 1, 2 or 4.
    """

    records: bytes
    index_of: bytes
    units: tuple[int, int]


def kept(kernel: Kernel, core: Path, decode: Callable[[], Decoded]) -> Decoded:
    """Return what `decode` once returned for this code, for this decoder and for the C core in the file `core`."""
    digest = hashlib.sha256(f"{core.name} {_decoder()} {kernel.architecture} {kernel.wavefront} {kernel.text}".encode())
    digest.update(kernel.image)
    path = core.parent / "decoded" / digest.hexdigest()[:32]
    with contextlib.suppress(OSError, zlib.error):
        data, behind = zlib.decompress(path.read_bytes()), 2 + 4 * _words(kernel)
        with contextlib.suppress(OSError):  # another user's file, a read-only disk
            os.utime(path)  # used now: access times are often switched off
        return Decoded(data[behind:], data[2:behind], (data[0], data[1]))
    made = decode()
    with contextlib.suppress(OSError):  # a full or read-only disk costs time only
        path.parent.mkdir(exist_ok=True)
        descriptor, new = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(zlib.compress(bytes(made.units) + made.index_of + made.records, _LEVEL))
        Path(new).replace(path)
        _evict(path.parent, _MOST_CACHED_BYTES)
    return made


def _words(kernel: Kernel) -> int:
    return len(kernel.image) // 4 + 1


def _evict(folder: Path, most: int) -> None:
    """Remove the files that were used least recently until all of them have at most `most` bytes."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # another process may remove it first
            files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
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
    """A kernel's decoded code, as in `Decoded`: the records of its `count` instructions, and the index of its first one."""

    kernel: Kernel
    core: Core
    count: int
    entry: int
    records: Any  # ctypes buffers: the core reads them where they are
    index_of: Any
    units: tuple[int, int]

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions for people. Only a place that a message names needs them: what was decoded before comes from the disk."""
        return _instructions(self.kernel, self.core)

    def place(self, index: int) -> Place:
        """Return where an instruction is, with its source line if the code object has one."""
        one = self.instructions[index]
        file, line = self._line(index)
        return Place(self.kernel.name, one.pc - self.kernel.entry, str(one), f"{PurePosixPath(file).name}:{line}" if file else None, file)

    def _line(self, index: int) -> Line:
        """Return file and line of an instruction: of an atomic, a line that has one.

        LLVM merges an atomic's mask with that of a store, and gives the atomic the store's line. What takes its result is close behind it.
        """
        own, *others = (
            source(self.kernel.elf, self.instructions[at].pc) for at in (index, *self._around(index, 1), *self._around(index, -1))
        )
        return next((line for line in (own, *others) if "atomic" in linecache.getline(*line)), own)

    def _around(self, index: int, step: int) -> Iterator[int]:
        """Yield the instructions close behind an atomic, or before it with a `step` of -1; no other's."""
        for at in range(index + step, index + step * _NEAR, step) if "_atomic_" in self.instructions[index].name else ():
            if not 0 <= at < len(self.instructions) or "_atomic_" in self.instructions[at].name:
                return
            yield at


@lru_cache(maxsize=32)  # a suite launches hundreds of kernels, each a few times: the others come from the disk again in a millisecond
def program(kernel: Kernel) -> Program:
    """Return the program of a kernel; raise `Unimplemented` for an architecture that is not implemented."""
    if kernel.architecture not in FAMILIES:
        known_names = ", ".join(sorted(FAMILIES))
        raise Unimplemented(
            f"Kernel {kernel.name} is compiled for {kernel.architecture}, which the emulator does not have. Compile it for {known_names}."
        )
    loaded = core(kernel.wavefront)
    found = kept(kernel, loaded.path, lambda: _decoded(kernel, loaded))
    records, count = at_fixed_address(found.records), len(found.records) // RECORD_BYTES
    loaded.library.prepare_code(records, count)
    entry = array("I", found.index_of)[kernel.entry // 4]
    return Program(kernel, loaded, count - 1, entry, records, at_fixed_address(found.index_of), found.units)


def _instructions(kernel: Kernel, loaded: Core) -> list[Instruction]:
    return decode(context(kernel.image, kernel.architecture, kernel.wavefront, loaded.operations), *kernel.text)


def _decoded(kernel: Kernel, loaded: Core) -> Decoded:
    instructions = _instructions(kernel, loaded)
    mark_widened(instructions)
    index_of = array("I", [_NOWHERE]) * _words(kernel)
    for n, one in reversed(list(enumerate(instructions))):
        index_of[one.pc // 4] = n  # of the first half, where two are executed at once
    missing = loaded.operations["unimplemented"].number
    for one in instructions:
        if one.target is not None:
            index = index_of[one.target // 4] if 0 <= one.target < len(kernel.image) else _NOWHERE
            one.imm, one.operation = (0, None) if index == _NOWHERE else (index, one.operation)
    # The code may end in an instruction that is no s_endpgm; what follows stops the wave.
    records = [one.record(missing if one.operation is None else one.operation) for one in (*instructions, Instruction("end", 4))]
    units = _unit(instructions, ("ds_",)), _unit(instructions, ("global_", "buffer_", "flat_", "s_load", "s_buffer"))
    return Decoded(b"".join(records), index_of.tobytes(), units)


def _unit(instructions: list[Instruction], prefixes: tuple[str, ...]) -> int:
    names = {one.name for one in instructions if one.name.startswith(prefixes)}
    if any(re.search(r"_[bui]8|byte", name) for name in names):
        return 1
    return 2 if any(re.search(r"_[bui]16|short|d16", name) for name in names) else 4


def at_fixed_address(data: bytes) -> Any:
    """Return a ctypes buffer with a copy of `data`, which C may read while the buffer lives."""
    return (ctypes.c_char * max(len(data), 1)).from_buffer(bytearray(data or b"\0"))
