"""What a compiled kernel's binary and assembly say, for each backend of Triton's wheel. The one place that reads vendor assembly."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Reading:
    """Registers per thread, 4-byte registers spilled to memory, bytes of stack, bits of the widest global load, matrix instructions."""

    registers: int | None = None
    spills: int | None = None
    stack_bytes: int | None = None
    load_bits: int | None = None
    matrix: tuple[str, ...] = ()


def read(asm: Any) -> Reading:
    """Read the `asm` of a `triton.compiler.CompiledKernel`; an unknown backend gives an empty reading."""
    if "cubin" in asm:
        return _read_cubin(asm["cubin"], asm["ptx"])
    if "amdgcn" in asm:
        return _read_amdgcn(asm["amdgcn"])
    return Reading()


def _read_cubin(cubin: bytes, ptx: str) -> Reading:
    """Resources from `cuobjdump`, which Triton ships; access widths and instructions from PTX, which maps one to one for these."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    usage: dict[str, int] = {}
    if tool.exists():
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, timeout=60)
        usage = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", done.stdout)}
    vectors = [int(count or 1) * int(bits) for count, bits in re.findall(r"ld\.global[.\w:]*?(?:\.v(\d))?\.[bfus](\d+)", ptx)]
    bulk = [128] if "cp.async.bulk.tensor" in ptx else []
    asynchronous = r"cp\.async\.c[ag]\.shared\.global.*?\], \[[^\]]+\], (0x[0-9a-f]+|\d+)"
    copies = [int(size, 0) * 8 for size in re.findall(asynchronous, ptx)]
    matrix = re.findall(r"\b(wgmma\.mma_async[.\w]*|mma\.sync[.\w]*|tcgen05\.mma[.\w:]*)", ptx)
    # Stack holds spilled registers; a kernel of Triton's has no other use for it.
    stack = usage.get("STACK")
    return Reading(
        registers=usage.get("REG"),
        spills=None if stack is None else stack // 4,
        stack_bytes=stack,
        load_bits=max([*vectors, *bulk, *copies], default=None),
        matrix=tuple(sorted(set(matrix))),
    )


_WIDTHS = {"dword": 32, "b32": 32, "dwordx2": 64, "b64": 64, "dwordx3": 96, "b96": 96, "dwordx4": 128, "b128": 128}


def _read_amdgcn(text: str) -> Reading:
    """Everything from the assembly: the metadata at its end, and the instructions."""

    def metadata(key: str) -> int | None:
        match = re.search(rf"^\s+\.{key}:\s+(\d+)", text, re.MULTILINE)
        return int(match.group(1)) if match else None

    loads = re.findall(r"^\s+(?:global|buffer|flat)_load_(?:lds_)?(\w+)", text, re.MULTILINE)
    narrow = [int(match.group(1)) for load in loads if (match := re.match(r"[usi]?(?:short|byte|[iu])_?(?:d16_)?(?:[bi])?(8|16)", load))]
    return Reading(
        registers=metadata("vgpr_count"),
        spills=metadata("vgpr_spill_count"),
        stack_bytes=metadata("private_segment_fixed_size"),
        load_bits=max([_WIDTHS[load] for load in loads if load in _WIDTHS] + narrow, default=None),
        matrix=tuple(sorted(set(re.findall(r"\b(v_(?:s?mfmac?|s?wmmac?)_\w+)", text)))),
    )
