"""How many programs of a kernel one multiprocessor holds at a time, and what keeps it from holding more.

It is computed from published limits alone, which docker/targets.yml has with their sources: what fits, whatever the size of the grid. A
multiprocessor is what the warps of one program share: an SM, a CU, or the WGP of two CUs if workgroups are compiled for it (Triton's are:
`.amdhsa_workgroup_processor_mode 1`). A register belongs to one of its schedulers: a warp that does not fit into what one scheduler has
left does not fit, however much the others have.

Not counted, because no rule is published or the binary has no figure for it: tensor memory, for which a resident program waits instead of
being kept out; programs that a cluster starts together; scratch memory; the shared memory that a driver leaves to the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import Multiprocessor


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
