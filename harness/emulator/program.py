"""A kernel made ready to run: decoded once, packed for the C core, kept while it is in use."""

from __future__ import annotations

import ctypes
import gc
import re
from array import array
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from harness.emulator.code_object import Kernel
from harness.emulator.decode.decoder import FAMILIES, context, decode
from harness.emulator.decode.instruction import Instruction
from harness.emulator.decode.widened import mark_widened
from harness.emulator.decoded_cache import Decoded, kept
from harness.emulator.errors import Place, Unimplemented
from harness.emulator.library import Core, core
from harness.emulator.lines import source


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
