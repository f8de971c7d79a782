"""What instructions on lanes mean, stated in numpy: types of the result and of the operands, and a function."""

# ruff: noqa: E501, E731 - a statement is a line

from __future__ import annotations

import operator

import numpy as np
from statements.exact import MASK32, each, either, flushed, fused, fused64, number, signed, whole

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


def mixed(a, b, c):
    return fused(a, b, c)


def mixed_half(a, b, c):
    return fused(a, b, c, np.float32).astype(np.float16)


def div_fixup(quotient, denominator, numerator):
    """Repair what the iteration makes of special numbers: IEEE's division of the two, where one of them is special."""
    special = ~np.isfinite(numerator) | ~np.isfinite(denominator) | (numerator == 0) | (denominator == 0)
    above, below = ((np.abs(x).view(np.uint32) >> 23).astype(int) for x in (numerator, denominator))
    kept = np.where(above - below < -150, 0, np.where(np.isnan(quotient), np.inf, np.abs(quotient)))
    return np.where(special, numerator / denominator, np.copysign(kept, np.where(np.signbit(numerator) ^ np.signbit(denominator), -1, 1)))


def div_fmas(a, b, c, scaled):
    exact = fused(a, b, c)
    return np.where(scaled, np.where(np.abs(c) >= 2, np.ldexp(exact, 64), np.ldexp(exact, -64)), exact)


def middle(a, b, c):
    """Return the larger of the two that are left without the largest. Zeros are equal here."""
    most, left = number(number(a, b, np.fmax), c, np.fmax), [number(x, y, np.fmax) for x, y in ((b, c), (a, c), (a, b))]
    return np.where(most == a, left[0], np.where(most == b, left[1], left[2]))


def div_scale(chosen, denominator, numerator):
    """Scale one of a numerator and a denominator so that their quotient and its parts are no denormals: `div_scaled` says when."""
    made, scaled = [], []
    for s0, s1, s2 in zip(chosen.tolist(), denominator.tolist(), numerator.tolist(), strict=True):
        value, flag = div_scaled(s0, s1, s2)
        made.append(value)
        scaled.append(flag)
    return np.array(made, np.float32), np.array(scaled)


