"""What instructions of the scalar unit mean, stated in Python's integers and numpy: thousands of waves, each with operands of its own."""

# ruff: noqa: E501 - a statement is a line

from __future__ import annotations

import numpy as np
from exact import MASK32, fused, signed, whole

WAVES_RUN = 2048
MASK64 = 2**64 - 1


def s32(value: int) -> int:
    return signed(value, 32)


def f(value: int) -> np.float32:
    return np.uint32(value & MASK32).view(np.float32)


def h(value: int) -> np.float16:
    return np.uint16(value & 0xFFFF).view(np.float16)


def of(value) -> int:
    value = np.float32(value)
    return 0x7FC00000 if np.isnan(value) else int(value.view(np.uint32))


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


def shifted_sum(n: int):
    return carried(lambda a, b: (a << n & 2**40 - 1) + b)


def to_half(a: int) -> int:
    """Return a float as a half; any NaN is one, with the low bits set that the emulator sets."""
    with np.errstate(over="ignore"):
        return int(np.float16(f(a)).view(np.uint16)) if f(a) == f(a) else -1


TESTS = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
# Widths of the operands in words, and the function: a result, or a result and the condition code. `scc` in front: it reads the code. `old`: the destination.
SCALARS = {
    "s_add_u32": ("1 1", carried(lambda a, b: a + b)), "s_sub_u32": ("1 1", carried(lambda a, b: a - b)), "s_addc_u32": ("scc 1 1", carried(lambda scc, a, b: a + b + scc)), "s_subb_u32": ("scc 1 1", carried(lambda scc, a, b: a - b - scc)),
    "s_add_i32": ("1 1", overflowing(lambda a, b: a + b)), "s_sub_i32": ("1 1", overflowing(lambda a, b: a - b)), "s_addk_i32": ("old 1", overflowing(lambda a, b: a + b)),
    "s_add_u64": ("2 2", lambda a, b: a + b), "s_sub_u64": ("2 2", lambda a, b: a - b), "s_mul_u64": ("2 2", lambda a, b: a * b), "s_mul_i32": ("1 1", lambda a, b: a * b), "s_mulk_i32": ("old 1", lambda a, b: a * b),
    "s_mul_hi_u32": ("1 1", lambda a, b: a * b >> 32), "s_mul_hi_i32": ("1 1", lambda a, b: s32(a) * s32(b) >> 32), "s_abs_i32": ("1", flagged(32, lambda a: abs(s32(a)))),
    "s_min_i32": ("1 1", lambda a, b: (a, 1) if s32(a) < s32(b) else (b, 0)), "s_max_i32": ("1 1", lambda a, b: (a, 1) if s32(a) >= s32(b) else (b, 0)), "s_min_u32": ("1 1", lambda a, b: (a, 1) if a < b else (b, 0)), "s_max_u32": ("1 1", lambda a, b: (a, 1) if a >= b else (b, 0)),
    **{f"s_lshl{n}_add_u32": ("1 1", shifted_sum(n)) for n in (1, 2, 3, 4)},
    **{f"s_{name}_b{bits}": (f"{bits // 32} {bits // 32}", flagged(bits, function)) for bits in (32, 64) for name, function in {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b, "nor": lambda a, b: ~(a | b), "nand": lambda a, b: ~(a & b), "xnor": lambda a, b: ~(a ^ b)}.items()},
    "s_not_b32": ("1", flagged(32, lambda a: ~a)), "s_not_b64": ("2", flagged(64, lambda a: ~a)), "s_mov_b32": ("1", lambda a: a), "s_mov_b64": ("2", lambda a: a), "s_movk_i32": ("1", lambda a: a),
    "s_lshl_b32": ("1 1", flagged(32, lambda a, b: a << (b & 31))), "s_lshr_b32": ("1 1", flagged(32, lambda a, b: a >> (b & 31))), "s_ashr_i32": ("1 1", flagged(32, lambda a, b: s32(a) >> (b & 31))),
    "s_lshl_b64": ("2 1", flagged(64, lambda a, b: a << (b & 63))), "s_lshr_b64": ("2 1", flagged(64, lambda a, b: a >> (b & 63))), "s_ashr_i64": ("2 1", flagged(64, lambda a, b: signed(a, 64) >> (b & 63))),
    "s_bfe_u32": ("1 1", extracted(32, False)), "s_bfe_i32": ("1 1", extracted(32, True)), "s_bfe_u64": ("2 1", extracted(64, False)), "s_bfe_i64": ("2 1", extracted(64, True)), "s_brev_b32": ("1", lambda a: int(f"{a:032b}"[::-1], 2)),
    "s_bcnt1_i32_b32": ("1", flagged(32, int.bit_count)), "s_bcnt1_i32_b64": ("2", flagged(32, int.bit_count)), "s_ff1_i32_b32": ("1", lambda a: (a & -a).bit_length() - 1), "s_ff1_i32_b64": ("2", lambda a: (a & -a).bit_length() - 1),
    "s_flbit_i32_b32": ("1", lambda a: 32 - a.bit_length() if a else -1), "s_bitset1_b32": ("old 1", lambda old, a: old | 1 << (a & 31)), "s_bitset0_b32": ("old 1", lambda old, a: old & ~(1 << (a & 31))),
    "s_cselect_b32": ("scc 1 1", lambda scc, a, b: a if scc else b), "s_cselect_b64": ("scc 2 2", lambda scc, a, b: a if scc else b),
    "s_bitcmp0_b32": ("1 1", lambda a, b: (None, 1 - (a >> (b & 31) & 1))), "s_bitcmp1_b32": ("1 1", lambda a, b: (None, a >> (b & 31) & 1)),
    **{f"s_cmp_{name}_{kind}": ("2 2" if kind == "u64" else "1 1", compared(kind, test)) for kind in ("i32", "u32", "u64") for name, test in TESTS.items()},
    **{f"s_cmpk_{name}_{kind}": ("1 1", compared(kind, test)) for kind in ("i32", "u32") for name, test in TESTS.items()},
    **{f"s_cmp_{name}_{kind}": ("1 1", compared(kind, test)) for kind in ("f32", "f16") for name, test in {**TESTS, "lg": lambda a, b: a < b or a > b, "neq": lambda a, b: a != b, "nlt": lambda a, b: not a < b, "nge": lambda a, b: not a >= b, "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "nlg": lambda a, b: not (a < b or a > b), "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b}.items()},
    "s_add_f32": ("1 1", real(lambda a, b: a + b)), "s_sub_f32": ("1 1", real(lambda a, b: a - b)), "s_mul_f32": ("1 1", real(lambda a, b: a * b)), "s_fmac_f32": ("old 1 1", real(lambda old, a, b: fused(a, b, old))),
    "s_fmamk_f32": ("1 1 1", real(lambda a, k, b: fused(a, k, b))), "s_fmaak_f32": ("1 1 1", real(fused)), "s_max_num_f32": ("1 1", real(lambda a, b: np.fmax(a, b))), "s_min_num_f32": ("1 1", real(lambda a, b: np.fmin(a, b))),
    "s_cvt_f32_i32": ("1", lambda a: of(s32(a))), "s_cvt_f32_u32": ("1", of), "s_cvt_u32_f32": ("1", lambda a: int(whole(f(a), 0, MASK32))), "s_cvt_i32_f32": ("1", lambda a: int(whole(f(a), -(2**31), 2**31 - 1))),
    "s_cvt_f16_f32": ("1", to_half), "s_cvt_f32_f16": ("1", lambda a: of(h(a))),
    "v_s_rcp_f32": ("1", real(lambda a: quiet(1 / quiet(a)))), "v_s_sqrt_f32": ("1", real(lambda a: np.sqrt(quiet(a)))), "v_s_exp_f32": ("1", real(lambda a: quiet(np.float32(np.exp2(np.float64(a)))))), "v_s_log_f32": ("1", real(lambda a: np.log2(np.float64(quiet(a))))),
    "v_s_rsq_f32": ("1", real(lambda a: 1 / np.sqrt(np.float64(quiet(a))))),
}  # fmt: skip
OLDER = {
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32", "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32", "s_add_nc_u64": "s_add_u64", "s_sub_nc_u64": "s_sub_u64", "s_and_not1_b32": "s_andn2_b32", "s_and_not1_b64": "s_andn2_b64", "s_or_not1_b32": "s_orn2_b32",
    "s_ctz_i32_b32": "s_ff1_i32_b32", "s_ctz_i32_b64": "s_ff1_i32_b64", "s_clz_i32_u32": "s_flbit_i32_b32", "s_and_not1_saveexec_b32": "s_andn2_saveexec_b32",
}  # fmt: skip
SAVES = {"and": lambda a, x: a & x, "or": lambda a, x: a | x, "andn2": lambda a, x: a & ~x, "xor": lambda a, x: a ^ x}


def quiet(x):
    """Denormals as zeros."""
    return x if not abs(x) < np.float32(2.0**-126) else np.copysign(np.float32(0), x)
