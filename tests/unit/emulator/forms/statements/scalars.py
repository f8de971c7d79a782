"""What instructions of the scalar unit mean, stated in Python's integers and numpy: thousands of waves, each with operands of its own."""

# ruff: noqa: E501 - a statement is a line

from __future__ import annotations

import functools

import numpy as np
from statements.exact import MASK32, either, fused, signed, whole

WAVES_RUN = 2048
MASK64 = 2**64 - 1


def s32(value: int) -> int:
    return signed(value, 32)


@functools.lru_cache(1 << 16)  # the same operands go through many instructions
def f(value: int) -> np.float32:
    return np.uint32(value & MASK32).view(np.float32)


@functools.lru_cache(1 << 16)
def h(value: int) -> np.float16:
    return np.uint16(value & 0xFFFF).view(np.float16)


def of(value) -> int:
    value = np.float32(value)
    return 0x7FC00000 if np.isnan(value) else int(value.view(np.uint32))


def of_half(value) -> int:
    value = np.float16(value)
    return 0x7E00 if np.isnan(value) else int(value.view(np.uint16))


def flagged(bits: int, function):
    """Return a result and whether it is not zero."""

    def both(*given):
        result = function(*given) & (1 << bits) - 1
        return result, int(result != 0)

    return both


def carried(function):
    def both(*given):
        result = function(*given)
        return result & MASK32, int(result > MASK32 or result < 0)

    return both


def overflowing(function):
    def both(*given):
        result = function(*map(s32, given))
        return result & MASK32, int(not -(2**31) <= result < 2**31)

    return both


def field(value: int, how: int, bits: int) -> int:
    return value >> (how & bits - 1)


def extracted(bits: int, sign: bool):
    def one(value: int, how: int) -> int:
        start, width = how & bits - 1, min(how >> 16 & 0x7F, bits)
        whole_ = signed(value, bits) >> start if sign else value >> start
        part = whole_ & (1 << width) - 1
        return signed(part, width) if sign else part

    return flagged(bits, one)


def compared(kind: str, function):
    view = {"i32": s32, "u32": int, "u64": int, "f32": f, "f16": h}[kind]
    return lambda a, b: (None, int(bool(function(view(a), view(b)))))


def real(function):
    def one(*given):
        with np.errstate(all="ignore"):
            return of(function(*map(f, given)))

    return one


def half(function):
    """Apply a function to halves. Each operand is in the low half of its register, and the result, too; its high half is zero."""

    def one(*given):
        with np.errstate(all="ignore"):
            return of_half(function(*map(h, given)))

    return one


def number(a, b, which):
    """Return the larger or smaller; of a NaN and a number the number, whichever NaN it is; -0 is below +0."""
    return b if a != a else a if b != b else either(a, b, which)


def to_zero(a: int) -> int:
    """Return a float as a half, rounded towards zero: what is too large becomes the largest."""
    with np.errstate(all="ignore"):
        value, nearest = f(a), np.float16(f(a))
        return of_half(np.nextafter(nearest, np.float16(0)) if abs(np.float64(nearest)) > abs(np.float64(value)) else nearest)


def rounded(a: np.float32) -> np.float16:
    with np.errstate(all="ignore"):
        return np.float16(a)


def sign_run(bits: int):
    """Return how many bits are as the sign is, counted from it, and -1 if all are."""
    return lambda a: -1 if a in (0, (1 << bits) - 1) else bits - (a ^ -(a >> bits - 1) & (1 << bits) - 1).bit_length()


def lowest(a: int) -> int:
    """Return the place of the lowest bit that is set, and -1 if none is."""
    return (a & -a).bit_length() - 1


def ones(width: int, at: int, bits: int) -> int:
    return (1 << (width & bits - 1)) - 1 << (at & bits - 1)


def shifted_sum(n: int):
    return carried(lambda a, b: (a << n & 2**40 - 1) + b)


