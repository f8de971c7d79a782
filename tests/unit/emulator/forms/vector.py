"""What instructions on lanes mean: AMD's pseudocode, with types that follow from it; and in numpy what it leaves open.

A meaning is the types of the result, those of the operands, and a function. A mnemonic in `STATED` that stands for several instructions has
a suffix: signs, a byte, a format.
"""

# ruff: noqa: E501, E731 - a statement is a line

import functools
import re

import numpy as np
import torch
from comparison import LEFT_OUT, corrected, evaluated
from pseudocode import NotPseudocode, Number, function, table, text_of

# Numbers as numpy and Python have them: typed views of registers.

MASK32 = 0xFFFFFFFF
DTYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "i64": np.int64, "f64": np.float64, "u16": np.uint16,
    "i16": np.int16, "f16": np.float16,
}  # fmt: skip
WIDE = ("u64", "i64", "f64", "2f32", "2u32")


def typed(raw: np.ndarray, kind: str) -> np.ndarray:
    """Return registers, 64 bits a lane, as values of a type; `2f32` and `2u32` are pairs in the last axis, `2f16` and `2u16` too.

    A bfloat16 is a float.
    """
    if kind.endswith("bf16"):
        return typed(brains(raw & np.uint64(MASK32 if kind[0] == "2" else 0xFFFF)), kind.replace("bf16", "f32"))
    if kind.startswith("2"):
        width = DTYPES[kind[1:]]().itemsize
        return raw.astype(np.uint64).view(DTYPES[kind[1:]]).reshape(-1, 8 // width)[:, :2]
    width = DTYPES[kind]().itemsize
    return (raw & np.uint64(2 ** (8 * width) - 1)).astype(f"u{width}").view(DTYPES[kind])


def brains(pair: np.ndarray) -> np.ndarray:
    """Return two bfloat16 in 32 bits as two floats in 64."""
    return (pair & np.uint64(0xFFFF)) << np.uint64(16) | (pair >> np.uint64(16)) << np.uint64(48)


def raw_of(values: np.ndarray, kind: str) -> np.ndarray:
    """Return values of a type as registers, 64 bits a lane."""
    if kind.endswith("bf16"):
        halves = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint64)
        return halves[:, 0] | halves[:, 1] << np.uint64(16) if kind[0] == "2" else halves
    if kind.startswith("2"):
        made = np.ascontiguousarray(values.astype(DTYPES[kind[1:]]))
        return made.view(np.uint64 if made.itemsize == 4 else np.uint32).reshape(-1).astype(np.uint64)
    made = np.ascontiguousarray(values.astype(DTYPES[kind]))
    return made.view(f"u{made.itemsize}").astype(np.uint64)


