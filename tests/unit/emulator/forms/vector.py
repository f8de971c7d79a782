"""What instructions on lanes mean, stated in numpy and Python's integers: types of the result and of the operands, and a function.

`STATED` has them all, by the older names. A mnemonic that stands for several instructions has a suffix: signs, a byte, a format.
"""

# ruff: noqa: E501, E731 - a statement is a line

import functools
import operator
from fractions import Fraction

import numpy as np
import torch

# Numbers as numpy and Python have them: typed views of registers, and arithmetic that rounds once.

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


def fused64(a, b, c) -> np.ndarray:
    """Return a * b + c of doubles, rounded once, by exact fractions."""

    def one(x: float, y: float, z: float) -> float:
        if not all(map(np.isfinite, (x, y, z))):
            return x * y + z if not (np.isfinite(x) and np.isfinite(y)) else z  # a product that is too large is finite all the same
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            return x * y + z
        try:
            return float(exact)
        except OverflowError:
            return np.inf if exact > 0 else -np.inf

    return np.array([one(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def each(function, *columns) -> np.ndarray:
    """Return a function of Python's integers, lane by lane, as 64 bits."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([int(function(*row)) & (2**64 - 1) for row in rows], np.uint64)


def whole(x: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return floats as whole numbers: towards zero, the nearest of the range, 0 for NaN."""
    return np.clip(np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0, posinf=2.0**40, neginf=-(2.0**40)), low, high).astype(np.int64)


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if width and value >> (width - 1) & 1 else value


def number(a, b, which):
    """Return the larger or smaller; of a NaN and a number the number, of two zeros the one of the right sign."""
    zeros = (a == 0) & (b == 0)
    sign = np.signbit(a) & np.signbit(b) if which is np.fmax else np.signbit(a) | np.signbit(b)
    return np.where(zeros, np.where(sign, -0.0, 0.0).astype(a.dtype), which(a, b))


def either(a, b, which):
    """Return the larger or smaller; NaN if either is."""
    return np.where(np.isnan(a) | np.isnan(b), np.array(np.nan, a.dtype), number(a, b, which))


# Integers, floats and conversions that kernels use.

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
u64 = lambda x: x.astype(np.uint64)
i64 = lambda x: x.astype(np.int64)


def shifted(a, by, bits: int, how=np.left_shift):
    return how(a, (by & (bits - 1)).astype(a.dtype))


def half_of_float(a):
    return a.astype(np.float16)


def half_of_fused(a, b, c):
    return fused(a, b, c).astype(np.float16)


def field(a: int, start: int, width: int) -> int:
    return a >> start & (1 << width) - 1


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


def frexp_exponent(a):
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32)


def frexp_mantissa(a):
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


VECTOR = {
    # 32-bit integers
    "v_add_u32": ("u32", "u32 u32", operator.add), "v_sub_u32": ("u32", "u32 u32", operator.sub), "v_subrev_u32": ("u32", "u32 u32", lambda a, b: b - a),
    "v_add3_u32": ("u32", "u32 u32 u32", lambda a, b, c: a + b + c), "v_xad_u32": ("u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    "v_lshl_add_u32": ("u32", "u32 u32 u32", lambda a, b, c: shifted(a, b, 32) + c), "v_add_lshl_u32": ("u32", "u32 u32 u32", lambda a, b, c: shifted(a + b, c, 32)),
    "v_lshl_or_b32": ("u32", "u32 u32 u32", lambda a, b, c: shifted(a, b, 32) | c), "v_and_or_b32": ("u32", "u32 u32 u32", lambda a, b, c: a & b | c),
    "v_or3_b32": ("u32", "u32 u32 u32", lambda a, b, c: a | b | c), "v_xor3_b32": ("u32", "u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    "v_mul_lo_u32": ("u32", "u32 u32", operator.mul), "v_mul_hi_u32": ("u32", "u32 u32", lambda a, b: (u64(a) * u64(b) >> np.uint64(32)).astype(np.uint32)),
    "v_mul_hi_i32": ("i32", "i32 i32", lambda a, b: (i64(a) * i64(b) >> 32).astype(np.int32)),
    "v_mul_u32_u24": ("u32", "u32 u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)), "v_mad_u32_u24": ("u32", "u32 u32 u32", lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mul_i32_i24": ("u32", "u32 u32", lambda a, b: each(lambda x, y: signed(x, 24) * signed(y, 24), a, b)),
    "v_mad_i32_i24": ("u32", "u32 u32 u32", lambda a, b, c: each(lambda x, y, z: signed(x, 24) * signed(y, 24) + z, a, b, c)),
    "v_mad_u64_u32": ("u64 m", "u32 u32 u64", lambda a, b, c: (u64(a) * u64(b) + c, each(lambda x, y, z: x * y + z >> 64, a, b, c) != 0)),
    "v_and_b32": ("u32", "u32 u32", operator.and_), "v_or_b32": ("u32", "u32 u32", operator.or_), "v_xor_b32": ("u32", "u32 u32", operator.xor), "v_not_b32": ("u32", "u32", operator.invert),
    "v_lshlrev_b32": ("u32", "u32 u32", lambda a, b: shifted(b, a, 32)), "v_lshrrev_b32": ("u32", "u32 u32", lambda a, b: shifted(b, a, 32, np.right_shift)),
    "v_ashrrev_i32": ("i32", "u32 i32", lambda a, b: shifted(b, a, 32, np.right_shift)), "v_alignbit_b32": ("u32", "u32 u32 u32", lambda a, b, c: each(lambda x, y, z: (x << 32 | y) >> (z & 31) & MASK32, a, b, c)),
    "v_bfe_u32": ("u32", "u32 u32 u32", lambda a, b, c: each(lambda x, y, z: field(x, y & 31, z & 31), a, b, c)),
    "v_bfe_i32": ("u32", "i32 u32 u32", lambda a, b, c: each(lambda x, y, z: signed(field(x, y & 31, z & 31), z & 31), a, b, c)),
    "v_bfi_b32": ("u32", "u32 u32 u32", lambda a, b, c: a & b | ~a & c), "v_bfrev_b32": ("u32", "u32", lambda a: each(lambda x: int(f"{x:032b}"[::-1], 2), a)),
    "v_ffbh_u32": ("u32", "u32", lambda a: each(lambda x: 32 - x.bit_length() if x else -1, a)), "v_ffbl_b32": ("u32", "u32", lambda a: each(lambda x: (x & -x).bit_length() - 1, a)),
    "v_bcnt_u32_b32": ("u32", "u32 u32", lambda a, b: each(lambda x, y: x.bit_count() + y, a, b)), "v_perm_b32": ("u32", "u32 u32 u32", lambda a, b, c: each(perm, a, b, c)),
    "v_min_i32": ("i32", "i32 i32", np.minimum), "v_max_i32": ("i32", "i32 i32", np.maximum), "v_min_u32": ("u32", "u32 u32", np.minimum), "v_max_u32": ("u32", "u32 u32", np.maximum),
    "v_max3_i32": ("i32", "i32 i32 i32", lambda a, b, c: np.maximum(np.maximum(a, b), c)), "v_min3_i32": ("i32", "i32 i32 i32", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_mov_b32": ("u32", "u32", lambda a: a), "v_mov_b64": ("u64", "u64", lambda a: a), "v_accvgpr_write_b32": ("u32", "u32", lambda a: a), "v_accvgpr_read_b32": ("u32", "u32", lambda a: a),
    "v_accvgpr_mov_b32": ("u32", "u32", lambda a: a), "v_cndmask_b32": ("u32", "u32 u32 m", lambda a, b, m: np.where(m, b, a)), "v_cndmask_b16": ("u16", "u16 u16 m", lambda a, b, m: np.where(m, b, a)),
    # with a carry
    "v_add_co_u32": ("u32 m", "u32 u32", lambda a, b: (a + b, u64(a) + u64(b) > MASK32)), "v_sub_co_u32": ("u32 m", "u32 u32", lambda a, b: (a - b, b > a)),
    "v_subrev_co_u32": ("u32 m", "u32 u32", lambda a, b: (b - a, a > b)), "v_addc_co_u32": ("u32 m", "u32 u32 m", lambda a, b, m: (a + b + m, u64(a) + u64(b) + m > MASK32)),
    "v_subb_co_u32": ("u32 m", "u32 u32 m", lambda a, b, m: (a - b - m, u64(b) + m > a)), "v_subbrev_co_u32": ("u32 m", "u32 u32 m", lambda a, b, m: (b - a - m, u64(a) + m > b)),
    # 64-bit integers
    "v_lshl_add_u64": ("u64", "u64 u32 u64", lambda a, b, c: (a << u64(b & 7)) + c), "v_lshlrev_b64": ("u64", "u32 u64", lambda a, b: shifted(b, a, 64)),
    "v_lshrrev_b64": ("u64", "u32 u64", lambda a, b: shifted(b, a, 64, np.right_shift)), "v_ashrrev_i64": ("i64", "u32 i64", lambda a, b: shifted(b, a, 64, np.right_shift)),
    # 16-bit integers
    "v_add_u16": ("u16", "u16 u16", operator.add), "v_sub_u16": ("u16", "u16 u16", operator.sub), "v_mul_lo_u16": ("u16", "u16 u16", operator.mul), "v_and_b16": ("u16", "u16 u16", operator.and_), "v_or_b16": ("u16", "u16 u16", operator.or_),
    "v_xor_b16": ("u16", "u16 u16", operator.xor), "v_mov_b16": ("u16", "u16", lambda a: a), "v_lshlrev_b16": ("u16", "u16 u16", lambda a, b: shifted(b, a, 16)), "v_lshrrev_b16": ("u16", "u16 u16", lambda a, b: shifted(b, a, 16, np.right_shift)),
    "v_ashrrev_i16": ("i16", "u16 i16", lambda a, b: shifted(b, a, 16, np.right_shift)), "v_max_u16": ("u16", "u16 u16", np.maximum), "v_max_i16": ("i16", "i16 i16", np.maximum), "v_min_u16": ("u16", "u16 u16", np.minimum), "v_min_i16": ("i16", "i16 i16", np.minimum),
    "v_cvt_u32_u16": ("u32", "u16", lambda a: a), "v_cvt_i32_i16": ("i32", "i16", lambda a: a),
    # floats
    "v_add_f32": ("f32", "f32 f32", operator.add), "v_sub_f32": ("f32", "f32 f32", operator.sub), "v_subrev_f32": ("f32", "f32 f32", lambda a, b: b - a), "v_mul_f32": ("f32", "f32 f32", operator.mul),
    "v_fma_f32": ("f32", "f32 f32 f32", fused), "v_fmac_f32": ("f32", "f32 f32 d", fused), "v_fmaak_f32": ("f32", "f32 f32 f32", fused), "v_fmamk_f32": ("f32", "f32 f32 f32", lambda a, k, b: fused(a, k, b)),
    "v_max_f32": ("f32", "f32 f32", lambda a, b: number(a, b, np.fmax)), "v_min_f32": ("f32", "f32 f32", lambda a, b: number(a, b, np.fmin)),
    "v_rcp_f32": ("~f32", "f32", lambda a: flushed(1 / flushed(a))), "v_rcp_iflag_f32": ("~f32", "f32", lambda a: flushed(1 / flushed(a))), "v_sqrt_f32": ("~f32", "f32", lambda a: np.sqrt(flushed(a))),
    "v_rsq_f32": ("~f32", "f32", lambda a: (1 / np.sqrt(flushed(a).astype(np.float64))).astype(np.float32)), "v_exp_f32": ("~f32", "f32", lambda a: flushed(np.exp2(a.astype(np.float64)).astype(np.float32))),
    "v_log_f32": ("~f32", "f32", lambda a: np.log2(flushed(a).astype(np.float64)).astype(np.float32)),
    "v_frexp_exp_i32_f32": ("i32", "f32", frexp_exponent), "v_frexp_exp_i32_f64": ("i32", "f64", frexp_exponent),
        # halves and doubles
    "v_add_f16": ("f16", "f16 f16", operator.add), "v_sub_f16": ("f16", "f16 f16", operator.sub), "v_mul_f16": ("f16", "f16 f16", operator.mul), "v_fma_f16": ("f16", "f16 f16 f16", lambda a, b, c: fused(a, b, c, np.float16)),
    "v_max_f16": ("f16", "f16 f16", lambda a, b: number(a, b, np.fmax)), "v_min_f16": ("f16", "f16 f16", lambda a, b: number(a, b, np.fmin)),
    "v_add_f64": ("f64", "f64 f64", operator.add), "v_mul_f64": ("f64", "f64 f64", operator.mul), "v_fma_f64": ("f64", "f64 f64 f64", fused64), "v_max_f64": ("f64", "f64 f64", lambda a, b: number(a, b, np.fmax)), "v_min_f64": ("f64", "f64 f64", lambda a, b: number(a, b, np.fmin)),
    "v_fma_mix_f32": ("f32", "mix mix mix", fused), "v_fma_mixlo_f16": ("f16", "mix mix mix", half_of_fused), "v_fma_mixhi_f16": ("f16", "mix mix mix", half_of_fused),
    # packed
    "v_pk_add_f32": ("2f32", "2f32 2f32", operator.add), "v_pk_mul_f32": ("2f32", "2f32 2f32", operator.mul), "v_pk_fma_f32": ("2f32", "2f32 2f32 2f32", fused), "v_pk_mov_b32": ("2u32", "2u32 2u32", lambda a, b: np.stack([a[:, 0], b[:, 1]], 1)),
    "v_pk_add_f16": ("2f16", "2f16 2f16", operator.add), "v_pk_mul_f16": ("2f16", "2f16 2f16", operator.mul), "v_pk_fma_f16": ("2f16", "2f16 2f16 2f16", lambda a, b, c: fused(a, b, c, np.float16)),
    "v_pk_max_f16": ("2f16", "2f16 2f16", lambda a, b: number(a, b, np.fmax)), "v_pk_min_f16": ("2f16", "2f16 2f16", lambda a, b: number(a, b, np.fmin)),
    "v_pack_b32_f16": ("u32", "u16 u16", lambda a, b: a.astype(np.uint32) | b.astype(np.uint32) << 16),
    # conversions
    "v_cvt_f32_f16": ("f32", "f16", lambda a: a), "v_cvt_f16_f32": ("f16", "f32", half_of_float), "v_cvt_f32_i32": ("f32", "i32", lambda a: a), "v_cvt_f32_u32": ("f32", "u32", lambda a: a), "v_cvt_f32_f64": ("f32", "f64", lambda a: a),
    "v_cvt_f64_f32": ("f64", "f32", lambda a: a), "v_cvt_f64_i32": ("f64", "i32", lambda a: a), "v_cvt_f64_u32": ("f64", "u32", lambda a: a), "v_cvt_i32_f32": ("i32", "f32", lambda a: whole(a, -(2**31), 2**31 - 1)), "v_cvt_u32_f32": ("u32", "f32", lambda a: whole(a, 0, 2**32 - 1)),
    "v_cvt_i32_f64": ("i32", "f64", lambda a: whole(a, -(2**31), 2**31 - 1)), "v_cvt_u32_f64": ("u32", "f64", lambda a: whole(a, 0, 2**32 - 1)),
    "v_cvt_pk_bf16_f32": ("2bf16", "u32 u32", lambda a, b: brain(a) | brain(b) << 16), "v_cvt_pk_f16_f32": ("u32", "f32 f32", lambda a, b: half_of_float(a).view(np.uint16).astype(np.uint32) | half_of_float(b).view(np.uint16).astype(np.uint32) << 16),
    **{f"v_cvt_f32_ubyte{n}": ("f32", "u32", lambda a, n=n: a >> 8 * n & 0xFF) for n in range(4)},
    "v_bitop3_b32": ("u32", "u32 u32 u32", bitop),
    "v_bitop3_b16": ("low", "u16 u16 u16", lambda a, b, c, table: bitop(a, b, c, table) & np.uint64(0xFFFF)),
}  # fmt: skip


def brain(bits):
    value = bits.astype(np.uint32)
    rounded = (value.astype(np.uint64) + 0x7FFF + (value >> 16 & 1)) >> np.uint64(16)
    return np.where(np.isnan(value.view(np.float32)), 0x7FC0, rounded).astype(np.uint32)


_ORDERS = {"f": lambda a, b: np.zeros(a.shape, bool), "t": lambda a, b: np.ones(a.shape, bool)}
_ORDERS |= {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne, "ge": operator.ge}
_ORDERS_OF_FLOATS = {"f": _ORDERS["f"], "tru": _ORDERS["t"]}
_ORDERS_OF_FLOATS |= {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b),
}
_ORDERS_OF_FLOATS |= {
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "neq": lambda a, b: ~(a == b),
}
_ORDERS_OF_FLOATS |= {f"n{name}": (lambda a, b, test=_ORDERS_OF_FLOATS[name]: ~test(a, b)) for name in ("lt", "ge", "lg", "gt", "le")}
for _kind in ("i32", "u32", "i64", "u64", "i16", "u16", "f32", "f64", "f16"):
    for _name, _test in (_ORDERS_OF_FLOATS if _kind[0] == "f" else _ORDERS).items():
        VECTOR[f"v_cmp_{_name}_{_kind}"] = VECTOR[f"v_cmpx_{_name}_{_kind}"] = ("m", f"{_kind} {_kind}", _test)


# Whole numbers: words, halves, pairs of halves, sums of products, and clamps.


def fit(kind: str, exact):
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


# Floats, halves and doubles: orders, parts of numbers, division, approximations, conversions.


def maximum(a, b):
    return number(a, b, np.fmax)


def minimum(a, b):
    return number(a, b, np.fmin)


def maximum_or_nan(a, b):
    return either(a, b, np.fmax)


def minimum_or_nan(a, b):
    return either(a, b, np.fmin)


def median(a, b, c):
    """Return the larger of the two that are left without the largest; with a NaN, the smallest of the others. Zeros are equal here."""
    most = maximum(maximum(a, b), c)
    left = np.where(most == a, maximum(b, c), np.where(most == b, maximum(a, c), maximum(a, b)))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), minimum(minimum(a, b), c), left)


def fraction(a):
    """Return what is above the whole number below: less than one, also where the difference rounds to it."""
    difference = (a.astype(np.float64) - np.floor(a)).astype(a.dtype) if a.dtype != np.float64 else a - np.floor(a)
    return np.where(difference >= 1, np.nextafter(np.ones((), a.dtype), np.zeros((), a.dtype)), difference)


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


def by_double(function):
    """Return an approximation: of the function in double, in the type of its operand."""
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


def scaled_by(a, power):
    """Return a number times a power of two, rounded once: 50 bits of room below halves, and exact doubles by Python."""
    if a.dtype == np.float16:
        return np.ldexp(a.astype(np.float64), np.clip(power.astype(np.int32), -500, 500)).astype(np.float16)
    return np.ldexp(a, np.clip(power, -4096, 4096))


def twice(a, b, c):
    """Return a product and a sum of halves, each of them rounded."""
    return (a * b).astype(np.float16) + c


# Bits of a fraction, the largest exponent as bits, and by which powers and where the scaling of a division begins and ends.
_DIVISION = {np.dtype(np.float32): (23, 255, 64, 96, 126, 23, 150), np.dtype(np.float64): (52, 2047, 128, 768, 1022, 53, 1075)}


def div_fixup(quotient, denominator, numerator):
    """Return a quotient with the sign it must have, and where an operand is 0, infinite or NaN what the division of these is.

    A quotient that is no number has overflowed; numbers whose exponents are far apart give 0, whatever the iteration has made of it.
    """
    special = (denominator == 0) | (numerator == 0) | ~np.isfinite(denominator) | ~np.isfinite(numerator)
    size = np.where(np.isnan(quotient), np.inf, np.abs(quotient)).astype(quotient.dtype)
    if quotient.dtype in _DIVISION:
        fraction, *_, apart = _DIVISION[quotient.dtype]
        above, below = ((np.abs(x).view(f"u{x.itemsize}") >> fraction).astype(int) for x in (numerator, denominator))
        size = np.where(above - below < -apart, 0, size)
    negative = np.signbit(numerator) ^ np.signbit(denominator)
    return np.where(special, numerator / denominator, np.where(negative, -size, size)).astype(quotient.dtype)


def div_fmas(fuse, power: int):
    def one(a, b, c, scaled):
        exact = fuse(a, b, c)
        return np.where(scaled, np.where(np.abs(c) >= 2, np.ldexp(exact, power), np.ldexp(exact, -power)), exact)

    return one


def div_scale(chosen, denominator, numerator):
    """Scale one of a numerator and a denominator so that their quotient and its parts are no denormals."""
    made = [div_scaled(*row) for row in zip(chosen, denominator, numerator, strict=True)]
    return np.array([value for value, _ in made]), np.array([flag for _, flag in made])


def div_scaled(s0, s1, s2):
    """Return a number and a flag, as the pseudocode of AMD's manuals has it, but for a reciprocal and a quotient that are both denormal."""
    fraction, most, power, far, least, small, _ = _DIVISION[s0.dtype]

    def exponent(x) -> int:
        return int(x.view(f"u{x.itemsize}")) >> fraction & most

    if s1 == 0 or s2 == 0:
        return s0.dtype.type(np.nan), True
    with np.errstate(all="ignore"):
        inverse = 1 / s1 != 0 and exponent(1 / s1) == 0
        ratio = exponent(s2 / s1) == 0 or exponent(s2) - exponent(s1) <= -least
        up, down = s0 * s0.dtype.type(2.0**power), s0 * s0.dtype.type(2.0**-power)
    is_denominator, is_numerator = s0 == s1 or (s0 != s0 and s1 != s1), s0 == s2 or (s0 != s0 and s2 != s2)
    if exponent(s2) - exponent(s1) >= far:
        return (up if is_denominator else s0), True
    if exponent(s1) == 0:
        return up, False
    if inverse and ratio:
        return (down if is_denominator else s0), True
    if inverse:
        return down, False
    if ratio:
        return (up if is_numerator else s0), True
    return (up if exponent(s2) <= small else s0), False


def dot2(a, b, c):
    """Add the low products, then the high ones, each of them rounded as a float. Products of halves are exact."""
    total = np.asarray(c, np.float32)
    for n in range(2):
        total = fused(a[:, n], b[:, n], total)
    return total


def dot2_first(a, b, c):
    """Add to the third number; products of bfloat16 are exact, or overflow before they are added."""
    return c + a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1]


def dot2_last(a, b, c):
    return (a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1]).astype(np.float32) + c


