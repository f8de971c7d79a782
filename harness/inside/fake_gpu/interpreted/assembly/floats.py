"""Instructions on floats: arithmetic, comparisons, and conversions. Approximations are computed in fp64 and rounded once.

Source: the PTX ISA 8.7, sections 9.7.3 to 9.7.5 and 9.7.9. A rounding other than to nearest even is refused, but for conversions to
whole numbers and `.rz` to bf16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.inside.fake_gpu.interpreted.assembly.numbers import Array
from harness.inside.fake_gpu.interpreted.card_arithmetic import larger, smaller

# Modifiers that change nothing here: the result is computed in fp64, or is the nearest.
PRECISIONS = {"rn", "approx", "full", "ftz"}
_TINY = {"f16": np.finfo(np.float16).tiny}  # the smallest number that is no denormal; bf16 has that of fp32


def _fused(x: Array, y: Array, z: Array) -> Array:
    """Return x y + z of numbers with at most 24 bits. An inexact sum gets an odd last bit, so that rounding it again rounds it once."""
    product = x * y  # exact in fp64
    total = product + z
    taken = total - product
    lost = (product - (total - taken)) + (z - taken)
    even = (total.view(np.int64) & 1) == 0
    return np.where((lost != 0) & even & np.isfinite(lost), np.nextafter(total, np.copysign(np.inf, lost)), total)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": _fused,
    "div": np.divide,
    "min": smaller,
    "max": larger,
    "abs": np.abs,
    "neg": np.negative,
    "copysign": lambda x, y: np.copysign(y, x),  # the first operand has the sign
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
_OF_TWO = ("add", "sub", "mul", "div", "min", "max", "copysign")
# `.NaN`: a NaN among the operands is the result.
KEEPING_NAN: dict[str, Callable[..., Array]] = {
    name: lambda x, y, compute=compute: np.where(np.isnan(x) | np.isnan(y), np.nan, compute(x, y))
    for name, compute in (("min", smaller), ("max", larger))
}
# `.xorsign.abs`: of the magnitudes, with the product's sign.
_WITH_SIGNS = {"xorsign", "abs"}
ROUNDINGS: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def compute(name: str, modifiers: set[str], operands: list[Array], kind: str) -> Array | None:
    """Return what an instruction makes of floats, in fp64; None if it has a modifier or a number of operands that is not known here."""
    if name in ("min", "max") and modifiers >= _WITH_SIGNS and len(operands) == 2:
        size = compute(name, modifiers - _WITH_SIGNS, list(map(np.abs, operands)), kind)
        return None if size is None else np.where(np.signbit(operands[0]) != np.signbit(operands[1]), -size, size)
    operation = (KEEPING_NAN if "NaN" in modifiers else OPERATIONS).get(name)
    wanted = 3 if name == "fma" else 2 if name in _OF_TWO else 1
    if operation is None or len(operands) != wanted or modifiers - PRECISIONS - {"NaN", "sat", "relu"}:
        return None
    with np.errstate(all="ignore"):
        result = operation(*(without_denormals(value, kind) if "ftz" in modifiers else value.astype(np.float64) for value in operands))
        return bounded(result, modifiers, kind)


def bounded(result: Array, modifiers: set[str], kind: str = "f32") -> Array:
    """Apply `.sat` (0 to 1, NaN becomes 0), `.relu` (at least 0, NaN stays) and `.ftz`."""
    if "sat" in modifiers:
        result = np.where(np.isnan(result), 0.0, np.clip(result, 0.0, 1.0))
    if "relu" in modifiers:
        result = np.where(result < 0, 0.0, result)
    return without_denormals(result, kind) if "ftz" in modifiers else result


def without_denormals(values: Array, kind: str = "f32") -> Array:
    """Return numbers in fp64, with zeros of the same sign for what their type has as a denormal."""
    wide = values.astype(np.float64)
    return np.where(np.abs(wide) < _TINY.get(kind, np.finfo(np.float32).tiny), np.copysign(0.0, wide), wide)


def whole(values: Array, rounding: str, kind: str) -> Array:
    """Round to whole numbers of a type. What is outside of it becomes its nearest end, and NaN becomes 0."""
    bits = int(kind[1:])
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)
    with np.errstate(all="ignore"):
        rounded = np.nan_to_num(ROUNDINGS[rounding](values.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # The largest of 64 bits is no fp64.
    ends = np.where(rounded >= float(most), most, np.where(rounded <= least, least, 0)).astype(object)
    inside = (rounded > least) & (rounded < float(most))
    return np.where(inside, np.where(inside, rounded, 0).astype(np.int64 if kind[0] == "s" else np.uint64), ends).astype(
        np.int64 if kind[0] == "s" else np.uint64
    )


def toward_zero(values: Array, kept: int) -> Array:
    """Cut fp32 to the `kept` highest bits, as `.rz` to bf16 does. What is not finite stays."""
    bits = values.astype(np.float32).view(np.uint32)
    return np.where(np.isfinite(values), (bits & np.uint32(0xFFFFFFFF << 32 - kept & 0xFFFFFFFF)).view(np.float32), values)
