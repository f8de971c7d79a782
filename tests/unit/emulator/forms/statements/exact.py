"""Numbers as numpy and Python have them: typed views of registers, and arithmetic that rounds once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

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