def fused(a, b, c, dtype=np.float32) -> np.ndarray:
    """Return a * b + c, rounded once: the exact product in double, a sum that is rounded to odd, and then to the type."""
    x, y, z = (np.asarray(v).astype(np.float64) for v in (a, b, c))
    product = x * y  # 24 by 24 bits: exact
    total = product + z
    back = total - product
    rest = (product - (total - back)) + (z - back)
    bits = total.view(np.int64)
    wrong = np.isfinite(total) & (rest != 0) & (bits & 1 == 0)
    away = (rest > 0) == (total > 0)
    return np.where(wrong, (bits + np.where(away, 1, -1)).view(np.float64), total).astype(dtype)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def each(function, *columns) -> np.ndarray:
    """Return a function of Python's integers, lane by lane, as 64 bits."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([int(function(*row)) & (2**64 - 1) for row in rows], np.uint64)


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if width and value >> (width - 1) & 1 else value


def number(a, b, which):
    """Return the larger or smaller; of a NaN and a number the number, of two zeros the one of the right sign."""
    zeros = (a == 0) & (b == 0)
    sign = np.signbit(a) & np.signbit(b) if which is np.fmax else np.signbit(a) | np.signbit(b)
    return np.where(zeros, np.where(sign, -0.0, 0.0).astype(a.dtype), which(a, b))


OLDER = {
    "v_add_nc_u32": "v_add_u32", "v_sub_nc_u32": "v_sub_u32", "v_subrev_nc_u32": "v_subrev_u32", "v_add_nc_u16": "v_add_u16", "v_sub_nc_u16": "v_sub_u16",
    "v_add_co_ci_u32": "v_addc_co_u32", "v_sub_co_ci_u32": "v_subb_co_u32", "v_subrev_co_ci_u32": "v_subbrev_co_u32", "v_clz_i32_u32": "v_ffbh_u32",
    "v_ctz_i32_b32": "v_ffbl_b32", "v_mad_co_u64_u32": "v_mad_u64_u32", "v_max3_num_f32": "v_max3_f32", "v_min3_num_f32": "v_min3_f32",
    "v_max_num_f32": "v_max_f32", "v_min_num_f32": "v_min_f32", "v_max_num_f16": "v_max_f16", "v_min_num_f16": "v_min_f16", "v_max_num_f64": "v_max_f64",
    "v_min_num_f64": "v_min_f64", "v_med3_num_f32": "v_med3_f32", "v_dot2acc_f32_f16": "v_dot2c_f32_f16", "v_pk_max_num_f16": "v_pk_max_f16",
    "v_pk_min_num_f16": "v_pk_min_f16", "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32", "v_cls_i32": "v_ffbh_i32", "v_mul_dx9_zero_f32": "v_mul_legacy_f32",
    "v_cvt_floor_i32_f32": "v_cvt_flr_i32_f32", "v_cvt_nearest_i32_f32": "v_cvt_rpi_i32_f32", "v_mad_co_i64_i32": "v_mad_i64_i32", "v_dot2acc_f32_bf16": "v_dot2c_f32_bf16",
    **{f"v_{name}_t_{kind}": f"v_{name}_tru_{kind}" for name in ("cmp", "cmpx") for kind in ("f16", "f32", "f64")},
    **{f"v_{name}_nc_{kind}": f"v_{name}_{kind}" for name in ("add", "sub") for kind in ("i16", "i32")},
    **{f"v_{name}_num_{kind}": f"v_{name}_{kind}" for name in ("max3", "min3", "med3", "minmax", "maxmin") for kind in ("f16", "f32")},
}  # fmt: skip
i64 = lambda x: x.astype(np.int64)


# By AMD's pseudocode.

APPROXIMATE = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos)_")
_PLAIN = {"b": "u", "u": "u", "i": "i", "f": "f"}


def _kind(text: str) -> str:
    """Return the type of a register as the pseudocode names it, in the words of this file: of 24 bits, the type that holds it."""
    letter, bits = re.match(r"(bf|[buif])(\d+)", text).groups()
    return text if letter == "bf" else f"{_PLAIN[letter]}{32 if bits == '24' else bits}"


def _operand(text: str, n: int) -> str:
    if found := re.search(rf"\bS{n}\[(?:31 : 16|63 : 32)\]\.(\w+)", text):
        return "2" + _kind(found[1])
    found = re.search(rf"\bS{n}(?:\[15 : 0\])?\.(\w*\d+)", text)
    return _kind(found[1]) if found else "u32" if re.search(rf"\bS{n}\b", text) else ""


def _types(name: str, text: str) -> tuple[str, list[str], list[str]]:
    """Return the types of the result, those of the operands, and the registers of the pseudocode that these are."""
    last = _kind(re.findall(r"_([buif]+\d+)", name)[-1])
    slots = [f"S{n}" for n in range(3) if re.search(rf"\bS{n}\b", text)]
    kinds = [f"2{last}" if name.startswith("v_pk_") else _operand(text, int(slot[1])) for slot in slots]
    if name.startswith("v_cmp"):
        slots, kinds = slots or ["S0", "S1"], kinds or [last, last]
        return "m", kinds, slots
    if "SIMM32" in text:
        slots.insert(1 if "mk_" in name else 2, "SIMM32")
        kinds.append(kinds[0])
    right = re.sub(r"\{[^}]*\} =|^\s*D0\S* =|\bD0(?:\[[^]]*\])?(?:\.\w+)? =", "", text, flags=re.MULTILINE)
    result = re.search(r"^\s*D0\.(\w+) =", text, re.MULTILINE)
    into = f"2{last}" if name.startswith("v_pk_") else _kind(result[1]) if result and result[1] not in ("b32", "b64") else last
    if name.startswith("v_mad_") and "64_" in name:
        into = "u64 m"
    elif found := re.match(r"v_cvt_pk_?(rtz_f16|bf16)?(?:_|f)", name):
        into = {"rtz_f16": "2f16", "bf16": "2bf16"}.get(found[1] or "", "u32")
    elif name == "v_pack_b32_f16":
        into = "u32"
    elif name.startswith("v_cvt_") and not result:
        into = _kind(re.findall(r"_([buif]+\d+)", name)[0])
    elif re.search(r"VCC\.\w+\[laneId\] =(?!=)", text):
        into += " m"
    if re.search(r"\bD0\b", right):
        slots, kinds = [*slots, "D0"], [*kinds, "d" + into]
    if re.search(r"VCC\.\w+\[laneId\](?! =)", text):
        slots, kinds = [*slots, "VCC"], [*kinds, "vcc" if "div_fmas" in name else "m"]
    return into, kinds, slots


@functools.cache
def _lane(family: str, ieee: bool, name: str, text: str, lane: int, wave: int, given: tuple[tuple[str, int], ...]) -> tuple[int, int]:
    """Return what one lane of an instruction leaves: D0, and a bit of the mask that it writes, if it writes one."""
    held = dict(given)
    widths = {"SIMM32": 32}
    registers = {slot: Number("b", widths.get(slot, 64), value) for slot, value in held.items()}
    registers |= {"VCC": Number("u", 64, held.get("VCC", 0) << lane), "EXEC": Number("u", 64, (1 << wave) - 1)}
    registers |= {"laneId": lane, "D1": Number("u", 1, 0), "OPSEL": Number("u", 4, 0)}
    if "div_scale" in name:
        registers["D0"] = registers["S0"]
    left = evaluated(family, name, text, registers, ieee)
    compares = name.startswith("v_cmp")
    mask = left["D0" if "D0" in left["written"] else "EXEC"] if compares else left["D1"] if "D1" in left["written"] else left["VCC"]
    return left["D0"].raw, mask.raw >> (lane if mask.width > 1 else 0) & 1


@functools.cache
def by_pseudocode(family: str, name: str, wave: int):
    """Return the meaning of an instruction; None if the pseudocode says too little."""
    if any(re.match(pattern, name) for pattern, _ in LEFT_OUT):
        return None
    # An assembler knows some by the names of other families, too.
    own = next((each for each in (family, "rdna4", "rdna3", "cdna") if name in {known for known, _ in table(each).values()}), None)
    if own is None:
        return None
    text = corrected(name, text_of(own, name))
    try:
        function(text)
    except NotPseudocode:
        return None
    results, kinds, slots = _types(name, text)
    into = results.split()[0]

    def meaning(*values):
        raws = [
            value.astype(np.uint64) if kind in ("m", "vcc") else raw_of(value, kind.removeprefix("d"))
            for value, kind in zip(values, kinds, strict=True)
        ]
        rows = zip(*(raw.tolist() for raw in raws), strict=True)
        lanes = (n % wave if "laneId" in text else 0 for n in range(len(raws[0])))
        given = (tuple(zip(slots, row, strict=True)) for row in rows)
        left = [_lane(own, family != "rdna4", name, text, lane, wave, row) for lane, row in zip(lanes, given, strict=True)]
        words, mask = np.array([word & 2**64 - 1 for word, _ in left], np.uint64), np.array([bit for _, bit in left], bool)
        made = typed(words, into) if "f" in into and "bf" not in into else words
        return mask if results == "m" else (made, mask) if results.endswith(" m") else made

    return results, " ".join(kinds), meaning


# In numpy, what the pseudocode leaves open.


def perm(high: int, low: int, select: int) -> int:
    data, made = (low | high << 32).to_bytes(8, "little"), 0
    for n in range(4):
        how = select >> 8 * n & 0xFF
        byte = data[how] if how < 8 else (0xFF if data[2 * how - 15] >> 7 else 0) if how < 12 else 0 if how == 12 else 0xFF
        made |= byte << 8 * n
    return made


def bitop(a, b, c, table: int):
    """Each result bit is the bit of the table that the three inputs number."""
    return each(lambda x, y, z: sum((table >> ((x >> n & 1) << 2 | (y >> n & 1) << 1 | (z >> n & 1)) & 1) << n for n in range(32)), a, b, c)


def brain(bits):
    value = bits.astype(np.uint32)
    rounded = (value.astype(np.uint64) + 0x7FFF + (value >> 16 & 1)) >> np.uint64(16)
    return np.where(np.isnan(value.view(np.float32)), 0x7FC0, rounded).astype(np.uint32)


# Whole numbers that a modifier saturates.


def fit(kind: str, exact):
    info = np.iinfo({"u": "uint", "i": "int"}[kind[0]] + kind[1:])
    return np.clip(exact, info.min, info.max)


def fitted(kind: str, function):
    """Return a function whose exact result is saturated."""
    return lambda *given: fit(kind, function(*map(i64, given)))


def sum_of_differences(count: int, bits: int):
    """Return a function: differences of parts of two words, without their signs, and a third number."""

    def one(a, b, c):
        parts = [np.abs((i64(a) >> bits * n & 2**bits - 1) - (i64(b) >> bits * n & 2**bits - 1)) for n in range(count)]
        return sum(parts) + i64(c)

    return one


def dot(bits: int, first: bool, second: bool):
    """Return a function: the sum of products of the parts of two words, which are signed or not, and of a third number."""

    def parts(x, is_signed):
        fields = [x.astype(np.int64) >> bits * n & 2**bits - 1 for n in range(32 // bits)]
        return [np.where(one >> bits - 1 & is_signed, one - 2**bits, one) for one in fields]

    return lambda a, b, c: sum(x * y for x, y in zip(parts(a, first), parts(b, second), strict=True)) + i64(c)


def wide_sum(first: int, second: int, third: int, bits: int, is_signed: bool, clamp: bool = False) -> tuple[int, int]:
    """Return a product plus a number of 64 bits, and bit 64 of it: the carry, or with signs the sign."""
    a, b, c = (signed(first, 32), signed(second, 32), signed(third, 64)) if is_signed else (first, second, third)
    total = a * b + c
    low, high = (-(2**63), 2**63 - 1) if is_signed else (0, 2**64 - 1)
    return (max(low, min(high, total)) if clamp else total), total >> 64 & 1


def wide(is_signed: bool, clamp: bool = False):
    def both(a, b, c):
        result = each(lambda x, y, z: wide_sum(x, y, z, 64, is_signed, clamp)[0], a, b, c)
        return result, each(lambda x, y, z: wide_sum(x, y, z, 64, is_signed)[1], a, b, c) != 0

    return both


def sums(sign: int, swap: bool, clamp: bool, carry: bool):
    """Return a function: a sum or difference with a carry in and out."""

    def both(a, b, m=None):
        a, b = (i64(b), i64(a)) if swap else (i64(a), i64(b))
        total = a + sign * b + (sign * m.astype(np.int64) if carry else 0)
        return (fit("u32", total) if clamp else total & MASK32), (total > MASK32) | (total < 0)

    return both


_PAIR, _TRIPLE = "{0} {0}", "{0} {0} {0}"
_SUM = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "subrev": lambda a, b: b - a}
_PRODUCTS = {
    "v_mad_u32_u24": ("u32", "u32 u32 u32", lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24": ("i32", "i32 i32 i32", lambda a, b, c: (a << 40 >> 40) * (b << 40 >> 40) + c),
    "v_mad_u32_u16": ("u32", "u16 u16 u32", lambda a, b, c: a * b + c), "v_mad_i32_i16": ("i32", "i16 i16 i32", lambda a, b, c: a * b + c),
    **{f"v_{name}_{kind}": (kind, _TRIPLE.format(kind), lambda a, b, c: a * b + c) for kind in ("u16", "i16") for name in ("mad", "mad_legacy")},
    **{f"v_pk_mad_{kind}": ("2" + kind, _TRIPLE.format("2" + kind), lambda a, b, c: a * b + c) for kind in ("u16", "i16")},
    "v_sad_u32": ("u32", "u32 u32 u32", sum_of_differences(1, 32)), "v_sad_u16": ("u32", "u32 u32 u32", sum_of_differences(2, 16)),
    **{f"v_dot{32 // bits}{c}_i32_i{bits}": ("i32", "u32 u32 " + ("di32" if c else "i32"), dot(bits, True, True)) for bits in (4, 8, 16) for c in ("", "c")},
    **{f"v_dot{32 // bits}_u32_u{bits}": ("u32", "u32 u32 u32", dot(bits, False, False)) for bits in (4, 8, 16)},
    **{f"v_dot{32 // bits}_i32_iu{bits} {a}{b}": ("i32", "u32 u32 i32", dot(bits, bool(a), bool(b))) for bits in (4, 8) for a in (0, 1) for b in (0, 1)},
    **{f"v_{name}_{kind}": (kind, _PAIR.format(kind), how) for name, how in _SUM.items() for kind in ("u16", "i16", "i32", "u32") if (name, kind[0]) != ("subrev", "i")},
    **{f"v_pk_{name}_{kind}": ("2" + kind, _PAIR.format("2" + kind), _SUM[name]) for name in ("add", "sub") for kind in ("u16", "i16")},
}  # fmt: skip

# With a clamp, the nearest number that the result's type has.
SATURATED = {name: (result, operands, fitted(result.lstrip("2"), how)) for name, (result, operands, how) in _PRODUCTS.items()}
SATURATED |= {"v_mad_u64_u32": ("u64 m", "u32 u32 u64", wide(False, True)), "v_mad_i64_i32": ("i64 m", "u32 u32 u64", wide(True, True))}
_CARRIES = {"v_add_co_u32": (1, False), "v_sub_co_u32": (-1, False), "v_subrev_co_u32": (-1, True)}
_CARRIED = {"v_addc_co_u32": (1, False), "v_subb_co_u32": (-1, False), "v_subbrev_co_u32": (-1, True)}
SATURATED |= {name: ("u32 m", "u32 u32", sums(*how, True, False)) for name, how in _CARRIES.items()}
SATURATED |= {name: ("u32 m", "u32 u32 m", sums(*how, True, True)) for name, how in _CARRIED.items()}

SIGNED_DOTS = {
    name: (result, operands, lambda *given, how=how: how(*map(i64, given)))
    for name, (result, operands, how) in _PRODUCTS.items()
    if "_iu" in name
}


def turned(quarters: int):
    """Return the sine of turns, or of turns and a quarter. Beyond 256 turns, older manuals have 0 for it; no manual of these cards has.

    What is left after whole quarters is exact, so that zeros and small results are."""

    def one(a):
        turns = a.astype(np.float64)
        turns = np.where(np.isfinite(turns), turns, 0)
        nearest = np.rint(turns * 4)
        rest = (turns - nearest / 4) * (2 * np.pi)
        quarter = (nearest % 4 + quarters) % 4
        result = np.choose(quarter.astype(int), [np.sin(rest), np.cos(rest), -np.sin(rest), -np.cos(rest)])
        result = np.where(result == 0, 0.0, result)
        result = np.where((a == 0) & (quarters == 0), a, result)  # the sine of -0 is -0, that of -1 turn is 0
        return np.where(np.isfinite(a), result, np.nan).astype(a.dtype)

    return one


def dot2(a, b, c):
    """Add the low products, then the high ones, each of them rounded as a float. Products of halves are exact."""
    total = np.asarray(c, np.float32)
    for n in range(2):
        total = fused(a[:, n], b[:, n], total)
    return total


def cut(a):
    return a.view(np.uint32) >> 16


# Conversions to and from floats of 8 and 4 bits: those of 8 bits by torch, which has both formats.

FORMATS = {
    ("fp8", "fnuz"): torch.float8_e4m3fnuz, ("bf8", "fnuz"): torch.float8_e5m2fnuz, ("fp8", "ocp"): torch.float8_e4m3fn,
    ("bf8", "ocp"): torch.float8_e5m2,
}  # fmt: skip
FOURS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def reader(dtype):
    """Return a function: the value of each byte as a float."""
    table = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy()
    return lambda code: table[code & 0xFF]


def writer(dtype):
    """Return a function: the codes of two floats, one above the other."""

    def code(values):
        """What is too large is NaN where the format has no infinity; torch may have the largest instead."""
        codes = torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(dtype).view(torch.uint8).numpy().astype(np.uint16)
        return np.where(np.abs(values) > 464, codes | 0x7F, codes) if dtype == torch.float8_e4m3fn else codes

    return lambda a, b: code(a) | code(b) << 8


def power(scale):
    """Return the power of two that a float's exponent means as a scale: not its sign, not its fraction. 255 is NaN, as OCP's E8M0 has it."""
    exponent = (scale.view(np.uint32) >> 23 & 0xFF).astype(int)
    return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))


def both(function):
    """Return a function: of each byte of a half, times a scale."""
    return lambda code, scale: np.stack(
        [(function(code >> 8 * n).astype(np.float64) * power(scale)).astype(np.float32) for n in range(2)], 1
    )


def fours(byte: int):
    def one(code, scale):
        return np.stack([(FOURS[code >> 8 * byte + 4 * n & 15].astype(np.float64) * power(scale)).astype(np.float32) for n in range(2)], 1)

    return one


def packed_brains(function):
    def one(code, scale):
        pair = function(code, scale).view(np.uint32)
        return brain(pair[:, 0]) | brain(pair[:, 1]) << 16

    return one


def divided(write):
    return lambda a, b, scale: write(*((x.astype(np.float64) / power(scale)).astype(np.float32) for x in (a, b)))


def divided_pair(write):
    return lambda pair, scale: divided(write)(pair[:, 0], pair[:, 1], scale)


EIGHT = {}
for (_eight, _format), _dtype in FORMATS.items():
    _read, _write = reader(_dtype), writer(_dtype)
    EIGHT |= {
        f"v_cvt_f32_{_eight} {_format}": ("f32", "u32", _read),
        f"v_cvt_pk_f32_{_eight} {_format}": ("2f32", "u16", lambda a, read=_read: np.stack([read(a), read(a >> 8)], 1)),
        f"v_cvt_pk_{_eight}_f32 {_format}": ("u16", "f32 f32", _write),
    }
    if _format == "ocp":
        EIGHT |= {f"v_cvt_scalef32_pk_{kind}_{_eight}": (f"2{kind}", "u16 f32", both(_read)) for kind in ("f32", "f16")}
        EIGHT[f"v_cvt_scalef32_pk_bf16_{_eight}"] = ("2bf16", "u16 f32", packed_brains(both(_read)))
        EIGHT |= {f"v_cvt_scalef32_pk_{_eight}_f32": ("u16", "f32 f32 f32", divided(_write))}
        EIGHT |= {f"v_cvt_scalef32_pk_{_eight}_{kind}": ("u16", f"2{kind} f32", divided_pair(_write)) for kind in ("f16", "bf16")}
EIGHT |= {f"v_cvt_scalef32_pk_{kind}_fp4 {byte}": (f"2{kind}", "u32 f32", fours(byte)) for kind in ("f32", "f16") for byte in range(4)}
EIGHT |= {f"v_cvt_scalef32_pk_bf16_fp4 {byte}": ("2bf16", "u32 f32", packed_brains(fours(byte))) for byte in range(4)}


STATED = SIGNED_DOTS | EIGHT | {
    **{f"v_accvgpr_{name}_b32": ("u32", "u32", lambda a: a) for name in ("read", "write", "mov")},
    "v_perm_b32": ("u32", "u32 u32 u32", lambda a, b, c: each(perm, a, b, c)),
    "v_bitop3_b32": ("u32", "u32 u32 u32", bitop),
    "v_bitop3_b16": ("low", "u16 u16 u16", lambda a, b, c, table: bitop(a, b, c, table) & np.uint64(0xFFFF)),
    "v_pk_mov_b32": ("2u32", "2u32 2u32", lambda a, b: np.stack([a[:, 0], b[:, 1]], 1)),
    "v_fma_mix_f32": ("f32", "mix mix mix", fused),
    **{f"v_fma_mix{half}_f16": ("f16", "mix mix mix", lambda a, b, c: fused(a, b, c).astype(np.float16)) for half in ("lo", "hi")},
    **{f"v_{name}_{kind}": (kind, kind, turned(quarters)) for name, quarters in (("sin", 0), ("cos", 1)) for kind in ("f16", "f32")},
    "v_dot2_bf16_bf16": ("bf16", "2bf16 2bf16 bf16", lambda a, b, c: cut(dot2(a, b, c))),  # cut off without rounding: so measured on a gfx1200
}  # fmt: skip
