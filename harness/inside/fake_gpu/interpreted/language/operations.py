"""Operations of the language that Triton's interpreter lacks: reductions through descriptors, and functions of single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from harness.inside.fake_gpu.torch_device import Patch
from harness.inside.process.exceptions import NotPretended


def operations() -> list[Patch]:
    """Return them; nothing that this Triton's language does not have, or whose interpreter has it."""
    from triton.runtime.interpreter import InterpreterBuilder

    found: list[Patch] = []
    if not hasattr(InterpreterBuilder, "create_descriptor_reduce"):
        found.append((InterpreterBuilder, "create_descriptor_reduce", _reduce_in_memory))
    if hasattr(tl, "map_elementwise") and not hasattr(InterpreterBuilder, "create_map_elementwise"):
        found += [(owner, "map_elementwise", _map_elementwise) for owner in (tl, tl.core)]
    return found


def _reduce_in_memory(builder: Any, kind: Any, descriptor: Any, value: Any, offsets: Any) -> None:
    """Combine a block with what a descriptor's memory holds, as one atomic operation for each element."""
    from triton._C.libtriton import ir

    name = str(kind).rpartition(".")[2]
    dtype = value.dtype.scalar
    if dtype.is_floating():
        if name != "ADD":
            raise NotPretended(f"the interpreter has no atomic {name.lower()} of floats through a descriptor")
        name = "FADD"
    elif name in ("MIN", "MAX") and not dtype.is_int_signed():
        name = f"U{name}"
    pointers, mask = descriptor.materialize_pointers(offsets)
    builder.create_atomic_rmw(getattr(ir.ATOMIC_OP, name), pointers, value, mask, ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU)


def _map_elementwise(function: Callable[..., Any], *args: Any, pack: Any = 1) -> Any:
    """Call a function with `pack` elements of each tensor at a time; its branches depend on them."""
    from triton.runtime.interpreter import TensorHandle, interpreter_semantic

    pack = int(getattr(pack, "value", pack))
    tensors = interpreter_semantic.broadcast_tensors(*map(interpreter_semantic.to_tensor, args))
    shape, size = tensors[0].shape, tensors[0].handle.data.size
    calls = []
    for first in range(0, size, pack):
        places = range(first, first + pack)
        calls.append(_tensors(function(*(_element(tensor, place) for tensor in tensors for place in places))))
    is_single = isinstance(calls[0], tl.tensor)
    results = []
    for place in range(1 if is_single else len(calls[0]) // pack):
        parts = [(call,) if is_single else tuple(call)[place * pack : (place + 1) * pack] for call in calls]
        dtype = parts[0][0].dtype
        data = np.concatenate([np.ravel(part.handle.data) for some in parts for part in some]).reshape([int(n) for n in shape])
        results.append(tl.tensor(TensorHandle(data, dtype.scalar), tensors[0].type.with_element_ty(dtype.scalar)))
    return results[0] if is_single else tuple(results)


def _tensors(result: Any) -> Any:
    """Return what a function returned as tensors: it may return constants."""
    from triton.runtime.interpreter import interpreter_semantic

    return [*map(_tensors, result)] if isinstance(result, (list, tuple, tl.tuple)) else interpreter_semantic.to_tensor(result)


def _element(tensor: Any, place: int) -> Any:
    from triton.runtime.interpreter import TensorHandle

    dtype = tensor.dtype.scalar
    return tl.tensor(TensorHandle(tensor.handle.data.reshape(-1)[place : place + 1], dtype), dtype)
