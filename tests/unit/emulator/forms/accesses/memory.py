"""What loads and stores mean, stated on the bytes of arrays; which of the modules states an instruction; caches and hints."""

from __future__ import annotations

import re

import numpy as np
from accesses import atomics
from accesses.buffers import in_buffer
from accesses.lds import in_lds
from accesses.private import in_private
from accesses.read_back import extended, loaded, passed, registers, size_of, staged
from accesses.scalar_loads import from_buffer, to_scalars
from accesses.wave_memory import REACH, WAYS, Memory
from statements.exact import MASK32
from units.cases import COUNT, PRIVATE, Case


def in_global(memory: Memory, shape: str, example: str) -> Case:
    """global_load, global_store: an address of 64 bits, or a scalar one and an offset of 32."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 100 if "offset" in shape else 0
    is_wide = "off" in re.split(r"[ ,]+", shape)
    suffix = f" offset:{offset}" if offset else ""
    if "load" in name:
        code, at = memory.near(size)
        code += memory.address("given", "v30") if is_wide else []
        address = "v[30:31], off" if is_wide else "v30, s[4:5]"
        values = extended(memory.read(memory.given, at + offset, size), name, size, machine.rows[4] & np.uint64(MASK32))
        if "_lds_" in name:  # lanes side by side, from m0 on; the offset counts on both sides
            code += ["s_mov_b32 m0, 0x100", f"{name} {address}{suffix}"]
            return passed(memory, shape, code, 256 + offset, size, values)
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, {address}{suffix}"], values)
    place = memory.slots(size=size)
    code, at = list(place[0]), place[1]
    code += memory.address("stage", "v30") if is_wide else []
    text, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.stage, at + offset, values, size)
    line = f"{name} v[30:31], {text}, off{suffix}" if is_wide else f"{name} v30, {text}, s[10:11]{suffix}"
    return staged(memory, shape, [*code, line], place, offset)


def anywhere(memory: Memory, shape: str, example: str) -> list[Case]:
    """flat_load, flat_store: the address says whether it is in global memory, in LDS or in private memory."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 32 if "offset" in shape else 0
    suffix, found = f" offset:{offset}" if offset else "", []
    for space in ("given" if "load" in name else "stage", "lds", "private"):
        code, at = memory.near(size, REACH) if "load" in name or space == "private" else memory.slots(size=size)
        place = at + offset + (np.arange(machine.wave) * PRIVATE if space == "private" else 0)
        code += [f"{memory.add} v28, {offset}, v30", *memory.address(space, "v30")]
        bytes_ = getattr(memory, space)
        if "load" in name:
            values = extended(memory.read(bytes_, place, size), name, size, machine.rows[4] & np.uint64(MASK32))
            found.append(loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v[30:31]{suffix}"], values))
            continue
        text, values = memory.source(0, max(1, size // 4))
        values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
        memory.write(bytes_, place, values, size)
        made = Case(shape, [*code, f"{name} v[30:31], {text}{suffix}", machine.wait, *memory.get(space, "v28", 40, 0)])
        made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(memory.read(bytes_, place, 16))]
        found.append(made)
    return found


def nothing(memory: Memory, shape: str, example: str) -> Case:
    """A cache or a hint: registers and memory stay as they are."""
    machine = memory.machine
    place = memory.slots()
    before = ["v_mov_b32 v46, v18", "s_cmp_eq_u32 0, 0", example, "s_cselect_b32 s26, 1, 0", "v_mov_b32 v47, s26"]
    made = staged(memory, shape, [*before, *place[0]], place, 0)
    made.expected += [("v46", "u32", machine.rows[4] & np.uint64(MASK32)), ("v47", "u32", np.ones(COUNT, np.uint64))]
    return made


CACHES = (
    "buffer_inv",
    "buffer_wbl2",
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "global_inv",
    "global_wb",
    "global_wbinv",
    "buffer_wbinvl1",
    "buffer_wbinvl1_vol",
)
HINTS = (
    "s_nop",
    "v_nop",
    "s_delay_alu",
    "s_clause",
    "s_setprio",
    "s_set_inst_prefetch_distance",
    "s_waitcnt_depctr",
    "s_wait_alu",
    "s_sleep",
    "s_wait_storecnt",
    "s_waitcnt_vscnt",
    "ds_nop",
)


PREFIXES = ("ds_", "global_", "buffer_", "s_load_", "flat_", "scratch_", "s_buffer_")
MAKERS = {
    "ds_": in_lds,
    "global_": in_global,
    "buffer_": in_buffer,
    "flat_": anywhere,
    "scratch_": in_private,
    "s_load_": to_scalars,
    "s_buffer_": from_buffer,
}


def numbers_of(name: str) -> str | None:
    """Return which numbers an instruction's machine holds: None unless it is an atomic."""
    return atomics.numbers_of(name) if name not in HINTS and atomics.is_atomic(name) else None


def cases(memory: Memory, shape: str, example: str) -> list[Case]:
    """Make a shape that touches memory, or does nothing to registers, into code."""
    name = shape.split()[0]
    if name in CACHES or name in HINTS:
        return [nothing(memory, shape, example)]
    make = next(make for prefix, make in MAKERS.items() if name.startswith(prefix))
    ways = WAYS
    if atomics.is_atomic(name):
        make, ways = atomics.cases, WAYS[::2]  # lanes side by side are nothing else to them
    if name.startswith("s_") or "_tr_" in name or re.match("ds_(write|store)2|ds_store_2addr", name):
        ways = WAYS[:1]
    found = []
    for way in ways:
        memory.reach(way)
        made = make(memory, shape, example)
        found += [memory.only(name, one) for one in (made if isinstance(made, list) else [made])]
    memory.reach(WAYS[0])
    return found
