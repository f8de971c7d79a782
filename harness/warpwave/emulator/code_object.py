"""Read a code object: an ELF file with a kernel descriptor, a metadata note, text and debug lines."""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from warpwave.emulator.decode.decoder import FAMILIES
from warpwave.emulator.errors import InvalidCodeObject

# No card has more: scratch is 64 MiB for a wave of 32 lanes. An image is bounded so that damage cannot take the host's memory.
_LIMITS = {"kernarg_bytes": 1 << 16, "lds": 160 << 10, "scratch": 2 << 20, "registers": 1024, "spills": 1 << 20}
_IMAGE_LIMIT = 64 << 20
_TEXT_LIMIT = 1 << 20  # each word of it is decoded before the first is executed; a card caches 64 KiB


@dataclass(frozen=True)
class Argument:
    """One kernel argument: byte `offset` and `size` in the kernarg segment; `kind` is "global_buffer", "by_value" or a hidden one."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel of a code object, read and checked.

    `image` holds the bytes of the code object as loaded into memory. `entry` and `end` are the
    kernel's offsets in it; `text` has those of all code, called functions included. Sizes are in bytes; `lds` and `scratch`
    (a lane's) are the fixed ones. `wavefront` is 32 or 64. `registers` are a lane's vector registers,
    `spills` those of them that are kept in scratch.
    """

    name: str
    architecture: str
    wavefront: int
    arguments: tuple[Argument, ...]
    kernarg_bytes: int
    lds: int
    scratch: int
    entry: int
    end: int
    text: tuple[int, int]
    descriptor: bytes = field(repr=False)
    image: bytes = field(repr=False)
    elf: bytes = field(repr=False)
    registers: int = 0
    spills: int = 0


