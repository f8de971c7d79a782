"""Buffers whose records an index names, and scalar loads with an offset in a register, after AMD's documents of the instruction sets.

A record has as many bytes as the buffer's stride, and NUM_RECORDS counts records. An offset is in range if it is in the record.
The offset in a scalar register moves the address, and is not checked.
"""

from __future__ import annotations

import numpy as np
import pytest
from accesses.read_back import extended, loaded, registers, size_of
from accesses.wave_memory import WAYS, Memory
from held import in_memory, unused, used
from machine_code import WAVES, assembled
from slow_cases import slow_but
from statements.exact import MASK32
from units.cases import COUNT, Case, execute_cases

from warpwave.emulator import Launch, Unimplemented, execute, load

STRIDE, RECORDS, MOVED = 48, 20, 16  # bytes, records of a buffer that is read, and what the scalar offset moves
STRUCTURED, INDEX, EMPTY = range(3)  # OOB_SELECT of RDNA's resources
EDGE = 0x80000000
WAYS_OF_INDEX = ("idxen", "idxen offset", "idxen offen", "idxen offen offset")


def names(arch: str, prefix: str) -> list[str]:
    """Return the instructions of a card that begin with a prefix."""
    return sorted({one.split()[0] for one in (*used(arch), *unused(arch)) if one.startswith(prefix)})


def resource(memory: Memory, base: int, stride: int, records: int, select: int = STRUCTURED) -> list[str]:
    """Return code that describes a buffer of records in s[12:15]."""
    word = 0x27000 if memory.wide else 0x01027000 | select << 28
    code = [f"s_mov_b32 s12, s{base}", f"s_and_b32 s13, s{base + 1}, 0xffff", f"s_or_b32 s13, s13, {stride << 16:#x}"]
    return [*code, f"s_mov_b32 s14, {records}", f"s_mov_b32 s15, {word:#x}", f"s_mov_b32 s24, {MOVED}"]


def offsets(memory: Memory, size: int, edges: int = EDGE) -> tuple[list[str], np.ndarray]:
    """Return code that puts an offset of each lane into v31, and the offsets: they part a record without rest."""
    row = (memory.machine.rows[3] >> np.uint64(32)).astype(np.int64).reshape(memory.groups, -1)
    if size == 12:
        return ["v_and_b32 v31, 7, v17", "v_mul_u32_u24 v31, 12, v31"], (row & 7) * 12
    mask = edges | 0x7F & -size
    return [f"v_and_b32 v31, {mask:#x}, v17"], row & mask


def place(memory: Memory, name: str, way: str, scalar: bool, edges: int = EDGE) -> tuple[list[str], np.ndarray, str]:
    """Return code that puts an offset beside the index in v30, the offset in the record, and what follows the data's register."""
    size, code, within = size_of(name), [], np.zeros((memory.groups, memory.machine.wave), np.int64)
    if "offen" in way:
        code, within = offsets(memory, size, edges)
    within = within + (size if "offset" in way else 0)
    address = "v[30:31]" if {"offen", "idxen"} <= set(way.split()) else "v31" if "offen" in way else "v30"
    zero = "0" if memory.wide or memory.machine.arch == "gfx1100" else "null"
    text = f"{address}, s[12:15], {'s24' if scalar else zero} {way.replace('offset', f'offset:{size}')}"
    return code, within, text


def reads(memory: Memory, name: str, way: str, select: int = STRUCTURED, stride: int = STRIDE, records: int = RECORDS) -> Case:
    """Load from records; what is out of range reads 0."""
    size, machine, scalar = size_of(name), memory.machine, "offset" in way
    edges = EDGE if select == STRUCTURED and stride else 0
    code, within, text = place(memory, name, way, scalar, edges)
    mask = (0x1F if select == STRUCTURED and stride else 0xF) | (EDGE if select != EMPTY else 0)
    index = ((machine.rows[3] & np.uint64(mask)).astype(np.int64) if "idxen" in way else np.zeros(COUNT, np.int64)).reshape(within.shape)
    inside = [(index < records) & (within + size <= stride), index < records, np.full(index.shape, records > 0)][select]
    inside = inside if stride else within + size + MOVED * scalar <= records
    assert records < RECORDS or stride == 0 or inside.sum() > 100
    at = np.where(inside, index * stride + within + MOVED * scalar, 0)
    values = [np.where(inside.reshape(-1), value, 0).astype(np.uint64) for value in memory.read(memory.given, at, size)]
    values = extended(values, name, size, machine.rows[4] & np.uint64(MASK32))
    code = [*resource(memory, 4, stride, records, select), f"v_and_b32 v30, {mask:#x}, v16", *code]
    return memory.only(name, loaded(memory, f"{name} v {way}", [*code, f"{name} {registers(len(values))}, {text}"], values))


