"""What the bits of a register mean by the type that an instruction names, for all elements at once.

A register is an array of `uint64`, one entry for each element (or group of packed elements), with zeros above its own width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Bits = Any  # an array of uint64
Array = Any

_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_NARROW = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)


def is_float(kind: str) -> bool:
    """Whether a type is one of floats."""
    return kind in _FLOATS or kind in _NARROW or kind == "e2m1"


def width(kind: str) -> int:
    """Return the bits of a type; of `f16x2`, those of both."""
    if kind == "pred":
        return 1
    single, _, several = kind.partition("x")
    bits = {"bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m1": 4}.get(single) or int(single[1:])
    return bits * int(several or 1)


def cut(bits: Bits, count: int) -> Bits:
    """Return the low `count` bits."""
    return bits & np.uint64((1 << count) - 1)


def parts(bits: Bits, kind: str) -> list[Bits]:
    """Return the numbers that are packed in a register, the lowest first: two of `f16x2`."""
    single, _, several = kind.partition("x")
    each = width(single)
    return [cut(bits >> np.uint64(each * n), each) for n in range(int(several or 1))]


def joined(numbers: list[Bits], each: int) -> Bits:
    """Pack numbers of `each` bits into a register, the first into the lowest bits."""
    return np.bitwise_or.reduce([bits << np.uint64(each * n) for n, bits in enumerate(numbers)])


def read(bits: Bits, kind: str) -> Array:
    """Return numbers: floats as they are (of 8 and 4 bits, and bf16, in fp32), signed ones as int64, and all others as uint64."""
    count = width(kind)
    if kind in _FLOATS:
        return np.ascontiguousarray(bits).astype(f"u{count // 8}").view(_FLOATS[kind])
    if kind in _NARROW:
        narrow = torch.from_numpy(np.ascontiguousarray(bits).astype(f"u{count // 8}").view(f"i{count // 8}"))
        return narrow.view(_NARROW[kind]).to(torch.float32).numpy()
    if kind == "e2m1":
        return np.where(bits & np.uint64(8), -1, 1).astype(np.float32) * _E2M1[(bits & np.uint64(7)).astype(int)]
    if kind[0] == "s":
        shift = np.uint64(64 - count)
        return (bits << shift).view(np.int64) >> np.int64(64 - count)
    return cut(bits, count)


def write(numbers: Array, kind: str) -> Bits:
    """Return the bits of numbers, rounded to nearest even. A float that is too large becomes infinity, or of 8 and 4 bits the largest.

    NaN has the bits that PTX gives it: all but the sign (0x7FFFFFFF).
    """
    count = width(kind)
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            made = np.asarray(numbers).astype(_FLOATS[kind])
        bits = made.view(f"u{count // 8}").astype(np.uint64)
        return np.where(np.isnan(made), np.uint64((1 << count - 1) - 1), bits) if kind != "f64" else bits
    if kind in _NARROW:
        single = torch.from_numpy(np.array(numbers, np.float32))
        if kind != "bf16":
            most = torch.finfo(_NARROW[kind]).max
            single = single.clamp(-most, most)  # NaN stays
        bits = single.to(_NARROW[kind]).view(torch.int16 if count == 16 else torch.int8).numpy().view(f"u{count // 8}").astype(np.uint64)
        return np.where(single.isnan().numpy(), np.uint64((1 << count - 1) - 1), bits)
    if kind == "e2m1":
        return _as_e2m1(np.asarray(numbers, np.float32))
    numbers = np.asarray(numbers)
    return cut(numbers.astype(np.int64).view(np.uint64) if numbers.dtype != np.uint64 else numbers, count)


def _as_e2m1(numbers: Array) -> Bits:
    """Round to the nearest of eight values, of two to the one with an even last bit. NaN becomes the largest."""
    sizes = np.where(np.isnan(numbers), 6, np.minimum(np.abs(numbers), 6))
    above = np.searchsorted(_E2M1, sizes).clip(1, 7)
    low, high = sizes - _E2M1[above - 1], _E2M1[above] - sizes
    nearest = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return (nearest | np.where(np.signbit(numbers) & ~np.isnan(numbers), 8, 0)).astype(np.uint64)
