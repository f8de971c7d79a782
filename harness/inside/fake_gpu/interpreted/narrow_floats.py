"""Arithmetic of bf16 and fp8 in Triton's interpreter, which computes with their bits as if they were whole numbers.

Here an operation converts its operands to fp32, which is exact, and rounds its result once, to nearest even, as cards do. Conversions to
fp8 saturate, also as on a card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from harness.inside.fake_gpu.interpreted.card_arithmetic import card_arithmetic
from harness.inside.fake_gpu.torch_device import Patch

Array = Any  # np.ndarray; the numbers' types change from call to call
# What torch has a type for. Triton's others are left as they are.
_TYPES = {tl.bfloat16: torch.bfloat16, tl.float8e5: torch.float8_e5m2, tl.float8e4nv: torch.float8_e4m3fn}
_TYPES |= {tl.float8e4b8: torch.float8_e4m3fnuz, tl.float8e5b16: torch.float8_e5m2fnuz}
_COMPARISONS = [f"create_fcmp{kind}{name}" for kind in "OU" for name in ("LT", "GT", "LE", "GE", "EQ", "NE")]
_ARITHMETIC = ["fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "fma", "clampf", "precise_divf", "approx_divf", "minimumf", "minnumf"]
_ARITHMETIC += ["maximumf", "maxnumf", "floor", "ceil", "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "precise_sqrt", "rsqrt", "erf"]
_CASTS = [f"create_{name}" for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc")]


def widened(data: Array, dtype: Any) -> Array:
    """Return the numbers that bits of a narrow type stand for, in fp32."""
    bits = np.ascontiguousarray(data).view(np.dtype(f"i{data.dtype.itemsize}"))
    return torch.from_numpy(bits).view(_TYPES[dtype]).to(torch.float32).numpy()


def narrowed(data: Array, dtype: Any) -> Array:
    """Return the bits of a narrow type that stand for numbers, rounded to nearest even."""
    numbers = torch.from_numpy(np.ascontiguousarray(data))
    if dtype is not tl.bfloat16:
        most = torch.finfo(_TYPES[dtype]).max
        numbers = numbers.clamp(-most, most)  # NaN stays
    bits = numbers.to(_TYPES[dtype]).view(torch.int16 if dtype is tl.bfloat16 else torch.int8).numpy()
    return bits.view(np.dtype(f"u{bits.dtype.itemsize}"))


def narrow_floats() -> list[Patch]:
    """Return what makes the interpreter compute with narrow floats, and as cards do with others."""
    from triton.runtime import interpreter

    builder, changes = interpreter.InterpreterBuilder, card_arithmetic()
    wide: dict[str, Any] = {name: operation for owner, name, operation in changes if owner is builder}
    names = [*_COMPARISONS, *(f"create_{name}" for name in _ARITHMETIC)]
    changes += [(builder, name, _computed(wide.get(name) or getattr(builder, name))) for name in names if hasattr(builder, name)]
    changes += [(builder, name, _cast(wide.get(name) or getattr(builder, name))) for name in _CASTS]
    changes += [(builder, name, _cast(getattr(builder, name))) for name in ("cast_impl", "create_fp_to_fp")]
    changes += [(builder, "create_dot", _operands_widened(builder.create_dot))]
    changes += [(builder, "create_atomic_rmw", _atomic(builder.create_atomic_rmw))]
    return [*changes, *((ops, "apply_impl", _combined(ops.apply_impl)) for ops in (interpreter.ReduceOps, interpreter.ScanOps))]


def _type(value: Any) -> Any:
    """Return a handle's narrow type, or nothing."""
    dtype = getattr(getattr(value, "dtype", None), "scalar", None)
    return dtype if dtype in _TYPES else None


def _wide(value: Any) -> Any:
    """Return a handle in fp32 if its type is narrow; anything else as it is."""
    return type(value)(widened(value.data, _type(value)), tl.float32) if _type(value) else value


def _computed(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation of floats that rounds its result to the type of its operands; a comparison's needs no rounding."""

    def compute(builder: Any, *args: Any) -> Any:
        dtype = next(filter(None, map(_type, args)), None)
        if dtype is None:
            return operation(builder, *args)
        result = operation(builder, *map(_wide, args))
        return result if result.data.dtype == np.bool_ else type(result)(narrowed(result.data, dtype), dtype)

    return compute


def _operands_widened(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a product whose sum has a type of its own."""

    def compute(builder: Any, left: Any, right: Any, *rest: Any) -> Any:
        return operation(builder, _wide(left), _wide(right), *rest)

    return compute


def _cast(conversion: Callable[..., Any]) -> Callable[..., Any]:
    def cast(builder: Any, source: Any, to: Any, *rounding: Any) -> Any:
        from triton.runtime.interpreter import _get_np_dtype

        if getattr(source, "is_suspected", False):  # nobody may look at it yet
            return source.converted(lambda plain: cast(builder, plain, to, *rounding))
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

    return cast


def _combined(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction or scan that NumPy does at once, over numbers; others call a function of the language for each step."""

    def combine(ops: Any, values: Any) -> Any:
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

    return combine


def _parities(results: Any) -> Any:
    """Return sums of truths as cards have them: they wrap around at one bit. NumPy's are true if one of the truths is."""
    if isinstance(results, (list, tuple)):
        return [_parities(result) for result in results]
    handle = type(results.handle)((results.handle.data & 1).astype(np.bool_), tl.int1)
    return tl.tensor(handle, results.type.with_element_ty(tl.int1) if results.type.is_block() else tl.int1)


def _rounded(value: Any, dtype: Any) -> Any:
    """Return a tensor of fp32 in a narrow type."""
    handle = type(value.handle)(narrowed(value.handle.data, dtype), dtype)
    return tl.tensor(handle, tl.block_type(dtype, value.shape) if value.shape else dtype)


def _atomic(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an atomic operation that adds narrow floats lane after lane, and exchanges floats as bits: the interpreter does neither."""

    def change(builder: Any, kind: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        from triton._C.libtriton import interpreter as memory

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

    return change
