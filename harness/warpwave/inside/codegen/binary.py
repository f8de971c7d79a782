"""Read a compiled kernel's binary and assembly, for each backend of Triton's wheel. Only this folder reads vendor assembly.

To add a backend, see docs/guides/third-vendor.md.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from warpwave.inside.codegen.barriers import acquired_alone, lds_in_flight, published_early
from warpwave.inside.codegen.order import never_waited, order_of
from warpwave.records import Multiprocessor


@dataclass(frozen=True)
class Reading:
    """Fields of `CompiledKernel` with the same names; None if the binary does not say."""

    registers: Union[int, None] = None
    spills: Union[int, None] = None
    stack_bytes: Union[int, None] = None
    load_bits: Union[int, None] = None
    matrix: tuple[str, ...] = ()
    vgprs: Union[int, None] = None
    agprs: Union[int, None] = None
    sgprs: Union[int, None] = None
    spill_store_bytes: Union[int, None] = None
    spill_load_bytes: Union[int, None] = None
    load_widths: Union[tuple[int, ...], None] = None
    store_widths: Union[tuple[int, ...], None] = None
    instructions: Union[dict[str, int], None] = None
    compiler_waves: Union[int, None] = None
    in_flight: tuple[str, ...] = ()
    published_early: tuple[str, ...] = ()
    order: str = ""


def is_known(asm: Any) -> bool:
    """Return whether `read` knows the backend that the `asm` of a `triton.compiler.CompiledKernel` comes from."""
    return "cubin" in asm or "amdgcn" in asm


def read(asm: Any) -> Reading:
    """Read the `asm` of a `triton.compiler.CompiledKernel`; an unknown backend gives an empty reading."""
    if "cubin" in asm:
        return _read_cubin(asm["cubin"], asm["ptx"])
    if "amdgcn" in asm:
        return _read_amdgcn(asm["amdgcn"])
    return Reading()


# Inline assembly that LLVM does not understand: it prints an error, goes on, and leaves the instructions out.
_INLINE_ASSEMBLY = re.compile(r'\basm (?:\w+ )*"([^"]*)", ".*?(?:!dbg (!\d+))?$', re.MULTILINE)
_INLINE_INSTRUCTION = re.compile(r"(?:@!?\$\{?\d+\}?\s+)?([a-z_]\w*)")


def left_out(asm: Any) -> str:
    """Return the first inline assembly of a kernel of which no instruction is in its code, and its line; empty if there is none."""
    code, text = asm.get("llir", ""), asm.get("ptx", "") or asm.get("amdgcn", "")
    for inline, place in dict(reversed(_INLINE_ASSEMBLY.findall(code))).items() if text else ():
        lines = [line.strip() for line in re.split(r"\\0A|[;{}]", inline)]
        names = {found[1]: line for line in reversed(lines) if (found := _INLINE_INSTRUCTION.match(line))}
        if names and not any(re.search(rf"\b{name}\b", text) for name in names):
            where = re.search(rf"^{place} = .*\(line: (\d+).*scope: (!\d+)", code, re.MULTILINE) if place else None
            of_file = re.search(rf"^{where[2]} = .*file: (!\d+)", code, re.MULTILINE) if where else None
            file = re.search(rf'^{of_file[1]} = .*filename: "([^"]+)', code, re.MULTILINE) if of_file else None
            return f"`{[*names.values()][-1]}`" + (f" ({file[1].rpartition('/')[2]}:{where[1]})" if where and file else "")
    return ""


# PTX. A tensor copy names where it goes before where it comes from.
_PTX_MATRIX = re.compile(r"\b(wgmma\.mma_async[.\w]*|mma\.sync[.\w]*|tcgen05\.mma[.\w:]*)")
_PTX_COPY = re.compile(r"\b(cp\.(?:reduce\.)?async\.bulk\.tensor\.\dd\.(?:shared|global)|cp\.async\.c[ag])\b")
_PTX_ACCESS = re.compile(r"\b(ld|st)\.global[.\w:]*?(?:\.v(\d))?\.[bfus](\d+)")
_PTX_ASYNC_BYTES = re.compile(r"cp\.async\.c[ag]\.shared\.global.*?\], \[[^\]]+\], (0x[0-9a-f]+|\d+)")
_TENSOR_COPY_BITS = 128  # the smallest piece that a tensor copy moves is 16 bytes
# SASS: local memory, 32 bits unless the name says otherwise.
_SASS_LOCAL = re.compile(r"\b(LDL|STL)\b((?:\.\w+)*)")


def _read_cubin(cubin: bytes, ptx: str) -> Reading:
    """Take resources and spills from the tools that Triton ships; widths and instructions from PTX, which maps one to one for these."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        output = _tool("cuobjdump", "--dump-resource-usage", file.name)
        usage = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", output)}
        # A disassembly takes half a second, so only kernels with a stack are disassembled.
        sass = _tool("nvdisasm", "-c", "-ndf", file.name) if usage.get("STACK") else ""
    copies = Counter(_PTX_COPY.findall(ptx))
    matrix = Counter(_PTX_MATRIX.findall(ptx))
    widths: dict[str, list[int]] = {"ld": [int(size, 0) * 8 for size in _PTX_ASYNC_BYTES.findall(ptx)], "st": []}
    for verb, count, bits in _PTX_ACCESS.findall(ptx):
        widths[verb].append(int(count or 1) * int(bits))
    for name in copies:
        if "tensor" in name:
            widths["ld" if name.endswith("shared") else "st"].append(_TENSOR_COPY_BITS)
    # The stack holds spilled registers; Triton's kernels have no other use for it.
    stack = usage.get("STACK")
    spilled = _local_bytes(sass) if sass else (0, 0) if stack == 0 else (None, None)
    return Reading(
        registers=usage.get("REG"),
        spills=None if stack is None else stack // 4,
        stack_bytes=stack,
        load_bits=max(widths["ld"], default=None),
        matrix=tuple(sorted(matrix)),
        spill_store_bytes=spilled[0],
        spill_load_bytes=spilled[1],
        load_widths=_distinct(widths["ld"]),
        store_widths=_distinct(widths["st"]),
        instructions=dict(sorted((matrix + copies).items())),
        in_flight=never_waited(ptx),
        order=order_of(ptx),
    )


