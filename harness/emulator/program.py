"""A kernel made ready to run: decoded once, packed for the C core, kept with the kernel."""

from __future__ import annotations

import ctypes
import io
import weakref
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Union

from harness.emulator.code_object import Kernel
from harness.emulator.decode.decoder import FAMILIES, context, decode
from harness.emulator.decode.instruction import Instruction
from harness.emulator.errors import Place, Unimplemented
from harness.emulator.library import Core, core


@dataclass(frozen=True)
class Program:
    """Decoded instructions, their records, and the index of each by word of the image."""

    kernel: Kernel
    core: Core
    instructions: list[Instruction]
    entry: int
    records: Any  # ctypes buffers: the core reads them where they are
    index_of: Any

    def place(self, index: int) -> Place:
        """Return where an instruction is, with its source line if the code object has one."""
        one = self.instructions[index]
        return Place(self.kernel.name, one.pc - self.kernel.entry, str(one), source_line(self.kernel, one.pc))


_PROGRAMS: weakref.WeakKeyDictionary[Kernel, Program] = weakref.WeakKeyDictionary()


def program(kernel: Kernel) -> Program:
    """Return the program of a kernel; raise `Unimplemented` for an architecture that is not implemented."""
    if (known := _PROGRAMS.get(kernel)) is not None:
        return known
    if kernel.architecture not in FAMILIES:
        known_names = ", ".join(sorted(FAMILIES))
        raise Unimplemented(
            f"Kernel {kernel.name} is compiled for {kernel.architecture}, which the emulator does not have. Compile it for {known_names}."
        )
    loaded = core(kernel.wavefront)
    at = context(kernel.image, kernel.architecture, kernel.wavefront, loaded.operations)
    instructions = decode(at, *kernel.text)
    index_of = array("I", [0xFFFFFFFF]) * (len(kernel.image) // 4 + 1)
    for n, one in reversed(list(enumerate(instructions))):
        index_of[one.pc // 4] = n  # of the first half, where two are executed at once
    missing = loaded.operations["unimplemented"].address
    for one in instructions:
        if one.target is not None:
            index = index_of[one.target // 4] if 0 <= one.target < len(kernel.image) else 0xFFFFFFFF
            one.imm, one.operation = (0, None) if index == 0xFFFFFFFF else (index, one.operation)
    # The code may end in an instruction that is no s_endpgm; what follows stops the wave.
    records = b"".join(one.record(one.operation or missing) for one in instructions) + Instruction("end", 4).record(missing)
    made = Program(
        kernel, loaded, instructions, index_of[kernel.entry // 4], at_fixed_address(records), at_fixed_address(index_of.tobytes())
    )
    _PROGRAMS[kernel] = made
    return made


def at_fixed_address(data: bytes) -> Any:
    """Return a ctypes buffer with a copy of `data`, which C may read while the buffer lives."""
    return (ctypes.c_char * max(len(data), 1)).from_buffer(bytearray(data or b"\0"))


def source_line(kernel: Kernel, pc: int) -> Union[str, None]:
    """Return "file.py:12" of an offset in the image, or None without debug information."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(kernel.elf))
        if not elf.has_dwarf_info():
            return None
        dwarf = elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            states = [entry.state for entry in program.get_entries() if entry.state is not None]
            states = sorted((state for state in states if state.line), key=lambda state: state.address)
            at = bisect_right([state.address for state in states], pc) - 1
            if at >= 0:
                offset = 0 if program.header.version >= 5 else 1
                name = program.header["file_entry"][states[at].file - offset].name.decode()
                return f"{PurePosixPath(name).name}:{states[at].line}"
    except (ELFError, DWARFError, LookupError, AttributeError, ValueError):
        return None
    return None
