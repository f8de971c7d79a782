"""Arithmetic on which Triton's interpreter and cards disagree: zeros and NaN of minima, conversions out of range, bits, narrow products.

Each was seen on an NVIDIA card (docs/no-gpu.md). Some releases of Triton have some of it right; what is here holds for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import interpreter as memory
from triton._C.libtriton.ir import INPUT_PRECISION
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

from warpwave.inside.fake_gpu.launches import Launched

Array = Any  # np.ndarray; the numbers' types change from call to call


def smaller(x: Array, y: Array, choose: Callable[[Array, Array], Array] = np.fmin) -> Array:
    """Return the minimum, of two zeros the negative one. Of a number and a NaN, `choose` decides: `np.fmin` returns the number."""
    return np.asarray(np.where(x == y, np.where(np.signbit(x), x, y), choose(x, y)))


def larger(x: Array, y: Array, choose: Callable[[Array, Array], Array] = np.fmax) -> Array:
    """Return the maximum, of two zeros the positive one."""
    return np.asarray(np.where(x == y, np.where(np.signbit(x), y, x), choose(x, y)))


# `tl.minimum` returns the number of a number and a NaN, unless it is asked to propagate NaN.
CHOICES: dict[str, Callable[[Array, Array], Array]] = {
    "create_minnumf": smaller,
    "create_maxnumf": larger,
    "create_minimumf": functools.partial(smaller, choose=np.minimum),
    "create_maximumf": functools.partial(larger, choose=np.maximum),
}


def of_two(choose: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    """Return an operation that chooses one of two numbers."""
    return lambda builder, left, right: builder.binary_op(left, right, choose)


def saturating(conversion: Callable[..., Any], builder: Any, source: Any, to: Any) -> Any:
    """Convert floats to whole numbers, which end at the largest and the smallest one; NaN is 0 in 32 bits.

    A type of fewer bits gets the low ones of 32. What cards do there differs, and LLVM leaves all of it open.
    """
    dtype = to.scalar
    if source.data.dtype.kind != "f" or not dtype.is_int():
        return conversion(builder, source, to)
    bits = dtype.primitive_bitwidth
    kind = np.dtype(f"{'u' if dtype.is_int_unsigned() and bits >= 32 else 'i'}{max(bits, 32) // 8}")
    numbers = np.trunc(source.data.astype(np.float64))
    whole = saturated(numbers, kind)
    if bits == 64:
        whole[np.isnan(numbers)] = np.array(1 << 63, np.uint64).view(np.int64).astype(kind)
    return type(source)(whole.astype(np.bool_ if bits == 1 else f"{'u' if dtype.is_int_unsigned() else 'i'}{bits // 8}"), dtype)


def saturated(numbers: Array, kind: np.dtype[Any]) -> Array:
    """Return whole floats in a type of integers: what is outside of it becomes its nearest end, and NaN becomes 0."""
    least, most = float(np.iinfo(kind).min), float(np.iinfo(kind).max)
    whole = np.where((numbers > least) & (numbers < most), numbers, 0).astype(kind)
    whole[numbers >= most], whole[numbers <= least] = np.iinfo(kind).max, np.iinfo(kind).min
    return whole


def of_its_type(scan: Callable[..., Any], ops: Any, value: Any) -> Any:
    """Scan with sums that wrap around in the type of the input; NumPy's are of 64 bits."""
    results = scan(ops, value)
    for result in results:
        result.handle.data = result.handle.data.astype(value.handle.data.dtype)
    return results


def of_one_bit(operation: Callable[..., Any], builder: Any, left: Any, right: Any, op: Any) -> Any:
    """Compute with two numbers. Comparisons have a type of one bit, and truths wrap around at one bit.

    The interpreter keeps the type of what is compared. A mask that is made of a program's number and then broadcast (`(pid < n) & mask`) is
    one of whole numbers then, which no load takes. NumPy's sum of two truths is true.
    """
    if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
        whole = op(left.data.astype(np.int8), right.data.astype(np.int8))
        return type(left)((whole & 1).astype(np.bool_), tl.int1)
    result = operation(builder, left, right, op)
    return type(result)(result.data, tl.int1) if result.data.dtype == np.bool_ else result


def all_ones(builder: Any, dtype: Any) -> Any:
    """Return a constant with all bits set."""
    kind = _get_np_dtype(dtype)
    bits = np.full(1, True) if kind == np.bool_ else np.full(kind.itemsize, 0xFF, np.uint8).view(kind)
    return TensorHandle(bits, dtype.scalar)


