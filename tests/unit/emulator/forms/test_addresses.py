"""Buffers whose records an index names, and scalar loads with an offset in a register, after AMD's documents of the instruction sets.

A record has as many bytes as the buffer's stride, and NUM_RECORDS counts records. An offset is in range if it is in the record.
The offset in a scalar register moves the address, and is not checked.
"""

import functools
import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from accesses import SOME, Memory, extended, is_atomic, loaded, memory_of, registers, result, size_of, statement
from accesses import WAYS as BUFFER_WAYS
from cards import unused, used
from cases import COUNT, Case, Machine, drawn, execute_cases, lane_pattern
from machine_code import WAVES, assembled, lanes
from slow_cases import slow_but
from vector import MASK32

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
    machine, memory = memory_of(arch)
    found = []
    for reached in BUFFER_WAYS[::2]:
        memory.reach(reached)
        for way in WAYS_OF_INDEX:
            found += [reads(memory, name, way) for name in names(arch, "buffer_load") if "lds" not in name]
            found += [writes(memory, name, way) for name in names(arch, "buffer_store")]
    memory.reach(BUFFER_WAYS[0])
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
    machine, memory = memory_of(arch)
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
    memory, data = memory_of(arch)[1], np.zeros(64, np.uint32)
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


# Atomics of several lanes at one address, in one instruction: the lanes take turns, in whatever order.
#
# So each lane leads from what it found to what it left, and the lanes of an address make one way: from what was there to what is left.
# Where the order does not matter, what is there at last is known: floats are drawn so that their sums are exact.

SLOTS = 8  # addresses of a wave, of 8 bytes each
# Which slots a lane may be at, and which lanes are on.
WAYS = ((7, 2**64 - 1), (0, 2**64 - 1), (7, SOME))
IN_ORDER = ("swap", "inc", "dec", "csub", "rsub")  # what is left at last depends on the order


def names_of_shared_addresses(arch: str) -> list[str]:
    """Return the atomics of a card that know one operand; a compare-and-swap has two."""
    found = {one.split()[0] for one in (*used(arch), *unused(arch))}
    return sorted(name for name in found if is_atomic(name) and statement(name)[0] != "cmpswap")


def numbers(kind: str, what: str, seed: str) -> np.ndarray:
    """Draw operands as 64 bits a lane; floats that are added are small multiples of a power of two, with sums that are exact."""
    if "f" not in kind:
        return drawn("u", seed) & np.uint64(2 ** int(kind[1:]) - 1)
    few = drawn("u", seed) % np.uint64({"2bf16": 5, "2f16": 31}.get(kind, 2**16))
    values = few.astype(np.float64) - {"2bf16": 2, "2f16": 15}.get(kind, 2**15)
    values = np.where(values == 0, 1, values)  # which of two zeros is the smaller is left open
    if kind == "2bf16":
        half = values.astype(np.float32).view(np.uint32).astype(np.uint64) >> np.uint64(16)
        return half | half[::-1] << np.uint64(16)
    if kind == "2f16":
        half = values.astype(np.float16).view(np.uint16).astype(np.uint64)
        return half | half[::-1] << np.uint64(16)
    scaled = values / 8 if "add" in what else values * np.pi
    return (scaled if kind == "f64" else scaled.astype(np.float32)).view(f"u{int(kind[1:]) // 8}").astype(np.uint64)


def at_last(what: str, kind: str, first: int, data: list[int]) -> int | None:
    """Return what is at an address when all lanes had their turns, with Python's numbers; None: it depends on their order."""
    if what in IN_ORDER:
        return None
    if kind[0] == "2":
        half = np.float16 if kind == "2f16" else None
        parts = [[read(one >> shift & 0xFFFF, half) for one in (first, *data)] for shift in (0, 16)]
        return sum(written(sum(part), half) << 16 * n for n, part in enumerate(parts))
    bits = int(kind[1:])
    if kind[0] == "f":
        values = np.array([first, *data], f"u{bits // 8}").view(f"f{bits // 8}").tolist()
        total = {"add": sum, "min": min, "max": max}[what](values)
        return int(np.array([total], f"f{bits // 8}").view(f"u{bits // 8}")[0])
    values = [one - (1 << bits) if kind[0] == "i" and one >> bits - 1 else one for one in (first, *data)]
    logic = {
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "add": operator.add,
        "sub": operator.sub,
        "min": min,
        "max": max,
    }
    return functools.reduce(logic[what], values) & (1 << bits) - 1


def read(code: int, half: type | None) -> float:
    return float(np.array([code], np.uint16).view(half)[0] if half else np.array([code << 16], np.uint32).view(np.float32)[0])


def written(value: float, half: type | None) -> int:
    return int(np.array([value], half).view(np.uint16)[0] if half else np.array([value], np.float32).view(np.uint32)[0] >> 16)


