"""What instructions on floats, halves and doubles mean that kernels rarely use: orders, parts of numbers, division, approximations, conversions."""

# ruff: noqa: E501 - a statement is a line

from __future__ import annotations

import numpy as np
from statements.exact import either, fused, fused64, number, whole
from statements.vector import frexp_exponent, frexp_mantissa

HALF = np.float16
MAX, MIN = np.fmax, np.fmin


def maximum(a, b):
    return number(a, b, MAX)


def minimum(a, b):
    return number(a, b, MIN)


def maximum_or_nan(a, b):
    return either(a, b, MAX)


def minimum_or_nan(a, b):
    return either(a, b, MIN)


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
    if a.dtype == HALF:
        return np.ldexp(a.astype(np.float64), np.clip(power.astype(np.int32), -500, 500)).astype(HALF)
    return np.ldexp(a, np.clip(power, -4096, 4096))


def twice(a, b, c):
    """Return a product and a sum of halves, each of them rounded."""
    return (a * b).astype(HALF) + c


def div_fixup(quotient, denominator, numerator):
    """Return a quotient with the sign it must have, and where an operand is 0, infinite or NaN what the division of these is.

    A quotient that is no number has overflowed; doubles whose exponents are far apart give 0, whatever the iteration has made of it.
    """
    special = (denominator == 0) | (numerator == 0) | ~np.isfinite(denominator) | ~np.isfinite(numerator)
    size = np.where(np.isnan(quotient), np.inf, np.abs(quotient)).astype(quotient.dtype)
    if quotient.dtype == np.float64:
        above, below = ((np.abs(x).view(np.uint64) >> np.uint64(52)).astype(int) for x in (numerator, denominator))
        size = np.where(above - below < -1075, 0, size)
    negative = np.signbit(numerator) ^ np.signbit(denominator)
    return np.where(special, numerator / denominator, np.where(negative, -size, size)).astype(quotient.dtype)


def div_fmas64(a, b, c, scaled):
    exact = fused64(a, b, c)
    return np.where(scaled, np.where(np.abs(c) >= 2, np.ldexp(exact, 128), np.ldexp(exact, -128)), exact)


def div_scale64(chosen, denominator, numerator):
    """Scale one of a numerator and a denominator so that their quotient and its parts are no denormals."""
    made = [div_scaled64(*row) for row in zip(chosen.tolist(), denominator.tolist(), numerator.tolist(), strict=True)]
    return np.array([value for value, _ in made]), np.array([flag for _, flag in made])


def div_scaled64(s0: float, s1: float, s2: float) -> tuple[float, bool]:
    """As the pseudocode of AMD's manuals has it, but for a reciprocal and a quotient that are both denormal: as `div_scaled` of floats."""

    def exponent(x) -> int:
        return int(np.float64(x).view(np.uint64)) >> 52 & 2047

    if s1 == 0 or s2 == 0:
        return float("nan"), True
    with np.errstate(all="ignore"):
        inverse, ratio = (
            1 / np.float64(s1) != 0 and exponent(np.float64(1) / s1) == 0,
            exponent(np.float64(s2) / s1) == 0 or exponent(s2) - exponent(s1) <= -1022,
        )
        up, down = float(np.float64(s0) * 2.0**128), float(np.float64(s0) * 2.0**-128)
    is_denominator, is_numerator = s0 == s1 or (s0 != s0 and s1 != s1), s0 == s2 or (s0 != s0 and s2 != s2)
    if exponent(s2) - exponent(s1) >= 768:
        return (up if is_denominator else s0), True
    if exponent(s1) == 0:
        return up, False
    if inverse and ratio:
        return (down if is_denominator else s0), True
    if inverse:
        return down, False
    if ratio:
        return (up if is_numerator else s0), True
    return (up if exponent(s2) <= 53 else s0), False


def dot2(a, b, c):
    """Add the low products, then the high ones, each of them rounded as a float. Products of halves are exact."""
    total = np.asarray(c, np.float32)
    for n in range(2):
        total = fused(a[:, n], b[:, n], total)
    return total


