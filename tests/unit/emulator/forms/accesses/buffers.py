"""What loads and stores of buffers mean: what is beyond the end reads 0, and is not written."""

from __future__ import annotations

import re

import numpy as np
from accesses.read_back import LIMIT, extended, loaded, passed, registers, resource, size_of
from accesses.wave_memory import Memory
from statements.exact import MASK32
from units.cases import Case

_FLAGS = ("offen", "lds", "sc0", "sc1", "nt", "glc", "slc", "dlc")


def in_buffer(memory: Memory, shape: str, example: str) -> Case:
    """buffer_load and buffer_store, with an offset a lane."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    kinds = re.split(r"[ ,]+", shape)
    load = "load" in name
    offset = 64 if "offset" in kinds else 0
    scalar = next(one for one in kinds[3:] if one in ("int", "null", "s"))
    if "offen" not in kinds:
        raise KeyError(shape)
    code = resource(machine, 4 if load else 10, 20, LIMIT)
    added = 0
    text = "null" if scalar == "null" else "0"
    if scalar == "s":
        code, text, added = [*code, "s_mov_b32 s24, 16"], "s24", 16
    suffix = "".join(f" {one}" for one in kinds[4:] if one in _FLAGS or one.startswith(("th:", "scope:")))
    suffix += f" offset:{offset}" if offset else ""
    if load:
        more, at = memory.near(size if size != 12 else 16, 2048)  # none across the end: AMD's documents leave open what it would read
        inside = at + offset + added + size <= LIMIT
        values = memory.read(memory.given, np.where(inside, at + offset + added, 0), size)
        values = [np.where(inside.reshape(-1), value, 0).astype(np.uint64) for value in values]
        values = extended(values, name, size, machine.rows[4] & np.uint64(MASK32))
        if "lds" in kinds:  # lanes side by side, from m0 on
            code += [*more, "s_mov_b32 m0, 0x100", f"{name} v30, s[20:23], {text}{suffix}"]
            return passed(memory, shape, code, 256 + offset, size, values)
        return loaded(memory, shape, [*code, *more, f"{name} {registers(len(values))}, v30, s[20:23], {text}{suffix}"], values)
    more, at = memory.slots(spread=2 if machine.wave == 32 else 1, size=size)
    inside = at + offset + added + size <= LIMIT
    source, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.stage, at + offset + added, values, size, inside & memory.on)
    made = Case(shape, [*code, *more, f"{name} {source}, v30, s[20:23], {text}{suffix}", machine.wait])
    made.code += memory.get("stage", "v30", 40, offset + added)
    made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(memory.read(memory.stage, at + offset + added, 16))]
    return made