def program(arch: str, name: str, space: str, returns: bool, words: int) -> str:
    """Return code that sets the slots and lets lanes go at them, once for each way; the old values and the slots are in v40 on."""
    cdna, lds = WAVES[arch] == 64, space == "lds"
    wait = "s_wait_loadcnt_dscnt 0x0\ns_wait_storecnt 0x0" if arch == "gfx1201" else "s_waitcnt 0"
    carry, more, two = ("vcc", "v_addc_co_u32", "dwordx2") if cdna else ("vcc_lo", "v_add_co_ci_u32", "b64")
    store, load = ("ds_write_b64", "ds_read_b64") if cdna else ("ds_store_b64", "ds_load_b64")
    flag = ("th:TH_ATOMIC_RETURN" if arch == "gfx1201" else "glc" if arch in ("gfx90a", "gfx1100") else "sc0") if returns else ""
    code = ["v_lshlrev_b32 v28, 3, v0", "s_mov_b32 s20, s6", "s_and_b32 s21, s7, 0xffff", f"s_mov_b32 s22, {8 * SLOTS}"]
    code += [f"s_mov_b32 s23, {'0x27000' if cdna else '0x31027000'}"]
    # The same as records of 8 bytes, for buffers by an index.
    code += [
        "s_mov_b32 s28, s20",
        "s_or_b32 s29, s21, 0x80000",
        f"s_mov_b32 s30, {SLOTS}",
        f"s_mov_b32 s31, {'0x27000' if cdna else '0x01027000'}",
    ]
    code += ["s_mov_b64 s[24:25], src_shared_base", "s_mov_b32 s24, 0"] if lds else ["s_mov_b64 s[24:25], s[6:7]"]
    for n, (slots, on) in enumerate(WAYS):
        data, back, slot = registers(words, 24), registers(words, 40 + 4 * n), f"v[{42 + 4 * n}:{43 + 4 * n}]"
        code += [*exec_of(arch, 2**SLOTS - 1), f"{store} v28, v[12:13]" if lds else f"global_store_{two} v28, v[12:13], s[6:7]"]
        code += [*exec_of(arch, 2**64 - 1), wait, f"v_and_b32 v29, {slots}, v14", "v_lshlrev_b32 v29, 3, v29", "v_mov_b32 v27, s25"]
        code += [f"v_add_co_u32 v26, {carry}, s24, v29", f"{more} v27, {carry}, 0, v27, {carry}"]
        code += [f"v_mov_b32 v{start + word}, v{10 + word}" for start in (24, 40 + 4 * n) for word in range(2)]
        code += exec_of(arch, on)
        if name.startswith("ds_"):
            code += [f"{name} {back}, v29, {data}" if returns else f"{name} v29, {data}"]
        elif name.startswith("buffer_"):
            address, how = ("v23, s[28:31]", "idxen") if n == len(WAYS) - 1 else ("v29, s[20:23]", "offen")
            zero = "null" if arch == "gfx1201" else "0"
            code += ["v_lshrrev_b32 v23, 3, v29", f"{name} {back if returns else data}, {address}, {zero} {how} {flag}"]
        else:
            operands = [*([back] if returns else []), "v[26:27]", data, *([] if name.startswith("flat") else ["off"])]
            code += [f"{name} {', '.join(operands)} {flag}"]
        code += [*exec_of(arch, 2**64 - 1), wait, f"{load} {slot}, v29" if lds else f"global_load_{two} {slot}, v29, s[6:7]", wait]
    return "\n".join(code)


