"""What atomics mean, on LDS, global memory and buffers: what is left in memory, and what comes back.

A machine for atomics holds data in row 0, what is in memory before in row 1, and what a compare-and-swap expects in row 2.
"""

from __future__ import annotations

import re

import numpy as np
from accesses.read_back import LIMIT, registers, resource, words_of
from accesses.wave_memory import Memory
from statements.exact import MASK32, flushed, number, raw_of, typed
from units.cases import Case, Machine, brains

OFFSET = 64
WHOLE = {
    "swap": lambda old, x: x,
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "rsub": lambda old, x: x - old,
    "csub": lambda old, x: np.where(old > x, old - x, 0),  # no less than 0
    "inc": lambda old, x: np.where(old >= x, 0, old + 1),  # up to x, then 0
    "dec": lambda old, x: np.where((old == 0) | (old > x), x, old - 1),  # down to 0, then x
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "min": np.minimum,
    "max": np.maximum,
}
# Of a NaN and a number the number is left. AMD's documents leave open what is left of two zeros; the core takes their signs, as VALU does.
REAL = {
    "add": lambda old, x: old + x,
    "min": lambda old, x: number(old, x, np.fmin),
    "max": lambda old, x: number(old, x, np.fmax),
    "pk_add": lambda old, x: old + x,
}
OLDER = {"cmpst": "cmpswap", "cmpstore": "cmpswap", "wrxchg": "swap", "storexchg": "swap"}
_NAME = re.compile(r"(ds|(?:global|flat|buffer)_atomic)_(\w+?)(_x2|_(?:u|i|b|f|bf)\d+)?")


def is_atomic(name: str) -> bool:
    return "_atomic_" in name or (name.startswith("ds_") and parsed(name) is not None)


def parsed(name: str) -> tuple[str, str] | None:
    """Return what an atomic does, and the type it does it on: `u32`, `i64`, `2f16`, `2bf16`; None: it is no atomic."""
    found = _NAME.fullmatch(re.sub(r"_rtn|_num", "", name))
    if not found:
        return None
    what, kind = OLDER.get(found[2], found[2]), (found[3] or "_u32")[1:].replace("x2", "u64").replace("b32", "u32").replace("b64", "u64")
    if what[1:] in ("min", "max"):
        what, kind = what[1:], kind.replace("u", "i") if what[0] == "s" else kind
    kind = f"2{kind}" if what == "pk_add" else kind
    known = REAL if "f" in kind else {**WHOLE, "cmpswap": None}
    return (what, kind) if what in known else None


def numbers_of(name: str) -> str:
    """Return which numbers the machine of an atomic holds."""
    _, kind = statement(name)
    return kind.lstrip("2") if "f" in kind else "u"


def statement(name: str) -> tuple[str, str]:
    found = parsed(name)
    if found is None:
        raise KeyError(name)
    return found


