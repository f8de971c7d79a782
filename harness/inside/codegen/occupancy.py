"""How many programs of a kernel one multiprocessor holds at a time, and what keeps it from holding more.

From published limits alone: what fits, not what a short grid or an uneven load makes of it. A multiprocessor is what the warps of one
program share: an SM, a CU, or the WGP of two CUs where workgroups are compiled for it (Triton's are: `.amdhsa_workgroup_processor_mode 1`).
Each of these has four schedulers, and a register belongs to one of them: a warp that does not fit into what one scheduler has left does
not fit, however much the others have.

Not counted, for want of a published rule or of a figure in the binary: tensor memory, for which a resident program waits instead of being
kept out; programs that a cluster starts together; scratch memory; the shared memory that a driver leaves to the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor has, and in which portions it gives it away.

    `warps` are a scheduler's slots; `programs` the multiprocessor's, None where the slots of the warps always run out first. `registers`
    are the 32-bit ones that each lane of a scheduler has for all its warps, given to a warp in portions of `register_unit`.
    `shared_bytes` go to programs in portions of `shared_unit`, with `shared_reserved` more for the system in each. `scalars` are a
    scheduler's scalar registers, in portions of 16 and with 16 more for the trap handler; None where every warp has a fixed share.
    """

    warps: int
    registers: int
    register_unit: int
    shared_bytes: int
    shared_unit: int
    programs: Union[int, None] = None
    shared_reserved: int = 0
    scalars: Union[int, None] = None


@dataclass(frozen=True)
class Occupancy:
    """What fits into one multiprocessor: programs, their warps, and the share that these are of its warp slots (0 to 1).

    `limited_by` names every resource that has no room for another program: warps, programs, registers, scalars, shared.
    """

    programs: int
    warps: int
    share: float
    limited_by: tuple[str, ...]


_SCHEDULERS = 4
_SCALAR_UNIT = _SCALARS_RESERVED = 16
_KIB = 1024

# By what Triton calls the architecture in its `GPUTarget`. Figures in a vendor's table are per multiprocessor and per warp; here a
# scheduler has a quarter, and a lane a 32nd (or a 64th) of it.
LIMITS: dict[Union[int, str], Limits] = {
    # CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (8.0, 9.0, 10.0): 64 warps, 32 blocks, 65536 registers,
    # 164 or 228 KiB of shared memory. Registers come in 256 a warp from a quarter of the file, shared memory in 128 bytes: the occupancy
    # calculator of Nsight Compute, and cuda_occupancy.h of the toolkit. Ampere, Hopper and Blackwell tuning guides, "Unified Shared
    # Memory": the system takes 1 KiB of every block.
    80: Limits(16, 512, 8, 164 * _KIB, 128, programs=32, shared_reserved=_KIB),
    90: Limits(16, 512, 8, 228 * _KIB, 128, programs=32, shared_reserved=_KIB),
    100: Limits(16, 512, 8, 228 * _KIB, 128, programs=32, shared_reserved=_KIB),
    # LLVM, AMDGPUBaseInfo.cpp (namespace IsaInfo) and AMDGPUSubtarget.cpp: 8 waves a SIMD, 512 VGPRs (AGPRs among them) in units of 8, 800
    # SGPRs, LDS in units of 128 dwords, on gfx950 320; CDNA2, CDNA3 and CDNA4 ISA guides for the register file and the size of LDS.
    # A CU has 16 barriers, and a workgroup of one wave needs none: they run out when the slots of the waves do, never before.
    "gfx90a": Limits(8, 512, 8, 64 * _KIB, 512, scalars=800),
    "gfx942": Limits(8, 512, 8, 64 * _KIB, 512, scalars=800),
    "gfx950": Limits(8, 512, 8, 160 * _KIB, 1280, scalars=800),
    # The same files of LLVM: 16 waves a SIMD, and with wave32 1536 VGPRs in units of 24 where a part has 1.5 times the registers, as both
    # of these have; 128 KiB of LDS a WGP and 32 barriers. LDS in units of 256 dwords: RDNA2 ISA guide 3.6.6, and from there on Mesa's
    # `lds_alloc_granule`; LLVM rounds to 128. Scalar registers are 106 for every wave.
    "gfx1100": Limits(16, 1536, 24, 128 * _KIB, 1024),
    "gfx1201": Limits(16, 1536, 24, 128 * _KIB, 1024),
}


def occupancy(limits: Limits, warps: int, registers: int, shared_bytes: int = 0, scalars: int | None = None) -> Occupancy:
    """What fits of a kernel whose programs have `warps` warps each and `shared_bytes` of shared memory, static and dynamic.

    `registers` are a thread's 32-bit ones, of all kinds that come from one file; `scalars` a warp's scalar registers. Whether a program of
    that size can be launched at all (threads, bytes) is not asked; one that finds no room gives 0.

    Raises:
        ValueError: a program has at least one warp.
    """
    if warps < 1:
        raise ValueError(f"a program has at least one warp, not {warps}")
    # In warps of one scheduler first: what is left over on one is of no use to another.
    room = {"warps": limits.warps, "registers": limits.registers // _portions(max(registers, 1), limits.register_unit)}
    if limits.scalars is not None and scalars is not None:
        room["scalars"] = limits.scalars // (_portions(scalars, _SCALAR_UNIT) + _SCALARS_RESERVED)
    room = {resource: _SCHEDULERS * fit // warps for resource, fit in room.items()}
    if limits.programs is not None:
        room["programs"] = limits.programs
    if shared := _portions(shared_bytes + limits.shared_reserved, limits.shared_unit):
        room["shared"] = limits.shared_bytes // shared
    programs = min(room.values())
    limited_by = tuple(sorted(resource for resource, fit in room.items() if fit == programs))
    return Occupancy(programs, programs * warps, programs * warps / (_SCHEDULERS * limits.warps), limited_by)


def _portions(amount: int, unit: int) -> int:
    """`amount` rounded up to whole portions."""
    return -(-amount // unit) * unit