def exec_of(arch: str, on: int) -> list[str]:
    halves = [f"s_mov_b32 exec_{half}, {on >> shift & MASK32:#x}" for half, shift in (("lo", 0), ("hi", 32))]
    return halves[: WAVES[arch] // 32]


def is_one_way(edges: list[tuple[int, int]], first: int, last: int) -> bool:
    """Return whether each edge can be gone once, from the first value to the last: as many ways in as out, and none apart."""
    if [start for start, _ in edges] + [last] == [first] + [end for _, end in edges]:  # in the order of the lanes, already
        return True
    ins, outs, nexts, reached, ahead = Counter({first: 1}), Counter({last: 1}), defaultdict(set), {first}, [first]
    for start, end in edges:
        outs[start] += 1
        ins[end] += 1
        nexts[start].add(end)
    while ahead:
        new = nexts[ahead.pop()] - reached
        reached |= new
        ahead += new
    return ins == outs and all(start in reached for start, _ in edges)


def wrong_in(arch: str, name: str, space: str, returns: bool) -> Iterator[str]:
    """Execute an atomic; yield where lanes do not take turns, or something else is left."""
    what, kind = statement(name)
    words, wave = (2 if kind.endswith("64") else 1), WAVES[arch]
    data, first = (numbers(kind, what, f"{arch} {name} {n}") for n in range(2))
    which = drawn("u", f"{arch} {name} slots")
    rows = [data & MASK32, data >> np.uint64(32), first & MASK32, first >> np.uint64(32), which & MASK32]
    found = [
        row.astype(np.uint64)
        for row in lanes(arch, program(arch, name, space, returns, words), [row.astype(np.uint32) for row in rows], 12)
    ]
    for n, (slots, on) in enumerate(WAYS):
        old, last = (found[at] | (found[at + 1] << np.uint64(32) if words == 2 else np.uint64(0)) for at in (4 * n, 4 * n + 2))
        left = result(what, kind, old, data, data).reshape(-1) & np.uint64(2 ** (32 * words) - 1)
        active = np.uint64(on) >> (np.arange(COUNT) % wave).astype(np.uint64) & np.uint64(1) == 1
        places = defaultdict(list)
        for lane, slot in enumerate((which & np.uint64(slots)).tolist()):
            places[lane // wave, slot].append(lane)
        # Python's numbers: to take them one by one from an array takes most of the time.
        befores, datas, olds, lefts, lasts, actives = (one.tolist() for one in (first, data, old, left, last, active))
        for (group, slot), there in places.items():
            before, ends = befores[group * wave + slot], {lasts[lane] for lane in there}
            going = [lane for lane in there if actives[lane]]
            expected = at_last(what, kind, before, [datas[lane] for lane in going])
            if len(ends) != 1 or (expected is not None and ends != {expected}):
                yield f"{name} {space} way {n}, slot {slot} of wave {group}: {ends} is left, not {expected}"
            if returns and not is_one_way([(olds[lane], lefts[lane]) for lane in going], before, ends.pop()):
                yield f"{name} {space} way {n}, slot {slot} of wave {group}: lanes take no turns"
        if returns and not np.array_equal(old[~active], data[~active]):
            yield f"{name} {space} way {n}: lanes that are off get something"


@pytest.mark.parametrize("arch", slow_but(WAVES, []))
def test_lanes_at_one_address_take_turns(arch):
    wrong, count = [], 0
    for name in names_of_shared_addresses(arch):
        spaces = ("lds",) if name.startswith("ds_") else ("memory", "lds") if name.startswith("flat_") else ("memory",)
        for space in spaces:
            for returns in ("_rtn_" in name,) if name.startswith("ds_") else (True,) if "csub" in name else (False, True):
                wrong += wrong_in(arch, name, space, returns)
                count += 1

    assert count > 100
    assert wrong == []


def test_what_takes_no_turns_is_found():
    """Two lanes that both found 5 and added 1 lost a sum; a ring apart from the way is none of it."""
    assert is_one_way([(5, 6), (6, 7)], 5, 7)
    assert is_one_way([(6, 7), (5, 6), (7, 7)], 5, 7)
    assert not is_one_way([(5, 6), (5, 6)], 5, 6)
    assert not is_one_way([(5, 6), (8, 9), (9, 8)], 5, 6)


# DPP where lanes are off, as AMD's documents have it, with a mask of its own for each wave.
#
# A source is invalid if there is none, or if its lane is off. An invalid source reads as 0 with `bound_ctrl:1`; without, nothing is
# written.
# `fi:1` reads lanes that are off, too. What `row_mask` and `bank_mask` leave out is not written. DPP8 is as with `bound_ctrl:1`.

LOW = np.uint64(MASK32)
BOTH = (
    "quad_perm:[1,0,3,2]", "quad_perm:[3,3,0,1]", "row_shl:1", "row_shl:7", "row_shl:15", "row_shr:1", "row_shr:4", "row_shr:15",
    "row_ror:1", "row_ror:8", "row_ror:15", "row_mirror", "row_half_mirror",
)  # fmt: skip
CDNA = ("row_bcast:15", "row_bcast:31", "wave_shl:1", "wave_shr:1", "wave_rol:1", "wave_ror:1", "row_newbcast:0", "row_newbcast:11")
RDNA = ("row_share:0", "row_share:11", "row_xmask:1", "row_xmask:10", "row_xmask:15")
DPP8 = ("dpp8:[7,6,5,4,3,2,1,0]", "dpp8:[1,1,4,0,7,2,2,5]")
WRITTEN = (("0xf", "0xf"), ("0xa", "0x7"), ("0x5", "0xc"))
# What an instruction makes of what DPP brings, of v12 and of v14.
OPERATIONS = {
    "v_mov_b32_dpp v40, v10": lambda x, y, z: x,
    "v_add_u32_dpp v40, v10, v12": lambda x, y, z: x + y,
    "v_add_nc_u32_dpp v40, v10, v12": lambda x, y, z: x + y,
    "v_add3_u32_e64_dpp v40, v10, v12, v14": lambda x, y, z: x + y + z,
    "v_cmp_lt_u32_e64_dpp s20, v10, v12": lambda x, y, z: x < y,
}
WIDE = "v_mov_b64_dpp v[40:41], v[10:11]"


class Lanes:
    """A machine, and the lanes of each wave that are on: as many as bits in two words of the fourth row, which each wave draws."""

    def __init__(self, arch: str) -> None:
        self.machine = machine = Machine(arch, ("u",) * 5)
        words = machine.rows[3][:: machine.wave] & np.uint64(2**machine.wave - 1)
        self.on = (words[:, None] >> np.arange(machine.wave, dtype=np.uint64) & np.uint64(1)).astype(bool)
        self.set = [f"v_readfirstlane_b32 s{24 + n}, v{16 + n}" for n in range(2)]
        self.set += [f"s_mov_b32 exec_{half}, s{24 + n}" for n, half in enumerate(("lo", "hi")[: machine.wave // 32])]
        self.all = f"s_mov_b{machine.wave} {'exec' if machine.cdna else 'exec_lo'}, -1"

    def row(self, n: int, high: int = 0) -> np.ndarray:
        return (self.machine.rows[n] >> np.uint64(32 * high) & LOW).reshape(-1, self.machine.wave)

    def case(self, text: str, control: str, rows: str = "0xf", banks: str = "0xf", bound: bool = False, fetch: bool = False) -> Case:
        """Make one instruction with DPP, over lanes of which some are off."""
        machine, lane = self.machine, np.arange(self.machine.wave)
        is_eight, name = control.startswith("dpp8"), text.split()[0]
        source = lane_pattern(dict([control.split(":") if ":" in control else (control, "")]), machine)
        valid = (source >= 0) & (self.on[:, source] | fetch)
        written = self.on & (valid | bound | is_eight)
        if not is_eight:
            written = written & (int(rows, 0) >> lane // 16 & 1 == 1) & (int(banks, 0) >> lane % 16 // 4 & 1 == 1)
        masks = "" if is_eight else f" row_mask:{rows} bank_mask:{banks}"
        flags = masks + (" bound_ctrl:1" if bound and not is_eight else "") + (" fi:1" if fetch else "")
        code = ["v_mov_b32 v40, v18", "v_mov_b32 v41, v19", *self.set, f"{text} {control}{flags}", self.all]
        made = Case(f"{name} {control}{flags}", code)
        if text == WIDE:
            results = [np.where(written, np.where(valid, self.row(0, n)[:, source], 0), self.row(4, n)) for n in range(2)]
            made.expected = [("v40", "u64", (results[0] | results[1] << np.uint64(32)).reshape(-1))]
            return made
        result = OPERATIONS[text](np.where(valid, self.row(0)[:, source], 0), self.row(1), self.row(2))
        if "v_cmp" in name:  # all bits of the result are written: 0 where a lane is off, left out, or has no source
            made.code += ["v_cndmask_b32 v40, 0, 1, s20"]
            made.expected = [("v40", "u32", (result & written).reshape(-1).astype(np.uint64))]
        else:
            made.expected = [("v40", "u32", np.where(written, result & LOW, self.row(4)).reshape(-1))]
        return made


def cases(arch: str) -> list[Case]:
    """Make every pattern of a card with every operation, with and without each modifier."""
    lanes, cdna = Lanes(arch), WAVES[arch] == 64
    assert 0.2 < lanes.on.mean() < 0.8
    texts = [one for one in OPERATIONS if ("nc_u32" in one or "e64" in one) != cdna or "mov" in one]
    found = []
    for text, control in itertools.product(texts, (*BOTH, *(CDNA if cdna else RDNA))):
        for (rows, banks), bound, fetch in itertools.product(WRITTEN, (False, True), (False,) if cdna else (False, True)):
            found.append(lanes.case(text, control, rows, banks, bound, fetch))
    if arch in ("gfx942", "gfx950"):
        for which, (rows, banks), bound in itertools.product((0, 9), WRITTEN, (False, True)):
            found.append(lanes.case(WIDE, f"row_newbcast:{which}", rows, banks, bound))
    if not cdna:
        found += [lanes.case(text, control, fetch=fetch) for text, control, fetch in itertools.product(texts, DPP8, (False, True))]
    return found


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx942", "gfx1201"]))
def test_dpp_where_lanes_are_off(arch):
    found = cases(arch)

    assert len(found) > 250
    assert all(len(expected) == COUNT for one in found for _, _, expected in one.expected)
    for begin in range(0, len(found), 128):
        assert execute_cases(Machine(arch, ("u",) * 5), found[begin : begin + 128]) == []
