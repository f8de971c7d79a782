"""What reads and writes of LDS mean: of all widths, two at a time, and transposing."""

from __future__ import annotations

import re

import numpy as np
from accesses.read_back import dumped, extended, loaded, registers, size_of
from accesses.wave_memory import Memory
from statements.exact import MASK32
from units.cases import Case


def in_lds(memory: Memory, shape: str, example: str) -> Case:
    """ds_read, ds_write and their newer names, one or two at a time."""
    machine, name = memory.machine, shape.split()[0]
    if "_tr_" in name:
        return transposed(memory, shape)
    if re.search(r"2_b|2st64|2addr", name):
        return pair(memory, shape)
    size = size_of(name)
    offset = 600 if "offset" in shape else 0
    suffix = f" offset:{offset}" if offset else ""
    if "read" in name or "load" in name:
        code, at = memory.near(size)
        values = extended(memory.read(memory.lds, at + offset, size), name, size, machine.rows[4] & np.uint64(MASK32))
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v30{suffix}"], values)
    if not re.match(r"ds_(write|store)_", name):
        raise KeyError(name)
    code, at = memory.slots(size=size)
    text, values = memory.source(1 if size < 8 else 0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    memory.write(memory.lds, at + offset, values, size)
    return dumped(memory, shape, [*code, f"{name} v30, {text}{suffix}"], memory.lds, at, [offset])


def pair(memory: Memory, shape: str) -> Case:
    """Two places, at offsets that count in elements, or in 64 of them."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    unit = size * (64 if "st64" in name or "stride64" in name else 1)
    places = [0, 0]
    given = re.findall(r"offset([01])", shape)
    for which in given:  # the second far enough from the first for lanes not to meet
        places[int(which)] = {4: 60, 8: 30, 256: 1, 512: 1}[unit] * (2 if which == "1" and "0" in given else 1)
    text = "".join(f" offset{which}:{places[int(which)]}" for which in given)
    if "read" in name or "load" in name:
        code, at = memory.near(size)
        values = [word for place in places for word in memory.read(memory.lds, at + place * unit, size)]
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v30{text}"], values)
    code, at = memory.slots()
    few = np.broadcast_to(np.arange(machine.wave) < 8, at.shape)  # slots of 128 bytes: the second do not meet the first
    whole = "exec" if machine.cdna else "exec_lo"
    words = size // 4
    (first, x), (second, y) = memory.source(0, words), memory.source(2, words)
    for place, values in zip(places, (x, y), strict=True):
        memory.write(memory.lds, at + place * unit, values, size, few)
    code += [f"s_mov_b{machine.wave} {whole}, 0xff", f"{name} v30, {first}, {second}{text}", f"s_mov_b{machine.wave} {whole}, -1"]
    return dumped(memory, shape, code, memory.lds, at, [place * unit for place in places])


def transposed(memory: Memory, shape: str) -> Case:
    """Sixteen lanes read rows of 16 elements, 8 bytes a lane; each gets a column."""
    machine, name = memory.machine, shape.split()[0]
    bits = int(name.rsplit("_b", 1)[1])
    at = np.broadcast_to(np.arange(machine.wave) * 8, (memory.groups, machine.wave))
    offset = 128 if "offset" in shape else 0
    words = np.stack(memory.read(memory.lds, at + offset, 8), -1)
    whole = (words[:, 0] | words[:, 1] << np.uint64(32)).reshape(-1, 16)  # of sixteen lanes
    places = np.arange(0, 64, bits, dtype=np.uint64)
    rows = (whole[..., None] >> places & np.uint64(2**bits - 1)).reshape(len(whole), -1, 16)
    columns = (rows.swapaxes(1, 2) << places).sum(-1, dtype=np.uint64).reshape(-1)
    text = f"{name} v[40:41], v30" + (f" offset:{offset}" if offset else "")
    return loaded(memory, shape, ["v_lshlrev_b32 v30, 3, v0", text], [columns & np.uint64(MASK32), columns >> np.uint64(32)])
