"""What instructions on whole numbers mean that kernels rarely use: words, halves, pairs of halves, sums of products, and clamps."""

# ruff: noqa: E501 - a statement is a line

from __future__ import annotations

import functools

import numpy as np
from statements.exact import MASK32, each, signed

BITS = {"u16": 16, "i16": 16, "u32": 32, "i32": 32, "u64": 64, "i64": 64}
i64 = lambda x: x.astype(np.int64)  # noqa: E731


def fit(kind: str, exact):
    """Return exact numbers as the nearest that a type has."""
    info = np.iinfo({"u": "uint", "i": "int"}[kind[0]] + kind[1:])
    return np.clip(exact, info.min, info.max)


def fitted(kind: str, function):
    """Return a function whose exact result is saturated."""
    return lambda *given: fit(kind, function(*map(i64, given)))


def least(*given):
    return functools.reduce(np.minimum, given)


def most(*given):
    return functools.reduce(np.maximum, given)


def middle(a, b, c):
    return np.sort(np.stack([a, b, c]), axis=0)[1]


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


def leading_signs(x: int) -> int:
    """Return where the first bit is that differs from the sign, counted from it; -1 if none does."""
    top = x >> 31
    return next((n for n in range(1, 32) if x >> 31 - n & 1 != top), -1)


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


def to_halves(kind: str):
    return lambda a, b: np.stack([fit(kind, i64(a)), fit(kind, i64(b))], 1)


def high24(is_signed: bool):
    return lambda a, b: each(lambda x, y: (signed(x, 24) * signed(y, 24) if is_signed else (x & 0xFFFFFF) * (y & 0xFFFFFF)) >> 32, a, b)


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

WHOLE = {name: (result, operands, lambda *given, how=how: how(*map(i64, given))) for name, (result, operands, how) in _PRODUCTS.items()}
WHOLE |= {
    # 32 bits
    "v_alignbyte_b32": ("u32", "u32 u32 u32", lambda a, b, c: each(lambda x, y, z: (x << 32 | y) >> 8 * (z & 3), a, b, c) & np.uint64(MASK32)),
    "v_bfm_b32": ("u32", "u32 u32", lambda a, b: each(lambda x, y: (1 << (x & 31)) - 1 << (y & 31), a, b) & np.uint64(MASK32)),
    "v_ffbh_i32": ("u32", "u32", lambda a: each(leading_signs, a)), "v_xnor_b32": ("u32", "u32 u32", lambda a, b: ~a ^ b),
    "v_mul_hi_u32_u24": ("u32", "u32 u32", high24(False)), "v_mul_hi_i32_i24": ("u32", "u32 u32", high24(True)), "v_mad_i64_i32": ("i64 m", "u32 u32 u64", wide(True)),
    "v_cvt_pk_u16_u32": ("2u16", "u32 u32", to_halves("u16")), "v_cvt_pk_i16_i32": ("2i16", "i32 i32", to_halves("i16")),
    # orders
    **{f"v_{name}_{kind}": (kind, _TRIPLE.format(kind), how) for kind in ("u32", "i32", "u16", "i16") for name, how in (("min3", least), ("max3", most), ("med3", middle))},
    **{f"v_minmax_{kind}": (kind, _TRIPLE.format(kind), lambda a, b, c: most(least(a, b), c)) for kind in ("u32", "i32")},
    **{f"v_maxmin_{kind}": (kind, _TRIPLE.format(kind), lambda a, b, c: least(most(a, b), c)) for kind in ("u32", "i32")},
    **{f"v_pk_{name}_{kind}": ("2" + kind, _PAIR.format("2" + kind), how) for kind in ("u16", "i16") for name, how in (("min", least), ("max", most))},
    # halves
    "v_not_b16": ("u16", "u16", np.invert), "v_pk_mul_lo_u16": ("2u16", "2u16 2u16", lambda a, b: a * b),
    "v_pk_lshlrev_b16": ("2u16", "2u16 2u16", lambda a, b: b << (a & 15)), "v_pk_lshrrev_b16": ("2u16", "2u16 2u16", lambda a, b: b >> (a & 15)),
    "v_pk_ashrrev_i16": ("2i16", "2u16 2i16", lambda a, b: b >> (a & 15).astype(np.int16)),
}  # fmt: skip