def load(code_object: bytes) -> Kernel:
    """Read the one kernel of a code object; raise `InvalidCodeObject` if there is none, or more than one."""
    import msgpack
    from elftools.elf.elffile import ELFFile

    try:
        elf: Any = ELFFile(io.BytesIO(code_object))  # a part that is missing is an AttributeError below
        metadata = _metadata(elf, msgpack.unpackb)
        kernels = metadata["amdhsa.kernels"]
        if len(kernels) != 1:
            raise InvalidCodeObject(f"A code object has {len(kernels)} kernels. Triton makes one each. Pass a code object of Triton's.")
        (kernel,) = kernels
        symbols = {symbol.name: symbol for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
        code, image = symbols[kernel[".name"]], _image(elf)
        text = elf.get_section_by_name(".text")
        kd = symbols[kernel[".symbol"]]["st_value"]
        read = Kernel(
            name=kernel[".name"],
            architecture=metadata["amdhsa.target"].rsplit("-", 1)[1].split(":")[0],
            wavefront=kernel[".wavefront_size"],
            arguments=tuple(Argument(arg[".offset"], arg[".size"], arg[".value_kind"]) for arg in kernel.get(".args", ())),
            kernarg_bytes=kernel[".kernarg_segment_size"],
            lds=kernel[".group_segment_fixed_size"],
            scratch=kernel[".private_segment_fixed_size"],
            entry=code["st_value"],
            end=code["st_value"] + code["st_size"],
            text=(text["sh_addr"], text["sh_addr"] + text["sh_size"]),
            descriptor=image[kd : kd + 64],
            image=image,
            elf=code_object,
            registers=kernel.get(".vgpr_count", 0),
            spills=kernel.get(".vgpr_spill_count", 0),
        )
        _check(read)
        return read
    except InvalidCodeObject:
        raise
    except Exception as error:  # damaged bytes end in nearly anything, in pyelftools and in msgpack
        hint = "Usually the bytes are not what a compiler made. Pass the code object of a compiled kernel, unchanged."
        raise InvalidCodeObject(f"A code object cannot be read: {type(error).__name__}: {error}. {hint}") from None


def _check(kernel: Kernel) -> None:
    """Raise a ValueError for a field that no compiler writes: the C core trusts all of them."""
    if kernel.wavefront not in (32, 64):
        raise ValueError(f"a wave has {kernel.wavefront!r} lanes, not 32 or 64")
    for name, limit in _LIMITS.items():
        value = getattr(kernel, name)
        if type(value) is not int or not 0 <= value <= limit:
            raise ValueError(f"{name} is {value!r}, not a whole number from 0 to {limit}")
    if len(kernel.descriptor) != 64:
        raise ValueError("the kernel descriptor is not in a loaded segment")
    if not 0 <= kernel.text[0] <= kernel.entry <= kernel.end <= kernel.text[1] <= len(kernel.image):
        raise ValueError("the kernel's code is not in the loaded text")
    if kernel.text[1] - kernel.text[0] > _TEXT_LIMIT:
        raise ValueError(f"its code takes {kernel.text[1] - kernel.text[0]} bytes, more than {_TEXT_LIMIT}")


def _metadata(elf: Any, unpack: Any) -> Any:
    for segment in elf.iter_segments(type="PT_NOTE"):
        for note in segment.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA"):
                return unpack(note["n_descdata"])
    raise InvalidCodeObject("A code object has no metadata note. Usually it is an object file of a host. Pass a compiled kernel's.")


def _image(elf: Any) -> bytes:
    """Return all loaded segments at their addresses; relocations other than none are not supported."""
    segments = list(elf.iter_segments(type="PT_LOAD"))
    size = max(segment["p_vaddr"] + max(segment["p_memsz"], segment["p_filesz"]) for segment in segments)
    if size > _IMAGE_LIMIT:
        raise ValueError(f"its segments take {size} bytes of memory, more than {_IMAGE_LIMIT}")
    image = bytearray(size)
    for segment in segments:
        image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
    for section in elf.iter_sections():
        if section["sh_type"] in ("SHT_RELA", "SHT_REL") and section["sh_flags"] & 2 and section["sh_size"]:
            raise InvalidCodeObject("A code object has relocations. Triton's have none. Report the kernel that made it.")
    return bytes(image)


# The kernel descriptor: how the hardware sets up a wave's registers (AMDGPUUsage, "Kernel Descriptor").

# User SGPRs in their order: each is a bit of kernel_code_properties, and takes so many registers.
_USER = {
    "private_segment_buffer": 4,
    "dispatch_ptr": 2,
    "queue_ptr": 2,
    "kernarg_segment_ptr": 2,
    "dispatch_id": 2,
    "flat_scratch_init": 2,
    "private_segment_size": 1,
}
_NOWHERE = 0xFFFFFFFF
_UNREAD = 122  # a register that no kernel reads a pointer from


def set_up(kernel: Kernel, machine: Any) -> None:
    """Write into `struct machine` what the descriptor of a kernel says of a wave's registers.

    Raise `InvalidCodeObject` if it asks for more registers than a wave has.
    """
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", kernel.descriptor, 44)
    family = FAMILIES[kernel.architecture]
    user, at = {}, 0
    for bit, (name, registers) in enumerate(_USER.items()):
        if properties >> bit & 1:
            user[name] = at
            at += registers
    # All words are preloaded behind the pointers; the kernel's own first instructions load them again.
    words = preload & 0x7F if family == "cdna" and kernel.architecture != "gfx90a" else 0
    if at + words > 16:
        raise InvalidCodeObject(
            f"A kernel descriptor asks for {at + words} user registers; a wave has 16. Usually the bytes are damaged. "
            "Compile the kernel again."
        )
    machine.preload_at, machine.preload_words = at, 0 if preload >> 7 else words
    machine.kernarg_at, machine.packet_at = user.get("kernarg_segment_ptr", _UNREAD), user.get("dispatch_ptr", _UNREAD)
    machine.private_at = user.get("private_segment_buffer", _NOWHERE)
    at = rsrc2 >> 1 & 31
    for axis in range(3):
        is_wanted = rsrc2 >> (7 + axis) & 1
        machine.sgpr_ids[axis] = at if is_wanted else _NOWHERE
        at += is_wanted
    # Of the flags: NaN clamps to 0, IEEE (gfx12 has neither: other bits have their places), FP16_OVFL.
    machine.mode = rsrc1 >> 12 & 0xFF | (rsrc1 >> 26 & 1) << 23
    if family != "rdna4":
        machine.mode |= (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9
    machine.rows = min(((rsrc3 & 63) + 1) * 4, 256) if family == "cdna" else 256
    machine.accumulators = max(0, min(((rsrc1 & 63) + 1) * 8 - machine.rows, 256)) if family == "cdna" else 0
    machine.ids_in_ttmp, machine.packed_ids = family == "rdna4", True


# Source lines of instructions, from a code object's debug information (DWARF 4 and 5).

# A kernel calls the functions of its language: the line of the call says more than the line of the function.
_LANGUAGE = "/triton/language/"
Line = tuple[str, int]


def first_line(kernel: Kernel) -> Line:
    """Return the first line of a kernel that its debug information knows."""
    found = (source(kernel.elf, pc) for pc in range(kernel.entry, kernel.end, 4))
    return next((line for line in found if line[0] and line[1]), ("", 0))


@lru_cache(maxsize=4096)
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
    except Exception:  # damaged debug information ends in nearly anything; the message that asks for a line must still come
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
