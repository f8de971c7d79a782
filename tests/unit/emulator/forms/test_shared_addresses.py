"""Atomics of several lanes at one address, in one instruction: the lanes take turns, in whatever order.

So each lane leads from what it found to what it left, and the lanes of an address make one way: from what was there to what is left.
Where the order does not matter, what is there at last is known: floats are drawn so that their sums are exact.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from accesses.atomics import is_atomic, result, statement
from accesses.read_back import registers
from accesses.wave_memory import SOME
from held import unused, used
from machine_code import WAVES, lanes
from slow_cases import slow_but
from statements.exact import MASK32
from units.cases import COUNT, drawn

SLOTS = 8  # addresses of a wave, of 8 bytes each
# Which slots a lane may be at, and which lanes are on.
WAYS = ((7, 2**64 - 1), (0, 2**64 - 1), (7, SOME))
IN_ORDER = ("swap", "inc", "dec", "csub", "rsub")  # what is left at last depends on the order


def names(arch: str) -> list[str]:
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
    """Return code that lets some lanes be on."""
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
    for name in names(arch):
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
