"""What instructions mean that move values between lanes, or between lanes and scalars."""

# ruff: noqa: E501 - a statement is a line

import re

import numpy as np
from cards import flags_of, literals_of
from cases import COUNT, Case, Machine, bits_of
from vector import MASK32

LOW = np.uint64(MASK32)


def rows(machine: Machine, n: int) -> np.ndarray:
    return (machine.rows[n] & LOW).reshape(-1, machine.wave)


def one(machine: Machine, shape: str, code: list[str], expected: np.ndarray, register: str = "v40", kind: str = "u32") -> Case:
    return Case(
        shape,
        ["v_mov_b32 v40, v18", *code],
        [(register, kind, np.broadcast_to(expected, (COUNT // machine.wave, machine.wave)).reshape(-1).astype(np.uint64))],
    )


ON = 0x3C5A96E1B6C593A4  # lanes that stay on where the others are switched off


def partly(machine: Machine, code: list[str]) -> tuple[np.ndarray, list[str]]:
    """Return which lanes are on, and code that runs in them alone."""
    halves = [f"s_mov_b32 exec_{half}, {ON >> shift & MASK32:#x}" for half, shift in (("lo", 0), ("hi", 32))][: machine.wave // 32]
    return (ON >> np.arange(machine.wave, dtype=np.uint64) & np.uint64(1)).astype(bool), [
        *halves,
        *code,
        f"s_mov_b{machine.wave} {'exec' if machine.cdna else 'exec_lo'}, -1",
    ]


def readfirstlane(machine: Machine, shape: str, example: str) -> Case:
    made = one(machine, shape, ["v_readfirstlane_b32 s26, v10", "v_mov_b32 v40, s26"], rows(machine, 0)[:, :1])
    on, code = partly(machine, ["v_readfirstlane_b32 s26, v10"])
    first = np.repeat(rows(machine, 0)[:, on][:, :1], machine.wave, 1)
    made.code += [*code, "v_mov_b32 v44, s26"]
    made.expected.append(("v44", "u32", first.reshape(-1)))
    return made


def readlane(machine: Machine, shape: str, example: str) -> Case:
    """The lane is a number, or a scalar of which the lowest bits count."""
    target, _, which = literals_of(example)
    target = target if target.startswith("vcc") else "s26"
    source = rows(machine, 0)
    if which[0] == "s":
        lane = rows(machine, 1)[:, :1] % np.uint64(machine.wave)
        code = ["v_readfirstlane_b32 s18, v12", f"v_readlane_b32 {target}, v10, s18"]
    else:
        lane, code = np.full((len(source), 1), int(which)), [f"v_readlane_b32 {target}, v10, {which}"]
    code = partly(machine, code)[1] if which[0] != "s" else code  # a lane that is off is read, too
    return one(machine, shape, [*code, f"v_mov_b32 v40, {target}"], np.take_along_axis(source, lane.astype(np.int64), 1))


def writelane(machine: Machine, shape: str, example: str) -> Case:
    """The lane is a number, or a scalar of which the lowest bits count; it may be off."""
    _, value, which = literals_of(example)
    expected, code = rows(machine, 4).copy(), ["v_readfirstlane_b32 s16, v10", "v_readfirstlane_b32 s18, v12"]
    scalar = which[0] == "s"
    lane = (rows(machine, 1)[:, 0] % np.uint64(machine.wave)).astype(int) if scalar else int(which)
    expected[np.arange(len(expected)), lane] = rows(machine, 0)[:, 0] if value[0] == "s" else int(value, 0) & MASK32
    write = f"v_writelane_b32 v40, {'s16' if value[0] == 's' else value}, {'s18' if scalar else which}"
    return one(machine, shape, [*code, *partly(machine, [write])[1]], expected)


def mbcnt(machine: Machine, shape: str, example: str) -> Case:
    """Count the bits of a mask below each lane, in the low or the high word."""
    _, mask, add = literals_of(example)
    name, lane = shape.split()[0], machine.lane.astype(int)
    high = "hi" in name
    below = [(1 << max(0, min(32, one - 32))) - 1 if high else (1 << min(32, one)) - 1 for one in lane]
    code, value = [], np.full(COUNT, MASK32, np.uint64)
    if mask[0] == "s":
        code, mask, value = ["v_readfirstlane_b32 s16, v10"], "s16", machine.first(machine.rows[0] & LOW)
    elif mask[0] == "v":
        mask, value = "v10", machine.rows[0] & LOW
    text = "v12" if add[0] == "v" else add
    added = machine.rows[1] & LOW if add[0] == "v" else np.full(COUNT, int(add) if add[0] != "v" else 0, np.uint64)
    expected = np.array([(int(v) & b).bit_count() + int(c) & MASK32 for v, b, c in zip(value, below, added, strict=True)], np.uint64)
    return Case(shape, [*code, f"{name} v40, {mask}, {text}"], [("v40", "u32", expected)])


def permlane16(machine: Machine, shape: str, example: str) -> Case:
    """Each lane reads from its sixteen, or (x) from the other sixteen of its 32: the lane that its four bits of the two selectors say."""
    name, modifiers = shape.split()[0], flags_of(shape).get("op_sel", "")
    _, _, low, high = literals_of(example)
    source, lane = rows(machine, 0), np.arange(machine.wave)
    words, texts, code = [], [], []
    for n, one_ in enumerate((low, high)):
        if one_[0] == "s":
            code.append(f"v_readfirstlane_b32 s{18 + n}, v{12 + n}")
            words.append((machine.rows[1] >> np.uint64(32 * n) & LOW)[:: machine.wave])
            texts.append(f"s{18 + n}")
        else:
            words.append(np.full(len(source), int(one_, 0) & MASK32, np.uint64))
            texts.append(one_)
    selectors = words[0] | words[1] << np.uint64(32)
    other = (lane // 16 * 16 ^ (16 if "lanex" in name else 0)) + (
        selectors[:, None] >> (4 * (lane % 16)).astype(np.uint64) & np.uint64(15)
    ).astype(np.int64)
    text = f"{name} v40, v10, {texts[0]}, {texts[1]}" + (f" op_sel:{modifiers}" if modifiers else "")
    on, inner = partly(machine, [text])
    return one(machine, shape, [*code, *inner], from_lanes(machine, source, other, modifiers, on))


def permlane16_var(machine: Machine, shape: str, example: str) -> Case:
    """As with scalars, but each lane has a selector of its own."""
    name, lane = shape.split()[0], np.arange(machine.wave)
    which = (rows(machine, 1) & np.uint64(15)).astype(np.int64) + (lane // 16 * 16 ^ (16 if "lanex" in name else 0))
    modifiers = flags_of(shape).get("op_sel", "")
    on, code = partly(machine, [f"{name} v40, v10, v12" + (f" op_sel:{modifiers}" if modifiers else "")])
    return one(machine, shape, code, from_lanes(machine, rows(machine, 0), which, modifiers, on))


def permlane_swap(machine: Machine, shape: str, example: str) -> Case:
    """Odd rows (halves) of the first register change places with even ones of the second."""
    unit = 16 if "16" in shape.split()[0] else 32
    a, b = rows(machine, 4), rows(machine, 0)
    lane = np.arange(machine.wave)
    odd = lane // unit % 2 == 1
    first, second = np.where(odd, b[:, lane ^ unit], a), np.where(odd, b, a[:, lane ^ unit])
    name = shape.split()[0]
    made = one(machine, shape, ["v_mov_b32 v42, v10", f"{name} v40, v42"], first)
    made.expected.append(("v42", "u32", second.reshape(-1)))
    return made


def swap(machine: Machine, shape: str, example: str) -> Case:
    """Two registers change places, in the lanes that are on."""
    on, code = partly(machine, [f"{shape.split()[0]} v40, v42"])
    a, b = rows(machine, 4), rows(machine, 0)
    made = one(machine, shape, ["v_mov_b32 v42, v10", *code], np.where(on, b, a))
    made.expected.append(("v42", "u32", np.where(on, a, b).reshape(-1)))
    return made


def from_lanes(machine: Machine, source: np.ndarray, other: np.ndarray, modifiers: str, on: np.ndarray) -> np.ndarray:
    """Return what lanes have that read others: from one that is off what it holds (op_sel 0), 0 (op_sel 1), or nothing."""
    fetch, zero = bits_of(modifiers, 2, 0)
    kept = np.zeros_like(source) if zero else rows(machine, 4)
    read = np.take_along_axis(source, other, 1)
    return np.where(on, read if fetch else np.where(on[other], read, kept), rows(machine, 4))


def bpermute(machine: Machine, shape: str, example: str) -> Case:
    source, select = rows(machine, 0), rows(machine, 1)
    expected = np.take_along_axis(source, (select // np.uint64(4) % np.uint64(machine.wave)).astype(np.int64), 1)
    return one(machine, shape, ["ds_bpermute_b32 v40, v12, v10", machine.wait], expected)


def permute(machine: Machine, shape: str, example: str) -> Case:
    """Each lane sends its value to a lane; of several, the last one's arrives, and of none 0."""
    source, select = rows(machine, 0), rows(machine, 1)
    offset = int(flags_of(example).get("offset", 0))
    to = (((select + np.uint64(offset)) & LOW) // np.uint64(4) % np.uint64(machine.wave)).astype(np.int64)
    expected = np.zeros_like(source)
    for lane in range(machine.wave):
        expected[np.arange(len(source)), to[:, lane]] = source[:, lane]
    return one(machine, shape, [f"ds_permute_b32 v40, v12, v10 offset:{offset}", machine.wait], expected)


def swizzle(machine: Machine, shape: str, example: str) -> Case:
    """A lane reads another lane of its 32, as one of the assembler's patterns says; without a pattern, bits of lanes go by masks."""
    how = example.split("offset:")[1]
    lane = np.arange(32)
    pattern, *given = [part.strip(' "') for part in re.split(r"[(,)]", how) if part]
    if pattern == "BITMASK_PERM" or "BITMASK_PERM" in given:
        pattern, given = "BITMASK_PERM", given[-1:]
    elif pattern == "swizzle":
        pattern, *given = given
    if pattern == "BITMASK_PERM":  # from the highest bit on: 0 or 1, the lane's bit, or its inverse
        bits = [
            {"0": 0 * lane, "1": 0 * lane + 1, "p": lane >> 4 - n & 1, "i": ~lane >> 4 - n & 1}[one_] for n, one_ in enumerate(given[0])
        ]
        other = sum(bit << 4 - n for n, bit in enumerate(bits))
    elif pattern.isdigit():
        keep, set_, flip = (int(pattern) >> 5 * n & 31 for n in range(3))
        other = (lane & keep | set_) ^ flip
    else:
        numbers = [int(one_) for one_ in given]
        other = PATTERNS[pattern](lane, *numbers)
    whole = np.arange(machine.wave) // 32 * 32 + np.tile(other, machine.wave // 32)
    return one(machine, shape, [f"ds_swizzle_b32 v40, v10 offset:{how}", machine.wait], rows(machine, 0)[:, whole])


def fourier(lane: np.ndarray, keep: int) -> np.ndarray:
    """The lane's bits in reverse, moved down by as many bits as are kept; those are as in the lane."""
    turned = np.array([int(f"{one_:05b}"[::-1], 2) for one_ in lane.tolist()])
    return turned >> keep.bit_count() | lane & keep


PATTERNS = {
    "QUAD_PERM": lambda lane, *quad: lane // 4 * 4 + np.array(quad)[lane % 4],
    "BROADCAST": lambda lane, size, which: lane // size * size + which,
    "SWAP": lambda lane, size: lane ^ size,
    "REVERSE": lambda lane, size: lane // size * size + size - 1 - lane % size,
    "ROTATE": lambda lane, back, count: (lane + (-count if back else count)) % 32,
    "FFT": fourier,
}


EXCHANGES = {
    "v_readfirstlane_b32": readfirstlane, "v_readlane_b32": readlane, "v_writelane_b32": writelane, "v_mbcnt_lo_u32_b32": mbcnt, "v_mbcnt_hi_u32_b32": mbcnt,
    "v_permlane16_b32": permlane16, "v_permlanex16_b32": permlane16, "v_permlane16_var_b32": permlane16_var, "v_permlanex16_var_b32": permlane16_var, "v_swap_b32": swap, "v_permlane16_swap_b32": permlane_swap, "v_permlane32_swap_b32": permlane_swap, "ds_bpermute_b32": bpermute, "ds_permute_b32": permute,
    "ds_swizzle_b32": swizzle,
}  # fmt: skip
