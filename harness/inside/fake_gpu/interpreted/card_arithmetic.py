"""Arithmetic on which Triton's interpreter and cards disagree: zeros and NaN of minima, conversions out of range, bits, narrow products.

Each was seen on an NVIDIA card (docs/no-gpu.md). Some releases of Triton have some of it right; what is here holds for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch

Array = Any  # np.ndarray; the numbers' types change from call to call


def card_arithmetic() -> list[Patch]:
    """Return what makes the interpreter's builder compute as cards do."""
    from triton.runtime import interpreter

    builder, scans = interpreter.InterpreterBuilder, interpreter.ScanOps
    return [
        *((builder, name, _of_two(choose)) for name, choose in _CHOICES.items()),
        *((builder, name, _saturating(getattr(builder, name))) for name in ("create_fp_to_si", "create_fp_to_ui")),
        *((scans, name, _of_its_type(getattr(scans, name))) for name in ("cumsum", "cumprod")),
        (builder, "binary_op", _of_one_bit(builder.binary_op)),
        (builder, "get_all_ones_value", _all_ones),
        (builder, "create_umulhi", _high_half(builder.create_umulhi)),
        (builder, "create_fma", _rounded_once(builder.create_fma)),
    ]


def smaller(x: Array, y: Array, choose: Callable[[Array, Array], Array] = np.fmin) -> Array:
    """Return the minimum, of two zeros the negative one. Of a number and a NaN, `choose` decides: `np.fmin` returns the number."""
    return np.asarray(np.where(x == y, np.where(np.signbit(x), x, y), choose(x, y)))


def larger(x: Array, y: Array, choose: Callable[[Array, Array], Array] = np.fmax) -> Array:
    """Return the maximum, of two zeros the positive one."""
    return np.asarray(np.where(x == y, np.where(np.signbit(x), y, x), choose(x, y)))


# `tl.minimum` returns the number of a number and a NaN, unless it is asked to propagate NaN.
_CHOICES: dict[str, Callable[[Array, Array], Array]] = {
    "create_minnumf": smaller,
    "create_maxnumf": larger,
    "create_minimumf": functools.partial(smaller, choose=np.minimum),
    "create_maximumf": functools.partial(larger, choose=np.maximum),
}


def _of_two(choose: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    return lambda builder, left, right: builder.binary_op(left, right, choose)


def _saturating(conversion: Callable[..., Any]) -> Callable[..., Any]:
    """Return a conversion of floats to whole numbers that ends at the largest and the smallest one; NaN is 0 in 32 bits.

    A type of fewer bits gets the low ones of 32. What cards do there differs, and LLVM leaves all of it open.
    """

    def convert(builder: Any, source: Any, to: Any) -> Any:
        dtype = to.scalar
        if source.data.dtype.kind != "f" or not dtype.is_int():
            return conversion(builder, source, to)
        bits = dtype.primitive_bitwidth
        kind = np.dtype(f"{'u' if dtype.is_int_unsigned() and bits >= 32 else 'i'}{max(bits, 32) // 8}")
        info, numbers = np.iinfo(kind), np.trunc(source.data.astype(np.float64))
        inside = (numbers > float(info.min)) & (numbers < float(info.max))
        whole = np.where(inside, numbers, 0).astype(kind)
        whole[numbers >= float(info.max)] = info.max
        whole[numbers <= float(info.min)] = info.min
        if bits == 64:
            whole[np.isnan(numbers)] = np.array(1 << 63, np.uint64).view(np.int64).astype(kind)
        return type(source)(whole.astype(np.bool_ if bits == 1 else f"{'u' if dtype.is_int_unsigned() else 'i'}{bits // 8}"), dtype)

    return convert


def _of_its_type(scan: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scan whose sums wrap around in the type of its input; NumPy's are of 64 bits."""

    def run(ops: Any, value: Any) -> Any:
        results = scan(ops, value)
        for result in results:
            result.handle.data = result.handle.data.astype(value.handle.data.dtype)
        return results

    return run


def _of_one_bit(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation whose comparisons have a type of one bit, and that wraps truths around at one bit.

    The interpreter keeps the type of what is compared. A mask that is made of a program's number and then broadcast (`(pid < n) & mask`) is
    one of whole numbers then, which no load takes. NumPy's sum of two truths is true.
    """

    def compute(builder: Any, left: Any, right: Any, op: Any) -> Any:
        if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
            whole = op(left.data.astype(np.int8), right.data.astype(np.int8))
            return type(left)((whole & 1).astype(np.bool_), tl.int1)
        result = operation(builder, left, right, op)
        return type(result)(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    return compute


def _all_ones(builder: Any, dtype: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    kind = _get_np_dtype(dtype)
    bits = np.full(1, True) if kind == np.bool_ else np.full(kind.itemsize, 0xFF, np.uint8).view(kind)
    return TensorHandle(bits, dtype.scalar)


def _high_half(multiply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a product of unsigned numbers; signed operands take part by their bits."""

    def compute(builder: Any, left: Any, right: Any) -> Any:
        kind = left.data.dtype
        unsigned = np.dtype(f"u{kind.itemsize}")
        x, y = (type(each)(np.ascontiguousarray(each.data).view(unsigned), tl.uint64) for each in (left, right))
        return type(left)(np.ascontiguousarray(multiply(builder, x, y).data).view(kind), left.dtype.scalar)

    return compute


def _rounded_once(multiply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a fused multiplication and addition of fp16: older releases round the product, too. In fp64 it is exact."""

    def compute(builder: Any, x: Any, y: Any, z: Any) -> Any:
        if z.data.dtype != np.float16:
            return multiply(builder, x, y, z)
        wide = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data.astype(np.float64)
        return type(z)(wide.astype(np.float16), z.dtype.scalar)

    return compute