def machine_of(arch: str, numbers: str) -> Machine:
    """Draw numbers; in some lanes, memory holds the data itself or the data with the other sign, and what is expected, or half of it."""
    kind = "f32" if numbers == "bf16" else numbers
    machine = Machine(arch, (kind, kind, "u", "u", "u"))
    data, old, other = machine.rows[:3]
    if numbers == "bf16":
        data, old = (row >> np.uint64(16) & np.uint64(0xFFFF) | row >> np.uint64(48) << np.uint64(16) for row in (data, old))
        data, old = (row | row << np.uint64(32) for row in (data, old))
    signs = {"f32": 1 << 31 | 1 << 63, "f16": 0x8000800080008000, "bf16": 0x8000800080008000}.get(numbers, 1 << 63)
    every = machine.lane % 8
    if numbers == "f32":  # a normal sum's difference that is none
        data, old = (np.where(every == 2, np.uint64(bits << 32 | bits), row) for bits, row in ((0x00C00000, data), (0x80900000, old)))
    old = np.where(every == 0, data ^ np.uint64(signs), np.where(every == 1, data, old))
    low, high = np.uint64(MASK32), np.uint64(MASK32 << 32)
    other = np.choose(machine.lane // 2 % 4, [old, old, other & low | old & high, old & low | other & high])
    machine.rows[:3] = [data, old, other]
    return machine


def result(what: str, kind: str, old: np.ndarray, data: np.ndarray, expected: np.ndarray, flushes: bool = False) -> np.ndarray:
    """Return what is in memory afterwards, 64 bits a lane; `flushes` is about denormals of a sum of floats."""
    if flushes:
        with np.errstate(all="ignore"):
            return raw_of(flushed(flushed(typed(old, kind)) + flushed(typed(data, kind))), kind)
    if what == "cmpswap":
        return np.where(old == expected, data, old)
    with np.errstate(all="ignore"):
        if kind == "2bf16":
            sums = REAL[what](typed(brains(old), "2f32"), typed(brains(data), "2f32")).view(np.uint32).astype(np.uint64)
            rounded = sums + np.uint64(0x7FFF) + (sums >> np.uint64(16) & np.uint64(1)) >> np.uint64(16)
            rounded = np.where(np.isnan(sums.astype(np.uint32).view(np.float32)), 0x7FC0, rounded)
            return rounded[:, 0] | rounded[:, 1] << np.uint64(16)
        function = (REAL if "f" in kind else WHOLE)[what]
        return raw_of(function(typed(old, kind), typed(data, kind)), kind)


def cases(memory: Memory, shape: str, example: str) -> list[Case]:
    """Make an atomic into code: without and with the old value, and a flat one in global memory and in LDS."""
    name = shape.split()[0]
    if name.startswith("ds_"):
        modes = (False, True) if statement(name) == ("add", "f32") else (False,)
        return [_in_space(memory, shape, "lds", "_rtn_" in name, flushes) for flushes in modes]
    spaces = ("stage", "lds") if name.startswith("flat_") else ("stage",)
    return [_in_space(memory, shape, space, returns) for space in spaces for returns in (False, True)]


def _in_space(memory: Memory, shape: str, space: str, returns: bool, flushes: bool = False) -> Case:
    """Make one case. `flushes` sets MODE so that denormals of floats are flushed. LDS heeds it; memory flushes on gfx90a, always."""
    machine = memory.machine
    name, *kinds = re.split(r"[ ,]+", shape)
    what, kind = statement(name)
    words = 2 if kind.endswith("64") else 1
    offset = OFFSET if "offset" in kinds else 0
    flag = "th:TH_ATOMIC_RETURN" if machine.arch == "gfx1201" else "glc" if machine.arch in ("gfx90a", "gfx1100") else "sc0"
    flags = [one for one in kinds if one.startswith("scope:") or one in ("sc1", "nt", "slc", "dlc")]
    flags = [*([f"offset:{offset}"] if offset else []), *([flag] if returns and not name.startswith("ds_") else []), *flags]
    code, at = memory.slots("v28", 2 if name.startswith("buffer_") and machine.wave == 32 else 1)
    mask = np.uint64(MASK32 if words == 1 else 2**64 - 1)
    data, old, other = (row & mask for row in machine.rows[:3])
    bytes_ = getattr(memory, space)
    memory.write(bytes_, at + offset, words_of(machine.rows[1]) + words_of(machine.rows[2]), 16, np.ones(at.shape, bool))
    code += memory.put(space, "v28", 12, offset)
    code += ["v_mov_b32 v46, v18", "v_mov_b32 v47, v19", *(f"v_mov_b32 v{32 + n}, v{10 + n}" for n in range(words))]
    code += [f"v_mov_b32 v{32 + words + n}, v{14 + n}" for n in range(words)]
    value, expected = registers(words, 32), registers(words, 32 + words)
    both = value if what != "cmpswap" else registers(2 * words, 32)
    inside, back = np.ones(at.shape, bool), registers(words, 46)
    if name.startswith("ds_"):
        sources = [expected, value] if "cmpst_" in name else [value, expected]  # the newer ds_cmpstore has them the other way round
        line = [*([back] if returns else []), "v28", *(sources if what == "cmpswap" else [value])]
    elif name.startswith("buffer_"):
        if "offen" not in kinds:
            raise KeyError(shape)
        code += resource(machine, 10, 20, LIMIT)
        inside, back = at + offset + 4 * words <= LIMIT, value
        line, flags = [both, "v28", "s[20:23]", "null" if "null" in kinds else "0"], ["offen", *flags]
    else:
        code += memory.address(space, "v28")
        base = [] if name.startswith("flat_") else ["off"] if "off" in kinds else ["s[10:11]"]
        line = [*([back] if returns else []), "v28" if base == ["s[10:11]"] else "v[30:31]", both, *base]
    mode = (["s_setreg_imm32_b32 hwreg(1, 4, 2), 0"], ["s_setreg_imm32_b32 hwreg(1, 4, 2), 3"]) if flushes else ([], [])
    code += [*mode[0], f"{name} {', '.join(line)} {' '.join(flags)}", *mode[1], machine.wait]
    in_memory = (what, kind, machine.arch) == ("add", "f32", "gfx90a") and space == "stage"
    after = result(what, kind, old, data, other, flushes or in_memory)
    memory.write(bytes_, at + offset, words_of(after), 4 * words, inside & memory.on)
    made = Case(shape, [*code, *memory.get(space, "v28", 40, offset)])
    found = memory.read(bytes_, at + offset, 16)
    kind = {"u32": "u32", "i32": "u32", "u64": "u64", "i64": "u64"}.get(kind, kind)
    made.expected = [("v40", kind, found[0] if words == 1 else found[0] | found[1] << np.uint64(32))]
    made.expected += [(f"v{40 + n}", "u32", found[n]) for n in range(words, 4)]
    if returns:
        given = np.where(inside.reshape(-1), old, 0)  # beyond the end of a buffer, 0 comes back
        given = np.where(memory.on.reshape(-1), given, data if back == value else machine.rows[4] & mask)
        made.expected.append((back, "u64" if words == 2 else "u32", given))
    return made
