"""What scalar loads mean: from an address, or from a buffer, beyond whose end they read 0."""

from __future__ import annotations

import re

import numpy as np
from accesses.read_back import LIMIT, extended, resource, size_of
from accesses.wave_memory import Memory
from units.cases import Case


def to_scalars(memory: Memory, shape: str, example: str) -> Case:
    """s_load: one to sixteen words, or less than one, from an address that all lanes share."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 36 if "lit" in shape else 0 if size > 4 else 4
    offset += 0 if size >= 4 else 3 - size
    words = (size + 3) // 4
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    at = np.full((memory.groups, machine.wave), offset)
    values = extended(memory.read(memory.given, at, size), name, size, at)
    code = [f"{name} {target}, s[4:5], {offset:#x}", machine.scalar_wait, *(f"v_mov_b32 v{40 + n}, s{16 + n}" for n in range(words))]
    return Case(shape, code, [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)])


def from_buffer(memory: Memory, shape: str, example: str) -> list[Case]:
    """s_buffer_load: inside of the buffer, and behind the end of a shorter one."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    words = size // 4
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    offset = int(re.split(r"[ ,]+", example)[-1], 0)
    found = []
    for limit in (LIMIT, offset):
        at = np.full((memory.groups, machine.wave), offset)
        values = [value if limit == LIMIT else value * np.uint64(0) for value in memory.read(memory.given, at, size)]
        code = [*resource(machine, 4, 12, limit), f"{name} {target}, s[12:15], {offset:#x}", machine.scalar_wait]
        code += [f"v_mov_b32 v{40 + n}, s{16 + n}" for n in range(words)]
        found.append(Case(shape, code, [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)]))
    return found