def dot2_last(a, b, c):
    return (a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1]).astype(np.float32) + c


def cut(a):
    """Return the higher half of floats."""
    return a.view(np.uint32) >> 16


def towards_zero(a):
    """Return floats as halves, rounded towards zero: what is too large is the largest, infinity stays."""
    near = a.astype(HALF)
    over = np.isfinite(a) & (np.abs(near.astype(np.float64)) > np.abs(a))
    return np.where(over, np.nextafter(near, HALF(0)), near).astype(HALF)


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
            ("floor", np.floor),
            ("ceil", np.ceil),
            ("trunc", np.trunc),
            ("rndne", np.rint),
            ("fract", fraction),
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
    **{f"v_{name}_f16": ("f16", "f16 f16 " + d, lambda a, b, c: fused(a, b, c, HALF)) for name, d in (("fmac", "df16"), ("fmaak", "f16"))}, "v_fmamk_f16": ("f16", "f16 f16 f16", lambda a, k, b: fused(a, k, b, HALF)),
    "v_pk_fmac_f16": ("2f16", "2f16 2f16 d2f16", lambda a, b, c: fused(a, b, c, HALF)), "v_fmac_f64": ("f64", "f64 f64 df64", fused64),
    "v_mul_legacy_f32": ("f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    "v_dot2_f32_f16": ("f32", "2f16 2f16 f32", dot2), "v_dot2c_f32_f16": ("f32", "2f16 2f16 df32", dot2), "v_dot2_f32_bf16": ("f32", "2bf16 2bf16 f32", dot2),
    "v_dot2c_f32_bf16": ("f32", "2bf16 2bf16 df32", dot2), "v_dot2_bf16_bf16": ("bf16", "2bf16 2bf16 bf16", lambda a, b, c: cut(dot2(a, b, c))),  # cut off without rounding: so measured on a gfx1200
    # division
    "v_div_fixup_f16": ("f16", "f16 f16 f16", div_fixup), "v_div_fixup_f64": ("f64", "f64 f64 f64", div_fixup), "v_div_fmas_f64": ("f64", "f64 f64 f64 vcc", div_fmas64),
    "v_div_scale_f64": ("f64 m", "f64 f64 f64", div_scale64),
    # conversions
    "v_frexp_exp_i16_f16": ("i16", "f16", frexp_exponent), "v_cvt_f16_u16": ("f16", "u16", lambda a: a.astype(np.float64)), "v_cvt_f16_i16": ("f16", "i16", lambda a: a.astype(np.float64)),
    "v_cvt_u16_f16": ("u16", "f16", lambda a: whole(a, 0, 2**16 - 1)), "v_cvt_i16_f16": ("i16", "f16", lambda a: whole(a, -(2**15), 2**15 - 1)), "v_cvt_f32_bf16": ("f32", "bf16", lambda a: a),
    "v_cvt_flr_i32_f32": ("i32", "f32", lambda a: whole(np.floor(a), -(2**31), 2**31 - 1)), "v_cvt_rpi_i32_f32": ("i32", "f32", lambda a: whole(np.floor(a + np.float32(0.5)), -(2**31), 2**31 - 1)),
    "v_cvt_pkrtz_f16_f32": ("2f16", "f32 f32", lambda a, b: np.stack([towards_zero(a), towards_zero(b)], 1)),
    "v_cvt_pk_i16_f32": ("2i16", "f32 f32", lambda a, b: np.stack([whole(x, -(2**15), 2**15 - 1) for x in (a, b)], 1)),
    "v_cvt_pk_u16_f32": ("2u16", "f32 f32", lambda a, b: np.stack([whole(x, 0, 2**16 - 1) for x in (a, b)], 1)),
}  # fmt: skip
REAL_CDNA = {"v_dot2_f32_bf16": ("f32", "2bf16 2bf16 f32", dot2_last)}  # gfx950's manual adds the third number last
