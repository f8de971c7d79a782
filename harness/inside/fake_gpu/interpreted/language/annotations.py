"""Arguments whose type a kernel names: `n: tl.int64`, `scale: tl.float16`. The compiler takes the type; the interpreter looks at the value.

An offset from `n * n` wraps around in 32 bits, if the value decides: then a kernel that is right on a card is wrong.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

_TYPES = "_warpwave_types"  # of the rewritten function, which has not the annotations that a decorator gave


def note_types(kernel: Any) -> None:
    """Remember which types a kernel names for its arguments that are no pointers."""
    from triton.runtime.jit import KernelParam

    function = kernel.rewrite()
    if not hasattr(function, _TYPES):
        params = [KernelParam(0, param, False, False) for param in inspect.signature(kernel.fn).parameters.values()]
        named = {param.name: param.annotation_type for param in params if param.annotation_type}
        setattr(function, _TYPES, {name: tl.str_to_ty(kind, None) for name, kind in named.items() if not kind.startswith("*")})


def typed(executor: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a launch's arguments, with each number of the host in the type that the kernel names for it."""
    types: dict[str, Any] = getattr(executor.fn, _TYPES, {})
    if not types:
        return args, kwargs
    convert: Callable[[str, Any], Any] = functools.partial(_typed, types)
    return tuple(map(convert, executor.arg_names, args)), {name: convert(name, value) for name, value in kwargs.items()}


def _typed(types: dict[str, Any], name: str, value: Any) -> Any:
    dtype = types.get(name)
    if dtype is None or not isinstance(value, (bool, int, float)) or (isinstance(value, float) and not dtype.is_floating()):
        return value
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype, interpreter_semantic

    wide = tl.float64 if dtype.is_floating() else dtype
    number = np.array([value]).astype(_get_np_dtype(wide))
    return interpreter_semantic.cast(tl.tensor(TensorHandle(number, wide), wide), dtype)
