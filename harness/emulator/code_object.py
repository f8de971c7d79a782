"""Read a code object: an ELF file with a kernel descriptor, a metadata note, text and debug lines."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from harness.emulator.errors import InvalidCodeObject

# No card has more: scratch is 64 MiB for a wave of 32 lanes. An image is bounded so that damage cannot take the host's memory.
_LIMITS = {"kernarg_bytes": 1 << 16, "lds": 160 << 10, "scratch": 2 << 20, "registers": 1024, "spills": 1 << 20}
_IMAGE_LIMIT = 256 << 20


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
    from elftools.common.exceptions import ELFError
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
    except (
        ELFError,
        OverflowError,
        MemoryError,
        msgpack.UnpackException,
        KeyError,
        AttributeError,
        ValueError,
        TypeError,
        IndexError,
    ) as error:
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