def high_half(multiply: Callable[..., Any], builder: Any, left: Any, right: Any) -> Any:
    """Multiply as unsigned numbers; signed operands take part by their bits."""
    kind = left.data.dtype
    unsigned = np.dtype(f"u{kind.itemsize}")
    x, y = (type(each)(np.ascontiguousarray(each.data).view(unsigned), tl.uint64) for each in (left, right))
    return type(left)(np.ascontiguousarray(multiply(builder, x, y).data).view(kind), left.dtype.scalar)


def rounded_once(multiply: Callable[..., Any], builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Multiply and add fp16 with one rounding: older releases round the product, too. In fp64 it is exact."""
    if z.data.dtype != np.float16:
        return multiply(builder, x, y, z)
    wide = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data.astype(np.float64)
    return type(z)(wide.astype(np.float16), z.dtype.scalar)


# Arithmetic of bf16 and fp8 in Triton's interpreter, which computes with their bits as if they were whole numbers.
#
# Here an operation converts its operands to fp32, which is exact, and rounds its result once, to nearest even, as cards do. Conversions to
# fp8 saturate, also as on a card.

# What torch has a type for. Triton's others are left as they are.
_TYPES = {tl.bfloat16: torch.bfloat16, tl.float8e5: torch.float8_e5m2, tl.float8e4nv: torch.float8_e4m3fn}
_TYPES |= {tl.float8e4b8: torch.float8_e4m3fnuz, tl.float8e5b16: torch.float8_e5m2fnuz}
# The numbers of e2m1 by their four bits.
E2M1 = np.array([sign * size for sign in (1, -1) for size in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)], np.float32)
COMPUTED = [f"create_fcmp{kind}{name}" for kind in "OU" for name in ("LT", "GT", "LE", "GE", "EQ", "NE")]
_ARITHMETIC = "fadd fsub fmul fdiv frem fneg fma clampf precise_divf approx_divf minimumf minnumf maximumf maxnumf floor ceil exp exp2 log"
COMPUTED += [f"create_{name}" for name in (*_ARITHMETIC.split(), "log2", "sin", "cos", "sqrt", "precise_sqrt", "rsqrt", "erf")]
CASTS = [f"create_{name}" for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc", "fp_to_fp")] + ["cast_impl"]


_from_numpy = torch.from_numpy  # as torch has it: the package's passes the pretended card


def widened(data: Array, dtype: Any) -> Array:
    """Return the numbers that bits of a narrow type stand for, in fp32."""
    data = np.ascontiguousarray(data)
    if dtype is tl.bfloat16:
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return _numbers_of_bytes(dtype)[data.view(np.uint8)]


@functools.cache
def _numbers_of_bytes(dtype: Any) -> Array:
    with torch._C.DisableTorchFunction():
        return _from_numpy(np.arange(256, dtype=np.uint8)).view(_TYPES[dtype]).float().numpy()


def narrowed(data: Array, dtype: Any) -> Array:
    """Return the bits of a narrow type that stand for numbers, rounded to nearest even."""
    with torch._C.DisableTorchFunction():  # or each call passes the modes of the pretended card, which takes longer than the work
        numbers = _from_numpy(np.ascontiguousarray(data))
        if dtype is not tl.bfloat16:
            most = torch.finfo(_TYPES[dtype]).max
            numbers = numbers.clamp(-most, most)  # NaN stays
        bits = numbers.to(_TYPES[dtype]).view(torch.int16 if dtype is tl.bfloat16 else torch.int8).numpy()
    return bits.view(np.dtype(f"u{bits.dtype.itemsize}"))


def _type(value: Any) -> Any:
    """Return a handle's narrow type, or nothing."""
    dtype = getattr(getattr(value, "dtype", None), "scalar", None)
    return dtype if dtype in _TYPES else None


def _wide(value: Any) -> Any:
    """Return a handle in fp32 if its type is narrow; anything else as it is."""
    return type(value)(widened(value.data, _type(value)), tl.float32) if _type(value) else value


def computed(operation: Callable[..., Any], builder: Any, *args: Any) -> Any:
    """Compute with narrow floats, and round to their type; a comparison needs no rounding."""
    dtype = next(filter(None, map(_type, args)), None)
    if dtype is None:
        return operation(builder, *args)
    result = operation(builder, *map(_wide, args))
    return result if result.data.dtype == np.bool_ else type(result)(narrowed(result.data, dtype), dtype)


def operands_widened(operation: Callable[..., Any], builder: Any, left: Any, right: Any, *rest: Any) -> Any:
    """Multiply; the sum has a type of its own."""
    return operation(builder, _wide(left), _wide(right), *rest)


# From this capability on, a card has matrix units for TF32. Before, Triton multiplies fp32 in full.
HAS_TF32 = 80
_LEFT_OUT = np.uint32((1 << 13) - 1)  # TF32 has 10 of the 23 bits behind the point


def cut_to_tf32(multiply: Callable[..., Any], builder: Any, left: Any, right: Any, total: Any, precision: Any, *rest: Any) -> Any:
    """Multiply matrices of fp32 in TF32: the units leave out low bits of both.

    So it was on an H200, for `mma` and `wgmma` alike; with `tf32x3`, `bf16x6` and `ieee`, products were those of fp32.
    """
    if precision == INPUT_PRECISION.TF32 and left.data.dtype == right.data.dtype == np.float32:
        bits = [np.ascontiguousarray(each.data).view(np.uint32) for each in (left, right)]
        Launched.cut_to_tf32 = Launched.cut_to_tf32 or any(bool((each & _LEFT_OUT).any()) for each in bits)
        left, right = (TensorHandle((each & ~_LEFT_OUT).view(np.float32), tl.float32) for each in bits)
    return multiply(builder, left, right, total, precision, *rest)


def cast(conversion: Callable[..., Any], builder: Any, source: Any, to: Any, *rounding: Any) -> Any:
    """Convert to a narrow type, or from one, with one rounding."""
    if getattr(source, "is_suspected", False):  # the sanitizer hears who looks at it
        return source.converted(lambda plain: cast(conversion, builder, plain, to, *rounding))
    dtype = to.scalar
    if (_type(source) is None and dtype not in _TYPES) or any("RTZ" in str(mode) for mode in rounding):
        return conversion(builder, source, to, *rounding)
    numbers = _wide(source).data
    if dtype.is_int():
        return conversion(builder, _wide(source), to, *rounding)
    if dtype not in _TYPES:
        return type(source)(numbers.astype(_get_np_dtype(dtype)), dtype)
    # What is wider than fp32 (fp64, large whole numbers) is rounded once, too.
    return type(source)(narrowed(numbers.astype(np.float64), dtype), dtype)


def combined(apply: Callable[..., Any], ops: Any, values: Any) -> Any:
    """Reduce or scan numbers, where NumPy does it at once; else a function of the language is called for each step."""
    if ops.combine_fn is tl.standard._sum_combine and values[0].dtype.scalar == tl.int1:
        return _parities(apply(ops, (ops.to_tensor(values[0].handle.data.astype(np.int8), tl.int8),)))
    narrow = [_type(value.handle) for value in values]
    if not any(narrow) or ops.combine_fn not in vars(tl.standard).values():
        return apply(ops, values)
    wide = [ops.to_tensor(_wide(value.handle).data, tl.float32) if _type(value.handle) else value for value in values]
    results = apply(ops, tuple(wide))
    several = list(results) if isinstance(results, (list, tuple)) else [results]
    for place, dtype in enumerate(narrow[: len(several)]):
        if dtype:
            several[place] = _rounded(several[place], dtype)
    return several if isinstance(results, (list, tuple)) else several[0]


def _parities(results: Any) -> Any:
    """Return sums of truths as cards have them: they wrap around at one bit. NumPy's are true if one of the truths is."""
    if isinstance(results, (list, tuple)):
        return [_parities(result) for result in results]
    handle = type(results.handle)((results.handle.data & 1).astype(np.bool_), tl.int1)
    return tl.tensor(handle, results.type.with_element_ty(tl.int1) if results.type.is_block() else tl.int1)


def _rounded(value: Any, dtype: Any) -> Any:
    handle = type(value.handle)(narrowed(value.handle.data, dtype), dtype)
    return tl.tensor(handle, tl.block_type(dtype, value.shape) if value.shape else dtype)


def atomic(operation: Callable[..., Any], builder: Any, kind: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
    """Add narrow floats lane after lane, and exchange floats as bits: the interpreter does neither."""
    if str(kind).endswith("XCHG") and value.data.dtype.kind == "f":
        bits = value.data.view(f"i{value.data.itemsize}")
        old = operation(builder, kind, pointer, type(value)(bits, tl.int64 if bits.itemsize == 8 else tl.int32), mask, *rest)
        return type(value)(old.data.view(value.data.dtype), value.dtype)
    dtype = _type(value)
    if dtype is None or not str(kind).endswith("FADD"):
        return operation(builder, kind, pointer, value, mask, *rest)
    before, one = np.zeros_like(value.data), np.ones(1, bool)
    for lane in np.flatnonzero(mask.data):
        where = pointer.data.reshape(-1)[lane : lane + 1]
        old = memory.load(where, one, np.zeros(1, value.data.dtype), value.data.dtype)
        total = widened(old, dtype) + widened(value.data.reshape(-1)[lane : lane + 1], dtype)
        memory.store(where, narrowed(total, dtype), one)
        before.reshape(-1)[lane] = old[0]
    return type(value)(before, value.dtype)