TESTS = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
# Widths of the operands in words, and the function: a result, or a result and the condition code. `scc` in front: it reads the code. `old`, `old2`: the destination.
SCALARS = {
    "s_add_u32": ("1 1", carried(lambda a, b: a + b)), "s_sub_u32": ("1 1", carried(lambda a, b: a - b)), "s_addc_u32": ("scc 1 1", carried(lambda scc, a, b: a + b + scc)), "s_subb_u32": ("scc 1 1", carried(lambda scc, a, b: a - b - scc)),
    "s_add_i32": ("1 1", overflowing(lambda a, b: a + b)), "s_sub_i32": ("1 1", overflowing(lambda a, b: a - b)), "s_addk_i32": ("old 1", overflowing(lambda a, b: a + b)),
    "s_add_u64": ("2 2", lambda a, b: a + b), "s_sub_u64": ("2 2", lambda a, b: a - b), "s_mul_u64": ("2 2", lambda a, b: a * b), "s_mul_i32": ("1 1", lambda a, b: a * b), "s_mulk_i32": ("old 1", lambda a, b: a * b),
    "s_mul_hi_u32": ("1 1", lambda a, b: a * b >> 32), "s_mul_hi_i32": ("1 1", lambda a, b: s32(a) * s32(b) >> 32), "s_abs_i32": ("1", flagged(32, lambda a: abs(s32(a)))),
    "s_min_i32": ("1 1", lambda a, b: (a, 1) if s32(a) < s32(b) else (b, 0)), "s_max_i32": ("1 1", lambda a, b: (a, 1) if s32(a) >= s32(b) else (b, 0)), "s_min_u32": ("1 1", lambda a, b: (a, 1) if a < b else (b, 0)), "s_max_u32": ("1 1", lambda a, b: (a, 1) if a >= b else (b, 0)),
    **{f"s_lshl{n}_add_u32": ("1 1", shifted_sum(n)) for n in (1, 2, 3, 4)},
    **{f"s_{name}_b{bits}": (f"{bits // 32} {bits // 32}", flagged(bits, function)) for bits in (32, 64) for name, function in {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b, "nor": lambda a, b: ~(a | b), "nand": lambda a, b: ~(a & b), "xnor": lambda a, b: ~(a ^ b)}.items()},
    "s_not_b32": ("1", flagged(32, lambda a: ~a)), "s_not_b64": ("2", flagged(64, lambda a: ~a)), "s_mov_b32": ("1", lambda a: a), "s_mov_b64": ("2", lambda a: a), "s_movk_i32": ("1", lambda a: a),
    "s_cmov_b32": ("scc old 1", lambda scc, old, a: a if scc else old), "s_cmov_b64": ("scc old2 2", lambda scc, old, a: a if scc else old), "s_cmovk_i32": ("scc old 1", lambda scc, old, a: a if scc else old), "s_absdiff_i32": ("1 1", flagged(32, lambda a, b: abs(s32(a - b)))),
    "s_lshl_b32": ("1 1", flagged(32, lambda a, b: a << (b & 31))), "s_lshr_b32": ("1 1", flagged(32, lambda a, b: a >> (b & 31))), "s_ashr_i32": ("1 1", flagged(32, lambda a, b: s32(a) >> (b & 31))),
    "s_lshl_b64": ("2 1", flagged(64, lambda a, b: a << (b & 63))), "s_lshr_b64": ("2 1", flagged(64, lambda a, b: a >> (b & 63))), "s_ashr_i64": ("2 1", flagged(64, lambda a, b: signed(a, 64) >> (b & 63))),
    "s_bfe_u32": ("1 1", extracted(32, False)), "s_bfe_i32": ("1 1", extracted(32, True)), "s_bfe_u64": ("2 1", extracted(64, False)), "s_bfe_i64": ("2 1", extracted(64, True)), "s_brev_b32": ("1", lambda a: int(f"{a:032b}"[::-1], 2)), "s_brev_b64": ("2", lambda a: int(f"{a:064b}"[::-1], 2)),
    "s_bfm_b32": ("1 1", lambda a, b: ones(a, b, 32)), "s_bfm_b64": ("1 1", lambda a, b: ones(a, b, 64)), "s_sext_i32_i8": ("1", lambda a: signed(a, 8)), "s_sext_i32_i16": ("1", lambda a: signed(a, 16)),
    **{f"s_pack_{low}{high}_b32_b16": ("1 1", lambda a, b, low=low, high=high: (a >> 16 * (low == "h") & 0xFFFF) | (b >> 16 * (high == "h") & 0xFFFF) << 16) for low in "lh" for high in "lh"},
    "s_bcnt1_i32_b32": ("1", flagged(32, int.bit_count)), "s_bcnt1_i32_b64": ("2", flagged(32, int.bit_count)), "s_bcnt0_i32_b32": ("1", flagged(32, lambda a: 32 - a.bit_count())), "s_bcnt0_i32_b64": ("2", flagged(32, lambda a: 64 - a.bit_count())),
    "s_ff1_i32_b32": ("1", lowest), "s_ff1_i32_b64": ("2", lowest), "s_ff0_i32_b32": ("1", lambda a: lowest(~a & MASK32)), "s_ff0_i32_b64": ("2", lambda a: lowest(~a & MASK64)),
    "s_flbit_i32_b32": ("1", lambda a: 32 - a.bit_length() if a else -1), "s_flbit_i32_b64": ("2", lambda a: 64 - a.bit_length() if a else -1), "s_flbit_i32": ("1", sign_run(32)), "s_flbit_i32_i64": ("2", sign_run(64)), "s_bitset1_b32": ("old 1", lambda old, a: old | 1 << (a & 31)), "s_bitset0_b32": ("old 1", lambda old, a: old & ~(1 << (a & 31))), "s_bitset1_b64": ("old2 1", lambda old, a: old | 1 << (a & 63)), "s_bitset0_b64": ("old2 1", lambda old, a: old & ~(1 << (a & 63))),
    "s_cselect_b32": ("scc 1 1", lambda scc, a, b: a if scc else b), "s_cselect_b64": ("scc 2 2", lambda scc, a, b: a if scc else b),
    "s_bitcmp0_b32": ("1 1", lambda a, b: (None, 1 - (a >> (b & 31) & 1))), "s_bitcmp1_b32": ("1 1", lambda a, b: (None, a >> (b & 31) & 1)), "s_bitcmp0_b64": ("2 1", lambda a, b: (None, 1 - (a >> (b & 63) & 1))), "s_bitcmp1_b64": ("2 1", lambda a, b: (None, a >> (b & 63) & 1)),
    **{f"s_cmp_{name}_{kind}": ("2 2" if kind == "u64" else "1 1", compared(kind, test)) for kind in ("i32", "u32", "u64") for name, test in TESTS.items()},
    **{f"s_cmpk_{name}_{kind}": ("1 1", compared(kind, test)) for kind in ("i32", "u32") for name, test in TESTS.items()},
    **{f"s_cmp_{name}_{kind}": ("1 1", compared(kind, test)) for kind in ("f32", "f16") for name, test in {**TESTS, "lg": lambda a, b: a < b or a > b, "neq": lambda a, b: a != b, "nlt": lambda a, b: not a < b, "nge": lambda a, b: not a >= b, "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "nlg": lambda a, b: not (a < b or a > b), "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b}.items()},
    "s_add_f32": ("1 1", real(lambda a, b: a + b)), "s_sub_f32": ("1 1", real(lambda a, b: a - b)), "s_mul_f32": ("1 1", real(lambda a, b: a * b)), "s_fmac_f32": ("old 1 1", real(lambda old, a, b: fused(a, b, old))),
    "s_fmamk_f32": ("1 1 1", real(lambda a, k, b: fused(a, k, b))), "s_fmaak_f32": ("1 1 1", real(fused)),
    **{f"s_{name}_{kind}": ("1 1", wrap(lambda a, b, how=how, which=which: how(a, b, which))) for kind, wrap in (("f32", real), ("f16", half)) for name, how, which in (("max_num", number, np.fmax), ("min_num", number, np.fmin), ("maximum", either, np.fmax), ("minimum", either, np.fmin))},
    **{f"s_{name}_{kind}": ("1", wrap(function)) for kind, wrap in (("f32", real), ("f16", half)) for name, function in (("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint))},
    "s_add_f16": ("1 1", half(lambda a, b: a + b)), "s_sub_f16": ("1 1", half(lambda a, b: a - b)), "s_mul_f16": ("1 1", half(lambda a, b: a * b)), "s_fmac_f16": ("old 1 1", half(lambda old, a, b: fused(a, b, old, np.float16))),
    "s_cvt_f32_i32": ("1", lambda a: of(s32(a))), "s_cvt_f32_u32": ("1", of), "s_cvt_u32_f32": ("1", lambda a: int(whole(f(a), 0, MASK32))), "s_cvt_i32_f32": ("1", lambda a: int(whole(f(a), -(2**31), 2**31 - 1))),
    "s_cvt_f16_f32": ("1", lambda a: of_half(rounded(f(a)))), "s_cvt_f32_f16": ("1", lambda a: of(h(a))), "s_cvt_hi_f32_f16": ("1", lambda a: of(h(a >> 16))), "s_cvt_pk_rtz_f16_f32": ("1 1", lambda a, b: to_zero(a) | to_zero(b) << 16),
    "v_s_rcp_f32": ("1", real(lambda a: quiet(1 / quiet(a)))), "v_s_sqrt_f32": ("1", real(lambda a: np.sqrt(quiet(a)))), "v_s_exp_f32": ("1", real(lambda a: quiet(np.float32(np.exp2(np.float64(a)))))), "v_s_log_f32": ("1", real(lambda a: np.log2(np.float64(quiet(a))))),
    "v_s_rsq_f32": ("1", real(lambda a: 1 / np.sqrt(np.float64(quiet(a))))),
    **{f"v_s_{name}_f16": ("1", half(lambda a, function=function: function(np.float64(a)))) for name, function in (("rcp", lambda a: 1 / a), ("sqrt", np.sqrt), ("rsq", lambda a: 1 / np.sqrt(a)), ("exp", np.exp2), ("log", np.log2))},
}  # fmt: skip
OLDER = {
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32", "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32", "s_add_nc_u64": "s_add_u64", "s_sub_nc_u64": "s_sub_u64", "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32", "s_or_not1_b64": "s_orn2_b64",
    "s_ctz_i32_b32": "s_ff1_i32_b32", "s_ctz_i32_b64": "s_ff1_i32_b64", "s_clz_i32_u32": "s_flbit_i32_b32", "s_clz_i32_u64": "s_flbit_i32_b64", "s_cls_i32": "s_flbit_i32", "s_cls_i32_i64": "s_flbit_i32_i64",
    **{f"s_{new}_saveexec_b{bits}": f"s_{old}_saveexec_b{bits}" for bits in (32, 64) for new, old in (("and_not1", "andn2"), ("or_not1", "orn2"), ("and_not0", "andn1"), ("or_not0", "orn1"))},
}  # fmt: skip
# What becomes of EXEC: `a` is the operand, `x` is EXEC. A 1 in a name says that the operand is inverted, a 2 that EXEC is.
SAVES = {
    "and": lambda a, x: a & x, "or": lambda a, x: a | x, "xor": lambda a, x: a ^ x, "nand": lambda a, x: ~(a & x), "nor": lambda a, x: ~(a | x), "xnor": lambda a, x: ~(a ^ x),
    "andn1": lambda a, x: ~a & x, "andn2": lambda a, x: a & ~x, "orn1": lambda a, x: ~a | x, "orn2": lambda a, x: a | ~x,
}  # fmt: skip


def quiet(x):
    """Denormals as zeros."""
    return x if not abs(x) < np.float32(2.0**-126) else np.copysign(np.float32(0), x)