def div_scaled(s0: float, s1: float, s2: float) -> tuple[float, bool]:
    def exponent(x: float) -> int:
        return int(np.float32(x).view(np.uint32)) >> 23 & 255

    if s1 == 0 or s2 == 0:
        return float("nan"), True
    with np.errstate(all="ignore"):
        inverse, ratio = np.float32(1) / np.float32(s1), np.float32(s2) / np.float32(s1)
    tiny = [inverse != 0 and exponent(float(inverse)) == 0, exponent(float(ratio)) == 0 or exponent(s2) - exponent(s1) <= -126]
    same_as = {True: s0 == s1 or (s0 != s0 and s1 != s1), False: s0 == s2 or (s0 != s0 and s2 != s2)}
    if exponent(s2) - exponent(s1) >= 96:
        return (float(np.float32(s0) * np.float32(2.0**64)) if same_as[True] else s0), True
    if exponent(s1) == 0:
        return float(np.float32(s0) * np.float32(2.0**64)), False
    if tiny == [True, True]:
        return (float(np.float32(s0) * np.float32(2.0**-64)) if same_as[True] else s0), True
    if tiny[0]:
        return float(np.float32(s0) * np.float32(2.0**-64)), False
    if tiny[1]:
        return (float(np.float32(s0) * np.float32(2.0**64)) if same_as[False] else s0), True
    return (float(np.float32(s0) * np.float32(2.0**64)) if exponent(s2) <= 23 else s0), False


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
    "v_max3_f32": ("f32", "f32 f32 f32", lambda a, b, c: number(number(a, b, np.fmax), c, np.fmax)), "v_min3_f32": ("f32", "f32 f32 f32", lambda a, b, c: number(number(a, b, np.fmin), c, np.fmin)),
    "v_med3_f32": ("f32", "f32 f32 f32", lambda a, b, c: np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), number(number(a, b, np.fmin), c, np.fmin), middle(a, b, c))),
    "v_maximum_f32": ("f32", "f32 f32", lambda a, b: either(a, b, np.fmax)), "v_minimum_f32": ("f32", "f32 f32", lambda a, b: either(a, b, np.fmin)),
    "v_maximum3_f32": ("f32", "f32 f32 f32", lambda a, b, c: either(either(a, b, np.fmax), c, np.fmax)), "v_minimum3_f32": ("f32", "f32 f32 f32", lambda a, b, c: either(either(a, b, np.fmin), c, np.fmin)),
    "v_floor_f32": ("f32", "f32", np.floor), "v_ceil_f32": ("f32", "f32", np.ceil), "v_trunc_f32": ("f32", "f32", np.trunc), "v_rndne_f32": ("f32", "f32", np.rint),
    "v_rcp_f32": ("~f32", "f32", lambda a: flushed(1 / flushed(a))), "v_rcp_iflag_f32": ("~f32", "f32", lambda a: flushed(1 / flushed(a))), "v_sqrt_f32": ("~f32", "f32", lambda a: np.sqrt(flushed(a))),
    "v_rsq_f32": ("~f32", "f32", lambda a: (1 / np.sqrt(flushed(a).astype(np.float64))).astype(np.float32)), "v_exp_f32": ("~f32", "f32", lambda a: flushed(np.exp2(a.astype(np.float64)).astype(np.float32))),
    "v_log_f32": ("~f32", "f32", lambda a: np.log2(flushed(a).astype(np.float64)).astype(np.float32)), "v_ldexp_f32": ("f32", "f32 i32", lambda a, b: np.ldexp(a, np.clip(b, -4096, 4096))),
    "v_frexp_mant_f32": ("f32", "f32", frexp_mantissa), "v_frexp_exp_i32_f32": ("i32", "f32", frexp_exponent), "v_frexp_exp_i32_f64": ("i32", "f64", frexp_exponent), "v_frexp_mant_f64": ("f64", "f64", frexp_mantissa),
    "v_div_fixup_f32": ("f32", "f32 f32 f32", div_fixup), "v_div_fmas_f32": ("f32", "f32 f32 f32 vcc", div_fmas),
    # halves and doubles
    "v_add_f16": ("f16", "f16 f16", operator.add), "v_sub_f16": ("f16", "f16 f16", operator.sub), "v_mul_f16": ("f16", "f16 f16", operator.mul), "v_fma_f16": ("f16", "f16 f16 f16", lambda a, b, c: fused(a, b, c, np.float16)),
    "v_max_f16": ("f16", "f16 f16", lambda a, b: number(a, b, np.fmax)), "v_min_f16": ("f16", "f16 f16", lambda a, b: number(a, b, np.fmin)), "v_max3_f16": ("f16", "f16 f16 f16", lambda a, b, c: number(number(a, b, np.fmax), c, np.fmax)),
    "v_add_f64": ("f64", "f64 f64", operator.add), "v_mul_f64": ("f64", "f64 f64", operator.mul), "v_fma_f64": ("f64", "f64 f64 f64", fused64), "v_max_f64": ("f64", "f64 f64", lambda a, b: number(a, b, np.fmax)), "v_min_f64": ("f64", "f64 f64", lambda a, b: number(a, b, np.fmin)),
    "v_fma_mix_f32": ("f32", "mix mix mix", mixed), "v_fma_mixlo_f16": ("f16", "mix mix mix", mixed_half), "v_fma_mixhi_f16": ("f16", "mix mix mix", mixed_half),
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
    "v_div_scale_f32": ("f32 m", "f32 f32 f32", div_scale), "v_bitop3_b32": ("u32", "u32 u32 u32", bitop),
    "v_bitop3_b16": ("low", "u16 u16 u16", lambda a, b, c, table: bitop(a, b, c, table) & np.uint64(0xFFFF)),
}  # fmt: skip


def brain(bits):
    """Return the bfloat16 nearest to a float, ties to even, as its code; a NaN stays one."""
    value = bits.astype(np.uint32)
    rounded = (value.astype(np.uint64) + 0x7FFF + (value >> 16 & 1)) >> np.uint64(16)
    return np.where(np.isnan(value.view(np.float32)), 0x7FC0, rounded).astype(np.uint32)


_WHOLE = {"f": lambda a, b: np.zeros(a.shape, bool), "t": lambda a, b: np.ones(a.shape, bool)}
_WHOLE |= {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne, "ge": operator.ge}
_REAL = {"f": _WHOLE["f"], "tru": _WHOLE["t"]}
_REAL |= {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b),
}
_REAL |= {"o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "u": lambda a, b: np.isnan(a) | np.isnan(b), "neq": lambda a, b: ~(a == b)}
_REAL |= {f"n{name}": (lambda a, b, test=_REAL[name]: ~test(a, b)) for name in ("lt", "ge", "lg", "gt", "le")}
for _kind in ("i32", "u32", "i64", "u64", "i16", "u16", "f32", "f64", "f16"):
    for _name, _test in (_REAL if _kind[0] == "f" else _WHOLE).items():
        VECTOR[f"v_cmp_{_name}_{_kind}"] = VECTOR[f"v_cmpx_{_name}_{_kind}"] = ("m", f"{_kind} {_kind}", _test)