def cut(a):
    return a.view(np.uint32) >> 16


def towards_zero(a):
    """Return floats as halves, rounded towards zero: what is too large is the largest, infinity stays."""
    near = a.astype(np.float16)
    over = np.isfinite(a) & (np.abs(near.astype(np.float64)) > np.abs(a))
    return np.where(over, np.nextafter(near, np.float16(0)), near).astype(np.float16)


def of_class(a, wanted):
    """Return whether a number, given as bits, is of a class that is wanted."""
    bits = a.dtype.itemsize * 8
    fraction = {16: 10, 32: 23, 64: 52}[bits]

    def one(code: int, mask: int) -> int:
        minus, exponent, rest = code >> bits - 1, code >> fraction & 2 ** (bits - 1 - fraction) - 1, code & 2**fraction - 1
        if exponent == 2 ** (bits - 1 - fraction) - 1:
            kind = (1 if rest >> fraction - 1 else 0) if rest else (2 if minus else 9)
        else:
            kind = (3 if minus else 8) if exponent else (4 if minus else 7) if rest else (5 if minus else 6)
        return mask >> kind & 1

    return np.array([one(*row) for row in zip(a.tolist(), wanted.tolist(), strict=True)], bool)


_HALVES = {
    "v_max3": ("f16 f16 f16", lambda a, b, c: maximum(maximum(a, b), c)), "v_min3": ("f16 f16 f16", lambda a, b, c: minimum(minimum(a, b), c)), "v_med3": ("f16 f16 f16", median),
    "v_minmax": ("f16 f16 f16", lambda a, b, c: maximum(minimum(a, b), c)), "v_maxmin": ("f16 f16 f16", lambda a, b, c: minimum(maximum(a, b), c)),
    "v_maximum": ("f16 f16", maximum_or_nan), "v_minimum": ("f16 f16", minimum_or_nan), "v_maximum3": ("f16 f16 f16", lambda a, b, c: maximum_or_nan(maximum_or_nan(a, b), c)),
    "v_minimum3": ("f16 f16 f16", lambda a, b, c: minimum_or_nan(minimum_or_nan(a, b), c)), "v_maximumminimum": ("f16 f16 f16", lambda a, b, c: minimum_or_nan(maximum_or_nan(a, b), c)),
    "v_minimummaximum": ("f16 f16 f16", lambda a, b, c: maximum_or_nan(minimum_or_nan(a, b), c)),
}  # fmt: skip
REAL = {
    f"{name}_{kind}": (kind, operands.replace("f16", kind), how) for name, (operands, how) in _HALVES.items() for kind in ("f16", "f32")
}
REAL |= {f"v_{name}_f64": ("f64", "f64 f64", how) for name, how in (("maximum", maximum_or_nan), ("minimum", minimum_or_nan))}
REAL |= {
    f"v_pk_{name}_f16": ("2f16", operands.replace("f16", "2f16"), how)
    for name, operands, how in [(name[2:], *_HALVES[name]) for name in ("v_maximum", "v_minimum", "v_maximum3", "v_minimum3")]
}
for _kind in ("f16", "f32", "f64"):
    REAL |= {
        f"v_{name}_{_kind}": (_kind, _kind, how)
        for name, how in (
            *(("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rndne", np.rint), ("fract", fraction)),
            ("frexp_mant", frexp_mantissa),
        )
    }
    REAL |= {
        f"v_ldexp_{_kind}": (_kind, f"{_kind} {'i16' if _kind == 'f16' else 'i32'}", scaled_by),
        **{f"v_{cmp}_class_{_kind}": ("m", f"u{_kind[1:]} {'u16' if _kind == 'f16' else 'u32'}", of_class) for cmp in ("cmp", "cmpx")},
    }
