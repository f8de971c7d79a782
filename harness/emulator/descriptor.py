"""The kernel descriptor: how the hardware sets up a wave's registers (AMDGPUUsage, "Kernel Descriptor")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from harness.emulator.code_object import Kernel
from harness.emulator.decode.decoder import FAMILIES
from harness.emulator.errors import InvalidCodeObject

# User SGPRs in their order: bit of kernel_code_properties, registers.
_USER = (
    ("private_segment_buffer", 0, 4),
    ("dispatch_ptr", 1, 2),
    ("queue_ptr", 2, 2),
    ("kernarg_segment_ptr", 3, 2),
    ("dispatch_id", 4, 2),
    ("flat_scratch_init", 5, 2),
    ("private_segment_size", 6, 1),
)
_NOWHERE = 0xFFFFFFFF


@dataclass(frozen=True)
class Descriptor:
    """The fields that a launch needs. `workgroup_ids` are the SGPRs of x, y, z."""

    user: dict[str, int]
    preload: tuple[int, int]
    workgroup_ids: tuple[int, int, int]
    mode: int
    rows: int
    accumulators: int
    ids_in_ttmp: bool
    packed_ids: bool

    def fill(self, machine: Any) -> None:
        """Write the setup into `struct machine`."""
        machine.rows, machine.accumulators, machine.mode = self.rows, self.accumulators, self.mode
        # A pointer that the kernel does not ask for goes where nothing reads it.
        machine.kernarg_at, machine.packet_at = self.user.get("kernarg_segment_ptr", 122), self.user.get("dispatch_ptr", 122)
        machine.preload_at, machine.preload_words = self.preload
        for axis, register in enumerate(self.workgroup_ids):
            machine.sgpr_ids[axis] = register
        machine.ids_in_ttmp, machine.packed_ids = self.ids_in_ttmp, self.packed_ids


def describe(kernel: Kernel) -> Descriptor:
    """Read the descriptor of a kernel."""
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", kernel.descriptor, 44)
    family = FAMILIES[kernel.architecture]
    user, at = {}, 0
    for name, bit, registers in _USER:
        if properties >> bit & 1:
            user[name] = at
            at += registers
    words = preload & 0x7F if family == "cdna" and kernel.architecture != "gfx90a" else 0
    # All words are preloaded from `at` on; the kernel's own first instructions load them again.
    first, ids = at, []
    if first + words > 16:
        raise InvalidCodeObject(
            f"A kernel descriptor asks for {first + words} user registers; a wave has 16. Usually the bytes are damaged. "
            "Compile the kernel again."
        )
    at = rsrc2 >> 1 & 31
    for axis in range(3):
        ids.append(at if rsrc2 >> (7 + axis) & 1 else _NOWHERE)
        at += rsrc2 >> (7 + axis) & 1
    mode = rsrc1 >> 12 & 0xFF
    total = ((rsrc1 & 63) + 1) * 8
    rows = min(((rsrc3 & 63) + 1) * 4, 256) if family == "cdna" else 256
    return Descriptor(
        user=user,
        preload=(first, 0 if preload >> 7 else words),
        workgroup_ids=(ids[0], ids[1], ids[2]),
        mode=mode,
        rows=rows,
        accumulators=max(0, min(total - rows, 256)) if family == "cdna" else 0,
        ids_in_ttmp=family == "rdna4",
        packed_ids=True,
    )
