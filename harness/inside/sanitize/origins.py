"""Where a pointer of Triton's interpreter comes from: the tensor of the launch that it was computed from.

With it, an access that leaves its tensor and ends in another one is out of bounds, too. A pointer whose origin is lost, such as one of two
that a condition chose from, may point into any tensor of the launch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from harness.inside.sanitize.memory import ANYWHERE, Anywhere, Given, Origin

_NAME = "_warpwave_origin"
_CARRIERS = (
    *("create_addptr", "create_splat", "create_unsplat", "create_broadcast", "create_expand_dims", "create_reshape", "create_trans"),
    *("create_select", "create_cat", "create_join", "create_bitcast", "create_int_to_ptr"),
)
Patch = tuple[Any, str, Any]


def origin_of(handle: Any, by_address: dict[int, Given | Anywhere]) -> Origin:
    """Return the origin of a handle of pointers. A scalar that nothing was done to yet is an argument."""
    known: Origin | bool = handle.__dict__.get(_NAME, False)
    if known is not False:
        return known  # type: ignore[return-value]
    return by_address.get(int(handle.data.flat[0])) if handle.data.size == 1 else None


def patches(by_address: Callable[[], dict[int, Given | Anywhere] | None]) -> Iterator[Patch]:
    """Yield what lets the results of operations on pointers keep their origin, while `by_address` returns the arguments of a launch."""
    builder = interpreter.InterpreterBuilder
    for name in _CARRIERS:
        if name in vars(builder):
            yield builder, name, _carrying(vars(builder)[name], by_address)
    for name in ("TensorDescHandle", "BlockPointerHandle"):  # Triton 3.8 has no block pointers any more
        if owner := getattr(interpreter, name, None):
            yield owner, "materialize_pointers", _materializing(owner.materialize_pointers, by_address)


def _carrying(operation: Callable[..., Any], by_address: Callable[[], dict[int, Given | Anywhere] | None]) -> Callable[..., Any]:
    @functools.wraps(operation)
    def run(builder: Any, *args: Any) -> Any:
        result = operation(builder, *args)
        if isinstance(result.dtype, tl.pointer_type) and (given := by_address()) is not None:
            handles = (each for each in args if isinstance(each, interpreter.TensorHandle))
            origins = {origin_of(each, given) for each in handles if isinstance(each.dtype.scalar, tl.pointer_type)} or {ANYWHERE}
            result.__dict__[_NAME] = origins.pop() if len(origins) == 1 else None
        return result

    return run


def _materializing(materialize: Callable[..., Any], by_address: Callable[[], dict[int, Given | Anywhere] | None]) -> Callable[..., Any]:
    @functools.wraps(materialize)
    def run(described: Any, *args: Any) -> Any:
        pointers, masks = materialize(described, *args)
        if not isinstance(masks, interpreter.TensorHandle):  # block pointers of Triton 3.6
            masks = interpreter.TensorHandle(masks, tl.int1)
        if (given := by_address()) is not None:
            pointers.__dict__[_NAME] = origin_of(described.base, given)
        return pointers, masks

    return run
