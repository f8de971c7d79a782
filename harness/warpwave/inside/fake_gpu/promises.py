"""What a kernel promises the compiler of its numbers: `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy` and `tl.assume`.

The compiler believes it, and makes one access of several. The interpreter has the numbers, and fails the test if a promise is false. It
waits for an access that uses them: kernels promise what is false of a part of a row that is empty.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime.interpreter import interpreter_builder

# Which line of a kernel runs, for what is said of it.

_NOT_KERNELS = (f"{Path(triton.__file__).parent}/", f"{Path(__file__).parents[1]}/")  # what stands between a kernel and the interpreter
Place = tuple[CodeType, int]  # of a kernel, and the line


def place_in_kernel() -> Place:
    """Return the code and line of the kernel that has called what called this."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_KERNELS):
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


_ALIGNED_HERE = 16  # bytes: memory of the host is aligned to no more for sure, and that of a card is
_BROKEN = "_warpwave_broken_promise"
_ACCESSES = ("load", "store", "masked_load", "masked_store", "atomic_rmw", "atomic_cas", "atomic_store")


def is_access(name: str) -> bool:
    """Whether a function of the interpreter's builder reads or writes memory."""
    return name.removeprefix("create_") in _ACCESSES


class Promises:
    """Marks the numbers of which something false was promised, and what is computed of them."""

    def __init__(self) -> None:
        self.any_is_false = False

    def making(self, keep: Callable[..., None]) -> Callable[..., None]:
        """Return what keeps a promise, which notes one that is false."""

        def set_attr(handle: Any, name: str, values: Any) -> None:
            if name in _CHECKS and (sentence := _false(handle, name, values)):
                self.any_is_false = True
                handle.__dict__.setdefault(_BROKEN, sentence)
            keep(handle, name, values)

        return set_attr

    def computing(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        """Return an operation whose result comes from a false promise if an operand does."""

        @functools.wraps(operation)
        def compute(builder: Any, *args: Any, **kwargs: Any) -> Any:
            result = operation(builder, *args, **kwargs)
            if self.any_is_false and (broken := next(filter(None, map(_broken, args)), None)) and hasattr(result, "__dict__"):
                result.__dict__.setdefault(_BROKEN, broken)
            return result

        return compute

    def accessing(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        """Return an access that refuses what comes from a false promise."""

        @functools.wraps(operation)
        def access(builder: Any, *args: Any, **kwargs: Any) -> Any:
            if self.any_is_false:
                handles = [each for each in (*args, *kwargs.values()) if hasattr(each, "dtype")]
                masks = [each for each in handles if each.dtype.scalar == tl.int1]
                # The compiler knows of a mask `i < n` by how much `n` can be divided.
                pointers = [each for each in handles if isinstance(each.dtype.scalar, tl.pointer_type)]
                wrong = [*map(_broken, (*pointers, *masks))]
                if any(wrong) and all(mask.__dict__["data"].any() for mask in masks):
                    raise AssertionError(next(filter(None, wrong)))
            return operation(builder, *args, **kwargs)

        return access


def _broken(handle: Any) -> str:
    """Return what is false about the promise that a number comes from; empty if nothing is."""
    return str(getattr(handle, "__dict__", {}).get(_BROKEN, ""))


def _false(handle: Any, name: str, values: Any) -> str:
    """Return what is false about a promise."""
    function, find = _CHECKS[name]
    data, element = handle.__dict__["data"], handle.dtype.scalar  # not `handle.data`: the sanitizer sees who looks at what was loaded
    if data.dtype.kind not in "biu":
        return ""
    step = max(1, element.element_ty.primitive_bitwidth // 8) if isinstance(element, tl.pointer_type) else 1
    wrong = find(data.reshape(data.shape if data.ndim == len(values) else (1,) * len(values)).astype(np.int64), values, step)
    return _sentence(function, wrong) if wrong else ""


def assume(builder: Any, condition: Any) -> None:
    """Refuse a condition that does not hold."""
    if not condition.data.all():
        raise AssertionError(_sentence("assume", "the condition does not hold"))


def _sentence(function: str, wrong: str) -> str:

    code, line = place_in_kernel()
    program = ", ".join(map(str, interpreter_builder.grid_idx))
    return f"tl.{function} at {Path(code.co_filename).name}:{line} is false: {wrong}, program ({program})"


Numbers = Any  # np.ndarray, as elsewhere


def _not_multiple(data: Numbers, values: list[int], step: int) -> str:
    """Return which number is none: of each run of neighbours in memory, only the first one has to be."""
    first = np.ones(data.shape, bool)
    for axis in range(data.ndim):
        inner = np.moveaxis(first, axis, -1)
        inner[..., 1:] &= np.diff(np.moveaxis(data, axis, -1), axis=-1) != step
    for value in {int(np.gcd(value, _ALIGNED_HERE)) if step > 1 else value for value in values}:
        wrong = data[first & (data % value != 0)] if value > 1 else data[:0]
        if wrong.size:
            return f"{wrong.flat[0]} is not a multiple of {value}"
    return ""


def _not_contiguous(data: Numbers, values: list[int], step: int) -> str:
    """Return which numbers are no neighbours. Indices beyond an end may become 0, begin again at 0 or stay at the last one."""
    for group in _groups(data, values):
        jumps = np.diff(group, axis=-1) != step
        ends = np.where(jumps.any(axis=-1), jumps.argmax(axis=-1), group.shape[-1])[:, None]  # of the first run
        behind = np.arange(group.shape[-1]) > ends
        again = np.arange(group.shape[-1]) - ends - 1
        last = np.take_along_axis(group, np.minimum(ends, group.shape[-1] - 1), axis=-1)
        fine = np.any([np.all(~behind | (group == beyond), axis=-1) for beyond in (0, again * step, last)], axis=0)
        if not fine.all():
            row, at = group[~fine][0], int(ends[~fine][0, 0])
            return f"{row[at]} is followed by {row[at + 1]} in a group of {len(row)}"
    return ""


def _not_constant(data: Numbers, values: list[int], step: int) -> str:
    """Return which numbers differ."""
    for group in _groups(data, values):
        wrong = group[(group != group[:, :1]).any(axis=-1)]
        if wrong.size:
            other = wrong[0][wrong[0] != wrong[0][0]][0]
            return f"{wrong[0][0]} and {other} are in one group of {len(wrong[0])}"
    return ""


def _groups(data: Numbers, values: list[int]) -> list[Numbers]:
    """Return the groups along each axis, as rows."""
    sizes = [min(value, length) for value, length in zip(values, data.shape, strict=True)]
    return [np.moveaxis(data, axis, -1).reshape(-1, size) for axis, size in enumerate(sizes) if size > 1 and data.shape[axis] % size == 0]


_CHECKS: dict[str, tuple[str, Callable[[Numbers, list[int], int], str]]] = {
    "tt.divisibility": ("multiple_of", _not_multiple),
    "tt.contiguity": ("max_contiguous", _not_contiguous),
    "tt.constancy": ("max_constancy", _not_constant),
}
