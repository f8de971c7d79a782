"""What loads and stores of private memory mean: each lane has bytes of its own, and the same address is another place in each."""

from __future__ import annotations

import re

import numpy as np
from accesses.read_back import extended, loaded, registers, size_of
from accesses.wave_memory import REACH, Memory
from statements.exact import MASK32
from units.cases import PRIVATE, Case

OFFSET, SCALAR = 32, 20


def in_private(memory: Memory, shape: str, example: str) -> Case:
    """scratch_load and scratch_store: an address of 32 bits in a register of the lane, or one for all lanes, and an offset."""
    machine, (name, *kinds) = memory.machine, re.split(r"[ ,]+", shape)
    size, offset = size_of(name), OFFSET if "offset" in kinds else 0
    by_lane, for_all = kinds[1 if "load" in name else 0] != "off", "s" in kinds
    suffix = f" offset:{offset}" if offset else ""
    address = f"{'v30' if by_lane else 'off'}", f"{'s24' if for_all else 'off'}"
    code, at = memory.near(size, REACH)
    code += [f"s_mov_b32 s24, {SCALAR}"]
    fixed = offset + (SCALAR if for_all else 0)
    at = (at if by_lane else at * 0) + fixed
    place = at + np.arange(machine.wave) * PRIVATE
    if "load" in name:
        values = extended(memory.read(memory.private, place, size), name, size, machine.rows[4] & np.uint64(MASK32))
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, {address[0]}, {address[1]}{suffix}"], values)
    text, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.private, place, values, size)
    code += [f"{name} {address[0]}, {text}, {address[1]}{suffix}", machine.wait]
    code += [f"{memory.add} v28, {fixed}, v30" if by_lane else f"v_mov_b32 v28, {fixed}"]
    made = Case(shape, [*code, *memory.get("private", "v28", 40, 0)])
    made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(memory.read(memory.private, place, 16))]
    return made