def _tool(name: str, *arguments: str) -> str:
    """Return what a binary utility in Triton's wheel prints; nothing if the utility is missing or hangs."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not tool.exists():
        return ""
    try:
        return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60).stdout
    except subprocess.TimeoutExpired:
        return ""


def _local_bytes(sass: str) -> tuple[int, int]:
    """Return the bytes that instructions for local memory store and load, each counted once: the figures that ptxas can print."""
    total = {"STL": 0, "LDL": 0}
    for verb, modifiers in _SASS_LOCAL.findall(sass):
        width = re.search(r"\.[US]?(8|16|64|128)\b", modifiers)
        total[verb] += int(width.group(1)) // 8 if width else 4
    return total["STL"], total["LDL"]


_GCN_MATRIX = re.compile(r"^\s+(v_(?:s?mfmac?|s?wmmac?)_\w+)", re.MULTILINE)
_GCN_ACCESS = re.compile(r"^\s+((global|buffer|flat|scratch)_(load|store)_(\w+))(.*)$", re.MULTILINE)


def _read_amdgcn(text: str) -> Reading:
    """Take everything from the assembly: the metadata at its end, the comments behind the kernel, and the instructions."""

    def noted(name: str) -> int | None:
        match = re.search(rf"{re.escape(name)}:\s+(\d+)", text)  # no anchor: with one, this was three fifths of a reading
        return int(match.group(1)) if match else None

    widths: dict[str, list[int]] = {"load": [], "store": []}
    spilled = {"load": 0, "store": 0}
    copies: Counter[str] = Counter()
    for name, family, verb, kind, rest in _GCN_ACCESS.findall(text):
        # Without scratch instructions (gfx90a) a spill goes through a buffer; only the comment distinguishes it from the kernel's accesses.
        if family == "scratch" or "Folded" in rest:
            spilled[verb] += _bits(kind) // 8
            continue
        widths[verb].append(_bits(kind))
        if kind.startswith("lds_") or re.search(r"\blds\b", rest.split(";")[0]):
            copies[name if "_lds_" in name else f"{name} lds"] += 1
    matrix = Counter(_GCN_MATRIX.findall(text))
    return Reading(
        registers=noted(" .vgpr_count"),
        spills=noted(" .vgpr_spill_count"),
        stack_bytes=noted(" .private_segment_fixed_size"),
        load_bits=max(filter(None, widths["load"]), default=None),
        matrix=tuple(sorted(matrix)),
        vgprs=noted("; NumVgprs"),
        agprs=noted(" .agpr_count"),
        sgprs=noted(" .sgpr_count"),
        spill_store_bytes=spilled["store"],
        spill_load_bytes=spilled["load"],
        load_widths=_distinct(widths["load"]),
        store_widths=_distinct(widths["store"]),
        instructions=dict(sorted((matrix + copies).items())),
        compiler_waves=noted("; Occupancy"),
        in_flight=lds_in_flight(text),
        published_early=(*published_early(text), *acquired_alone(text)),
        order=order_of(text),
    )


def _bits(kind: str) -> int:
    """Return the width in the name of an access: `dwordx4` and `b128` are 128, `ushort` and `d16_hi_b16` 16; 0 if it has none."""
    if match := re.search(r"dword(?:x(\d))?", kind):
        return 32 * int(match.group(1) or 1)
    if match := re.search(r"byte|short", kind):
        return {"byte": 8, "short": 16}[match.group()]
    match = re.search(r"[biu](\d+)$", kind)
    return int(match.group(1)) if match else 0


def _distinct(widths: Iterable[int]) -> tuple[int, ...]:
    """Return each width once, narrowest first, without the unknown ones."""
    return tuple(sorted(filter(None, set(widths))))


# How many programs of a kernel one multiprocessor holds at a time, and what keeps it from holding more.
#
# It is computed from published limits alone, which docker/targets.yml has with their sources: what fits, whatever the size of the grid. A
# multiprocessor is what the warps of one program share: an SM, a CU, or the WGP of two CUs if workgroups are compiled for it (Triton's
# are: `.amdhsa_workgroup_processor_mode 1`). A register belongs to one of its schedulers: a warp that does not fit into what one scheduler
# has left does not fit, however much the others have.
#
# Not counted, because no rule is published or the binary has no figure for it: tensor memory, for which a resident program waits instead
# of being kept out; programs that a cluster starts together; scratch memory; the shared memory that a driver leaves to the cache.


@dataclass(frozen=True)
class Occupancy:
    """What fits into one multiprocessor: programs, their warps, and the share that these are of its warp slots (0 to 1).

    `limited_by` names every resource that has no room for another program: warps, programs, registers, scalars, shared.
    """

    programs: int
    warps: int
    share: float
    limited_by: tuple[str, ...]


def occupancy(has: Multiprocessor, warps: int, registers: int, shared_bytes: int = 0, scalars: int | None = None) -> Occupancy:
    """Compute what fits of a kernel whose programs have `warps` warps each and `shared_bytes` of shared memory, static and dynamic.

    `registers` are a thread's 32-bit ones, of all kinds that come from one file; `scalars` are a warp's scalar registers. Whether a program
    of that size can be launched at all (threads, bytes) is not asked; the answer for one that does not fit is 0.

    Raises:
        ValueError: a program has at least one warp.
    """
    if warps < 1:
        raise ValueError(f"a program has at least one warp, not {warps}")
    # First in warps of one scheduler: what one of them has left is of no use to another.
    room = {"warps": has.warps, "registers": has.registers // _portions(max(registers, 1), has.register_unit)}
    if has.scalars is not None and scalars is not None:
        room["scalars"] = has.scalars // max(1, _portions(scalars, has.scalar_unit) + has.scalars_reserved)
    room = {resource: has.schedulers * fit // warps for resource, fit in room.items()}
    if has.programs is not None:
        room["programs"] = has.programs
    if shared := _portions(shared_bytes + has.shared_reserved, has.shared_unit):
        room["shared"] = has.shared_bytes // shared
    programs = min(room.values())
    limited_by = tuple(sorted(resource for resource, fit in room.items() if fit == programs))
    return Occupancy(programs, programs * warps, programs * warps / (has.schedulers * has.warps), limited_by)


def _portions(amount: int, unit: int) -> int:
    """`amount` rounded up to whole portions."""
    return -(-amount // unit) * unit
