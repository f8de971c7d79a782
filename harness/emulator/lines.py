"""Source lines of instructions, from a code object's debug information (DWARF 4 and 5)."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from harness.emulator.code_object import Kernel

# A kernel calls the functions of its language: the line of the call says more than the line of the function.
_LANGUAGE = "/triton/language/"
Line = tuple[str, int]


def first_line(kernel: Kernel) -> Line:
    """Return the first line of a kernel that its debug information knows."""
    found = (source(kernel.elf, pc) for pc in range(kernel.entry, kernel.end, 4))
    return next((line for line in found if line[0] and line[1]), ("", 0))


def source(elf: bytes, pc: int) -> Line:
    """Return file and line of the code at an offset of the image; ("", 0) without debug information."""
    rows, calls = _debug(elf)
    at = bisect_right([address for address, _ in rows], pc) - 1
    if at < 0:
        return "", 0
    frames = [rows[at][1], *(call for start, end, call in reversed(calls) if start <= pc < end)]  # from the inside out
    return next((frame for frame in frames if _LANGUAGE not in frame[0]), frames[0])


@lru_cache(maxsize=16)
def _debug(elf: bytes) -> tuple[list[tuple[int, Line]], list[tuple[int, int, Line]]]:
    """Return the line of each address where it changes, and the ranges of inlined calls with the line of the call, outer ones first."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.elf.elffile import ELFFile

    rows: list[tuple[int, Line]] = []
    calls: list[tuple[int, int, Line]] = []
    try:
        file = ELFFile(io.BytesIO(elf))
        if file.has_dwarf_info():
            dwarf = file.get_dwarf_info()
            for unit in dwarf.iter_CUs():
                program = dwarf.line_program_for_CU(unit)
                if program is None:
                    continue
                states = [entry.state for entry in program.get_entries() if entry.state is not None]
                rows += [(state.address, (_path(program, unit, state.file), state.line)) for state in states if state.line]
                calls += _calls(dwarf, unit, program)
    except (ELFError, DWARFError, LookupError, AttributeError, ValueError):
        return [], []
    return sorted(rows), calls


def _calls(dwarf: Any, unit: Any, program: Any) -> Iterator[tuple[int, int, Line]]:
    base = unit.get_top_DIE().attributes
    for entry in unit.iter_DIEs():
        if entry.tag != "DW_TAG_inlined_subroutine":
            continue
        known = entry.attributes
        call = _path(program, unit, known["DW_AT_call_file"].value), known["DW_AT_call_line"].value
        if "DW_AT_ranges" in known:
            start = base["DW_AT_low_pc"].value
            for part in dwarf.range_lists().get_range_list_at_offset(known["DW_AT_ranges"].value, unit):
                if hasattr(part, "begin_offset"):
                    yield start + part.begin_offset, start + part.end_offset, call
        elif "DW_AT_low_pc" in known:
            low = known["DW_AT_low_pc"].value
            yield low, low + known["DW_AT_high_pc"].value, call


def _path(program: Any, unit: Any, number: int) -> str:
    """Return the path of a file by its number: since DWARF 5, numbers begin with 0, before that with 1, and folder 0 is the compiler's."""
    header = program.header
    is_new = header.version >= 5
    entry = header["file_entry"][number if is_new else number - 1]
    folders = list(header["include_directory"])
    if not is_new:
        folders.insert(0, unit.get_top_DIE().attributes["DW_AT_comp_dir"].value)
    name, folder = entry.name.decode(), folders[entry.dir_index].decode()
    return name if name.startswith("/") else f"{folder}/{name}"