def writes(memory: Memory, name: str, way: str) -> Case:
    """Store to a record for each lane, some of them out of range, and read every record back."""
    size, machine, records = size_of(name), memory.machine, memory.machine.wave - 9
    code, within, text = place(memory, name, way, "offset" in way)
    far = (machine.rows[3] & np.uint64(EDGE)).astype(np.int64).reshape(within.shape) & np.where(
        machine.lane.reshape(within.shape) % 4, 0, EDGE
    )
    record = np.broadcast_to(np.arange(machine.wave) ^ 5, within.shape)
    inside = (record + far < records) & (within + size <= STRIDE)
    source, values = memory.source(0, max(1, size // 4))
    values = [value >> np.uint64(16) for value in values] if "d16_hi" in name else values
    moved = MOVED if "offset" in way else 0
    memory.write(memory.stage, record * STRIDE + within * inside + moved, values, size, inside & memory.on)
    code = [*resource(memory, 10, STRIDE, records), *code, "v_xor_b32 v28, 5, v0", f"v_and_b32 v30, {EDGE:#x}, v16"]
    code += ["v_and_b32 v29, 3, v0", f"v_cmp_eq_u32 {'vcc' if memory.wide else 'vcc_lo'}, 0, v29"]
    code += [f"v_cndmask_b32 v30, 0, v30, {'vcc' if memory.wide else 'vcc_lo'}", "v_or_b32 v30, v30, v28"]
    made = memory.only(
        name, Case(f"{name} v {way}", [*code, f"{name} {source}, {text}", machine.wait, f"v_mul_u32_u24 v28, {STRIDE}, v28"])
    )
    for n in range(STRIDE // 16):
        made.code += memory.get("stage", "v28", 40 + 4 * n, moved + 16 * n)
        words = memory.read(memory.stage, record * STRIDE + moved + 16 * n, 16)
        made.expected += [(f"v{40 + 4 * n + word}", "u32", value) for word, value in enumerate(words)]
    return made


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx942", "gfx1201"]))
def test_records_by_index(arch):
    machine, memory = in_memory(arch)
    found = []
    for reached in WAYS[::2]:
        memory.reach(reached)
        for way in WAYS_OF_INDEX:
            found += [reads(memory, name, way) for name in names(arch, "buffer_load") if "lds" not in name]
            found += [writes(memory, name, way) for name in names(arch, "buffer_store")]
    memory.reach(WAYS[0])
    word = "buffer_load_dword" if memory.wide else "buffer_load_b32"
    for way in (*WAYS_OF_INDEX, "offen", "offen offset"):
        if memory.wide:  # without a stride, bytes count, and the index leads nowhere
            found.append(reads(memory, word, way, stride=0, records=96))
        else:
            found += [reads(memory, word, way, select) for select in (STRUCTURED, INDEX, EMPTY)]
            found.append(reads(memory, word, way, EMPTY, records=0))

    assert len(found) > 160
    assert execute_cases(machine, found, memory.begin) == []
    assert execute_cases(machine, found, memory.begin, []) == []


def from_register(memory: Memory, name: str, offset: str, limit: int = 512, stride: int = 0) -> Case:
    """Load with the offset of each lane in turn, which a scalar register or M0 holds; each lane keeps what its offset led to."""
    machine, size = memory.machine, size_of(name)
    words, buffer = (size + 3) // 4, "buffer" in name
    added = {"": 0, "s38 offset:36": 36, "s38 offset:-16": -16}.get(offset, 0)
    register = offset.split()[0]
    mask = (EDGE if buffer else 0) | 0x3FF
    least = 16 if added < 0 else 0
    at = ((machine.rows[3] & np.uint64(mask)).astype(np.int64) | least).reshape(memory.groups, -1) + added
    at = at & ~3 if size >= 4 else at  # the lowest two bits of an address of words are ignored
    if buffer:
        inside = [at + 4 * n + 4 <= limit * max(1, stride) for n in range(words)]
        values = [
            np.where(one.reshape(-1), memory.read(memory.given, np.where(one, at + 4 * n, 0), 4)[0], 0) for n, one in enumerate(inside)
        ]
    else:
        values = extended(memory.read(memory.given, at, size), name, size, at)
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    code = resource(memory, 4, stride, limit) if buffer else ["s_mov_b64 s[12:13], s[4:5]"]
    if not buffer and not added:  # an offset is a number without a sign: it leads 2 GiB ahead of a base that lies 2 GiB behind
        code += [f"s_sub_u32 s12, s12, {EDGE:#x}", "s_subb_u32 s13, s13, 0"]
        least = EDGE
    code += ["s_mov_b32 s36, 0", "1:", "s_mov_b32 m0, s36", "v_readlane_b32 s37, v16, s36", f"s_and_b32 s37, s37, {mask:#x}"]
    code += [f"s_or_b32 s38, s37, {least:#x}", *(["s_mov_b32 m0, s38"] if register == "m0" else [])]
    code += [f"{name} {target}, {'s[12:15]' if buffer else 's[12:13]'}, {offset}", machine.scalar_wait, "s_mov_b32 m0, s36"]
    code += [f"v_writelane_b32 v{40 + n}, s{16 + n}, m0" for n in range(words)]
    code += ["s_add_u32 s36, s36, 1", f"s_cmp_lt_u32 s36, {machine.wave}", "s_cbranch_scc1 1b"]
    return Case(f"{name} {offset}", code, [(f"v{40 + n}", "u32", value) for n, value in enumerate(values)])


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx942", "gfx1201"]))
def test_scalar_loads_with_an_offset_in_a_register(arch):
    machine, memory = in_memory(arch)
    found = []
    for name in names(arch, "s_load"):
        found += [from_register(memory, name, offset) for offset in ("s38", "m0", "s38 offset:36", "s38 offset:-16")]
    for name in names(arch, "s_buffer_load"):
        found += [from_register(memory, name, offset) for offset in ("s38", "m0", "s38 offset:36")]
        found.append(from_register(memory, name, "s38", 32, 16))  # a stride makes NUM_RECORDS count records

    assert len(found) >= 40
    assert execute_cases(machine, found) == []


SWIZZLED, HALF_SWIZZLED, WITH_LANES = "s_bitset1_b32 s13, 31", "s_bitset1_b32 s13, 30", "s_bitset1_b32 s15, 23"
ACROSS = f"idxen offset:{STRIDE - 2}"
BYTES = "s_or_b32 s15, s15, 0x30000000"
REFUSED = [
    ("gfx942", SWIZZLED, "idxen"), ("gfx1201", SWIZZLED, "offen"), ("gfx1100", HALF_SWIZZLED, "idxen"), ("gfx90a", WITH_LANES, "idxen"),
    ("gfx1100", WITH_LANES, "offen"), ("gfx1201", BYTES, "idxen"), ("gfx950", "s_nop 0", ACROSS), ("gfx1100", "s_nop 0", ACROSS),
]  # fmt: skip


def error_of(arch: str, code: list[str]) -> Exception:
    """Return what ends a launch of code that reads a buffer of one record."""
    memory, data = in_memory(arch)[1], np.zeros(64, np.uint32)
    begin = "s_load_dwordx2 s[4:5], s[0:1], 0x0" if memory.wide else "s_load_b64 s[4:5], s[0:1], 0x0"
    code = [begin, memory.machine.scalar_wait, *resource(memory, 4, STRIDE, 1), "v_mov_b32 v30, 0", *code]
    kernel = load(assembled(arch, "\n".join(f"\t{one}" for one in code)))
    with pytest.raises(Unimplemented) as raised:
        execute(kernel, Launch((1, 1, 1), WAVES[arch], data.ctypes.data.to_bytes(16, "little"), 0, [(data.ctypes.data, data.nbytes)]))
    return raised.value


@pytest.mark.parametrize(("arch", "line", "way"), REFUSED)
def test_what_is_left_open_is_refused(arch, line, way):
    """Swizzled records, lane ids in the index, an index where bytes are checked, and what lies across a record's end."""
    name, zero = "buffer_load_dword" if WAVES[arch] == 64 else "buffer_load_b32", "null" if arch == "gfx1201" else "0"

    assert name in str(error_of(arch, [line, f"{name} v40, v30, s[12:15], {zero} {way}"]))


@pytest.mark.parametrize("name", ["s_buffer_load_u8", "s_buffer_load_i16"])
def test_parts_of_words_from_a_buffer_are_refused(name):
    assert name in str(error_of("gfx1201", [f"{name} s16, s[12:15], s24"]))