for _kind in ("f16", "f64"):
    REAL |= {
        f"v_{name}_{_kind}": (f"~{_kind}", _kind, by_double(how))
        for name, how in (("rcp", lambda a: 1 / a), ("sqrt", np.sqrt), ("rsq", lambda a: 1 / np.sqrt(a)))
    }
REAL |= {
    "v_exp_f16": ("~f16", "f16", by_double(np.exp2)), "v_log_f16": ("~f16", "f16", by_double(np.log2)),
    **{f"v_{name}_{kind}": (f"~{kind}", kind, turned(quarters)) for name, quarters in (("sin", 0), ("cos", 1)) for kind in ("f16", "f32")},
    # sums and products
    "v_subrev_f16": ("f16", "f16 f16", lambda a, b: b - a), "v_mad_f16": ("f16", "f16 f16 f16", twice), "v_mac_f16": ("f16", "f16 f16 df16", twice),
    **{f"v_{name}_f16": ("f16", "f16 f16 " + d, lambda a, b, c: fused(a, b, c, np.float16)) for name, d in (("fmac", "df16"), ("fmaak", "f16"))}, "v_fmamk_f16": ("f16", "f16 f16 f16", lambda a, k, b: fused(a, k, b, np.float16)),
    "v_pk_fmac_f16": ("2f16", "2f16 2f16 d2f16", lambda a, b, c: fused(a, b, c, np.float16)), "v_fmac_f64": ("f64", "f64 f64 df64", fused64),
    "v_mul_legacy_f32": ("f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    "v_dot2_f32_f16": ("f32", "2f16 2f16 f32", dot2), "v_dot2c_f32_f16": ("f32", "2f16 2f16 df32", dot2), "v_dot2_f32_bf16": ("f32", "2bf16 2bf16 f32", dot2_first),
    "v_dot2c_f32_bf16": ("f32", "2bf16 2bf16 df32", dot2_first), "v_dot2_bf16_bf16": ("bf16", "2bf16 2bf16 bf16", lambda a, b, c: cut(dot2(a, b, c))),  # cut off without rounding: so measured on a gfx1200
    # division
    **{f"v_div_fixup_{kind}": (kind, f"{kind} {kind} {kind}", div_fixup) for kind in ("f16", "f32", "f64")}, **{f"v_div_scale_{kind}": (f"{kind} m", f"{kind} {kind} {kind}", div_scale) for kind in ("f32", "f64")},
    "v_div_fmas_f32": ("f32", "f32 f32 f32 vcc", div_fmas(fused, 64)), "v_div_fmas_f64": ("f64", "f64 f64 f64 vcc", div_fmas(fused64, 128)),
    # conversions
    "v_frexp_exp_i16_f16": ("i16", "f16", frexp_exponent), "v_cvt_f16_u16": ("f16", "u16", lambda a: a.astype(np.float64)), "v_cvt_f16_i16": ("f16", "i16", lambda a: a.astype(np.float64)),
    "v_cvt_u16_f16": ("u16", "f16", lambda a: whole(a, 0, 2**16 - 1)), "v_cvt_i16_f16": ("i16", "f16", lambda a: whole(a, -(2**15), 2**15 - 1)), "v_cvt_f32_bf16": ("f32", "bf16", lambda a: a),
    "v_cvt_flr_i32_f32": ("i32", "f32", lambda a: whole(np.floor(a), -(2**31), 2**31 - 1)), "v_cvt_rpi_i32_f32": ("i32", "f32", lambda a: whole(np.floor(a + np.float32(0.5)), -(2**31), 2**31 - 1)),
    "v_cvt_pkrtz_f16_f32": ("2f16", "f32 f32", lambda a, b: np.stack([towards_zero(a), towards_zero(b)], 1)),
    "v_cvt_pk_i16_f32": ("2i16", "f32 f32", lambda a, b: np.stack([whole(x, -(2**15), 2**15 - 1) for x in (a, b)], 1)),
    "v_cvt_pk_u16_f32": ("2u16", "f32 f32", lambda a, b: np.stack([whole(x, 0, 2**16 - 1) for x in (a, b)], 1)),
}  # fmt: skip
REAL_CDNA = {"v_dot2_f32_bf16": ("f32", "2bf16 2bf16 f32", dot2_last)}  # gfx950's manual adds the third number last


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

STATED = WHOLE | REAL | EIGHT | VECTOR
