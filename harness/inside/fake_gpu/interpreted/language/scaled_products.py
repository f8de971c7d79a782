"""`tl.dot_scaled` in Triton's interpreter: releases before 3.8 have none, and later ones round away the smallest numbers of fp8.

Elements and scales are converted to fp32, which is exact, and so are their products as long as they are not smaller or larger than fp32.
The formats are those of the OCP's Microscaling specification: a scale is a power of two (e8m0), or a number in e4m3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from harness.inside.fake_gpu.interpreted.narrow_floats import widened
from harness.inside.fake_gpu.torch_device import Patch

Array = Any  # np.ndarray; the numbers' types change from call to call
_NARROW = (tl.bfloat16, tl.float8e5, tl.float8e4nv)
_MAGNITUDES_OF_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
_E2M1 = np.concatenate([_MAGNITUDES_OF_E2M1, -_MAGNITUDES_OF_E2M1])
_BIAS_OF_E8M0, _NAN_OF_E8M0 = 127, 255


def scaled_products() -> list[Patch]:
    """Return what computes them."""
    from triton.language.semantic import TritonSemantic
    from triton.runtime.interpreter import InterpreterBuilder

    found: list[Patch] = [(InterpreterBuilder, "create_dot_scaled", _dot_scaled)]
    if not hasattr(InterpreterBuilder, "create_dot_scaled"):
        found.append((TritonSemantic, "dot_scaled", _with_constant_formats(TritonSemantic.dot_scaled)))
    return found


def _with_constant_formats(dot_scaled: Callable[..., Any]) -> Callable[..., Any]:
    """Return the older releases' function, which asks constants of the compiler for the names of the formats."""

    def call(semantic: Any, *args: Any) -> Any:
        return dot_scaled(semantic, *(tl.constexpr(value) if isinstance(value, str) else value for value in args))

    return call


def _dot_scaled(
    builder: Any,
    left: Any,
    left_scale: Any,
    left_format: Any,
    right: Any,
    right_scale: Any,
    right_format: Any,
    fast_math: bool,
    left_k_pack: bool,
    right_k_pack: bool,
    sum_before: Any,
) -> Any:
    """Return `sum_before` plus the product of `left` (…, M, K) and `right` (…, K, N), each element times the scale of its group along K.

    Two elements of e2m1 are in a byte: neighbours along K if `…_k_pack`, else along M or N. `right_scale` is (…, N, groups).
    """
    one = _scaled(_elements(left, left_format, -1 if left_k_pack else -2), left_scale)
    other = _elements(right, right_format, -2 if right_k_pack else -1)
    other = np.swapaxes(_scaled(np.swapaxes(other, -1, -2), right_scale), -1, -2)
    return type(sum_before)(np.matmul(one, other) + sum_before.data, sum_before.dtype)


def _elements(handle: Any, format_: Any, packed_axis: int) -> Array:
    """Return elements in fp32."""
    if str(format_).endswith("E2M1"):
        data = np.moveaxis(handle.data.view(np.uint8), packed_axis, -1)
        pairs = np.stack([_E2M1[data & 15], _E2M1[data >> 4]], axis=-1)
        return np.moveaxis(pairs.reshape(*data.shape[:-1], -1), -1, packed_axis)
    return _numbers(handle)


def _scaled(elements: Array, scale: Any) -> Array:
    """Return elements times the scale of their group, both along the last axis."""
    if scale is None:
        return elements
    factors = _powers(scale.data.view(np.uint8)) if scale.dtype.scalar.is_int() else _numbers(scale)
    return elements * np.repeat(factors, elements.shape[-1] // factors.shape[-1], axis=-1)


def _powers(exponents: Array) -> Array:
    """Return the powers of two that bytes of e8m0 stand for, in fp32."""
    powers = np.exp2(exponents.astype(np.float64) - _BIAS_OF_E8M0).astype(np.float32)
    return np.where(exponents == _NAN_OF_E8M0, np.float32(np.nan), powers)


def _numbers(handle: Any) -> Array:
    dtype = handle.dtype.scalar
    return widened(handle.data, dtype) if dtype in _NARROW else handle.data.astype(np.float32)
