"""What loads, stores and atomics mean, stated on the bytes of arrays."""

from __future__ import annotations

import re

import numpy as np
from cases import COUNT, Case
from exact import MASK32, typed
from wave_memory import LIMIT, Memory, dumped, extended, loaded, registers, size_of, staged


def in_lds(memory: Memory, shape: str, example: str) -> Case:
    """ds_read, ds_write and their newer names, one or two at a time, and additions."""
    machine, name = memory.machine, shape.split()[0]
    size, is_pair = size_of(name.split("_tr_")[0]), bool(re.search(r"2_b|2st64|2addr", name))
    unit = size * (64 if "st64" in name or "stride64" in name else 1)
    offsets = [int(found) for found in re.findall(r"offset\d?\b", shape) and re.findall(r"offset\d?:(\d+)", example)]
    old = machine.rows[4] & np.uint64(MASK32)
    if "_tr_" in name:
        lane = np.arange(machine.wave)
        at = np.broadcast_to(lane * size, (memory.groups, machine.wave))
        offset = 128 if "offset" in shape else 0
        tile = np.stack(memory.read(memory.lds, at + offset, 8), -1).reshape(memory.groups, -1, 16, 2).astype(np.uint32).view(np.uint16)
        columns = tile.reshape(memory.groups, -1, 4, 16).swapaxes(2, 3)  # four rows of 16 halves: each lane gets a column
        words = np.ascontiguousarray(columns).view(np.uint32).reshape(-1, 2).astype(np.uint64)
        text = f"{name} v[40:41], v30" + (f" offset:{offset}" if offset else "")
        return loaded(memory, shape, ["v_lshlrev_b32 v30, 3, v0", text], [words[:, 0], words[:, 1]])
    if is_pair:
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
    offset = 600 if offsets or "offset" in shape else 0
    suffix = f" offset:{offset}" if offset else ""
    if "read" in name or "load" in name:
        code, at = memory.near(size)
        values = extended(memory.read(memory.lds, at + offset, size), name, size, old)
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, v30{suffix}"], values)
    code, at = memory.slots()
    text, values = memory.source(1 if size < 8 else 0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    if name == "ds_add_u32":
        values = [memory.read(memory.lds, at + offset, 4)[0] + values[0] & np.uint64(MASK32)]
    elif not re.match(r"ds_(write|store)_", name):
        raise KeyError(name)
    memory.write(memory.lds, at + offset, values, size)
    return dumped(memory, shape, [*code, f"{name} v30, {text}{suffix}"], memory.lds, at, [offset])


def in_global(memory: Memory, shape: str, example: str) -> Case:
    """global_load, global_store, global_atomic: an address of 64 bits, or a scalar one and an offset of 32."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name) if "atomic" not in name else 8 if name.endswith(("x2", "b64")) else 4
    offset = 100 if "offset" in shape else 0
    is_wide = "off" in re.split(r"[ ,]+", shape)
    load, suffix = "load" in name, f" offset:{offset}" if offset else ""
    base = "s[4:5]" if load else "s[10:11]"
    code, at = memory.near(size) if load else memory.slots()
    if is_wide:
        carry = "vcc" if machine.cdna else "vcc_lo"
        low, high = ("s4", "s5") if load else ("s10", "s11")
        ci = "v_addc_co_u32" if machine.cdna else "v_add_co_ci_u32"
        code += [f"v_mov_b32 v31, {high}", f"v_add_co_u32 v30, {carry}, {low}, v30", f"{ci} v31, {carry}, 0, v31, {carry}"]
    address, base = ("v[30:31]", "off") if is_wide else ("v30", base)
    if load:
        values = extended(memory.read(memory.given, at + offset, size), name, size, machine.rows[4] & np.uint64(MASK32))
        return loaded(memory, shape, [*code, f"{name} {registers(len(values))}, {address}, {base}{suffix}"], values)
    if "cmpswap" in name:
        return swapped(memory, shape, example, code, at)
    text, values = memory.source(0, max(1, size // 4))
    memory.write(memory.stage, at + offset, updated(memory, name, at + offset, values, size), size)
    return staged(memory, shape, [*code, f"{name} {address}, {text}, {base}{suffix}"], at, offset, size)


def swapped(memory: Memory, shape: str, example: str, code: list[str], at: np.ndarray) -> Case:
    """Compare and swap a word: even lanes expect what is there, odd ones something else. The old value comes back."""
    machine, name = memory.machine, shape.split()[0]
    if re.split(r"[ ,]+", shape)[1:5] != ["v", "v", "v2", "s2"] or "offset" in shape:
        raise KeyError(shape)
    old = memory.read(memory.stage, at, 4)[0]
    new, other = (machine.rows[n] & np.uint64(MASK32) for n in range(2))
    odd = machine.lane % 2 == 1
    memory.write(memory.stage, at, [np.where(np.where(odd, other, old) == old, new, old)], 4)
    load, mask = ("global_load_dword", "vcc") if machine.cdna else ("global_load_b32", "vcc_lo")
    code = [*code, f"{load} v33, v30, s[10:11]", machine.wait, "v_mov_b32 v32, v10", "v_and_b32 v9, 1, v0", f"v_cmp_eq_u32 {mask}, 1, v9"]
    suffix = example.split("]")[-1]
    code += [f"v_cndmask_b32 v33, v33, v12, {mask}", f"{name} v46, v30, v[32:33], s[10:11]{suffix}"]
    made = staged(memory, shape, code, at, 0, 4)
    made.expected.append(("v46", "u32", old))
    return made


def updated(memory: Memory, name: str, at: np.ndarray, values: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Return what a store or an atomic leaves at its place."""
    if "atomic" not in name:
        return [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    what = name.split("atomic_")[1]
    old = memory.read(memory.stage, at, size)
    if what.startswith("swap"):
        return values
    if what in ("add", "add_u32"):
        return [old[0] + values[0] & np.uint64(MASK32)]
    if what == "add_f32":
        with np.errstate(all="ignore"):
            return [(typed(old[0], "f32") + typed(values[0], "f32")).view(np.uint32).astype(np.uint64)]
    if what in ("smax", "smin", "max_i32", "min_i32"):
        pick = np.maximum if "max" in what else np.minimum
        return [pick(typed(old[0], "i32"), typed(values[0], "i32")).view(np.uint32).astype(np.uint64)]
    raise KeyError(name)


def in_buffer(memory: Memory, shape: str, example: str) -> Case:
    """buffer_load, buffer_store, buffer_atomic with an offset a lane: what is beyond the end reads 0, and is not written."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name) if "atomic" not in name else 8 if name.endswith(("x2", "b64")) else 4
    kinds = re.split(r"[ ,]+", shape)
    load = "load" in name
    offset = 64 if "offset" in kinds else 0
    scalar = next(one for one in kinds[3:] if one in ("int", "null", "s"))
    to_lds = "lds" in kinds
    if "offen" not in kinds:
        raise KeyError(shape)
    base = (4, 5) if load else (10, 11)
    word = "0x27000" if machine.cdna else "0x31027000"
    code = [f"s_mov_b32 s20, s{base[0]}", f"s_and_b32 s21, s{base[1]}, 0xffff", f"s_mov_b32 s22, {LIMIT}", f"s_mov_b32 s23, {word}"]
    added = 0
    text = "null" if scalar == "null" else "0"
    if scalar == "s":
        code, text, added = [*code, "s_mov_b32 s24, 16"], "s24", 16
    suffix = "".join(
        f" {one}"
        for one in kinds[4:]
        if one in ("offen", "lds", "sc0", "sc1", "nt", "glc", "slc", "dlc") or one.startswith(("th:", "scope:"))
    )
    suffix += f" offset:{offset}" if offset else ""
    if load:
        more, at = memory.near(size, 2048)
        inside = at + offset + added + size <= LIMIT
        values = extended(
            memory.read(memory.given, np.where(inside, at + offset + added, 0), size), name, size, machine.rows[4] & np.uint64(MASK32)
        )
        values = [np.where(inside.reshape(-1), value, 0).astype(np.uint64) for value in values]
        if to_lds:  # lanes side by side, from m0 on
            lane = np.broadcast_to(np.arange(machine.wave) * size, at.shape)
            memory.write(memory.lds, lane + 256, values, size)
            code += [
                *more,
                "s_mov_b32 m0, 0x100",
                f"{name} v30, s[20:23], {text}{suffix}",
                machine.wait,
                "v_mov_b32 v30, v0",
                f"v_mul_u32_u24 v30, {size}, v30",
            ]
            read = "ds_read_b128" if size == 16 else "ds_read_b32"
            return loaded(memory, shape, [*code, f"{read} {registers(len(values))}, v30 offset:256"], values)
        return loaded(memory, shape, [*code, *more, f"{name} {registers(len(values))}, v30, s[20:23], {text}{suffix}"], values)
    more, at = memory.slots()
    if machine.wave == 32:
        more, at = [more[0], "v_lshlrev_b32 v30, 5, v30"], at * 2
    inside = at + offset + added + size <= LIMIT
    source, values = memory.source(0, max(1, size // 4))
    memory.write(memory.stage, at + offset + added, updated(memory, name, at + offset + added, values, size), size, inside)
    made = Case(shape, [*code, *more, f"{name} {source}, v30, s[20:23], {text}{suffix}", machine.wait])
    read = "global_load_dword" if machine.cdna else "global_load_b32"
    words = memory.read(memory.stage, at + offset + added, 4 * ((size + 3) // 4))
    made.code += [f"{read} v{40 + n}, v30, s[10:11] offset:{offset + added + 4 * n}" for n in range(len(words))] + [machine.wait]
    made.expected = [(f"v{40 + n}", "u32", one) for n, one in enumerate(words)]
    return made


def to_scalars(memory: Memory, shape: str, example: str) -> Case:
    """s_load: one to eight words, or less than one, from an address that all lanes share."""
    machine, name = memory.machine, shape.split()[0]
    size = size_of(name)
    offset = 36 if "lit" in shape else 0 if size > 4 else 4
    words = (size + 3) // 4
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    at = np.full((memory.groups, machine.wave), offset)
    values = extended(memory.read(memory.given, at, size), name.replace("load_i", "load_i"), size, at)
    code = [f"{name} {target}, s[4:5], {offset:#x}", machine.scalar_wait, *(f"v_mov_b32 v{40 + n}, s{16 + n}" for n in range(words))]
    return Case(shape, code, [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)])


def nothing(memory: Memory, shape: str, example: str) -> Case:
    """A cache or a hint: registers and memory stay as they are."""
    machine = memory.machine
    code, at = memory.slots()
    made = staged(
        memory,
        shape,
        ["v_mov_b32 v46, v18", "s_cmp_eq_u32 0, 0", example, "s_cselect_b32 s26, 1, 0", "v_mov_b32 v47, s26", *code],
        at,
        0,
        4,
    )
    made.expected += [("v46", "u32", machine.rows[4] & np.uint64(MASK32)), ("v47", "u32", np.ones(COUNT, np.uint64))]
    return made


CACHES = (
    "buffer_inv",
    "buffer_wbl2",
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "global_inv",
    "global_wb",
    "buffer_wbinvl1",
    "buffer_wbinvl1_vol",
)
HINTS = (
    "s_nop",
    "s_delay_alu",
    "s_clause",
    "s_setprio",
    "s_set_inst_prefetch_distance",
    "s_waitcnt_depctr",
    "s_wait_alu",
    "s_sleep",
    "s_wait_storecnt",
    "s_waitcnt_vscnt",
)


PREFIXES = ("ds_", "global_", "buffer_", "s_load_", "flat_", "scratch_", "s_buffer_")


def case(memory: Memory, shape: str, example: str) -> Case:
    """Make a shape that touches memory, or does nothing to registers, into code."""
    name = shape.split()[0]
    for prefix, make in (("ds_", in_lds), ("global_", in_global), ("buffer_", in_buffer), ("s_load_", to_scalars)):
        if name in CACHES or name in HINTS:
            return nothing(memory, shape, example)
        if name.startswith(prefix):
            return make(memory, shape, example)
    raise KeyError(name)
