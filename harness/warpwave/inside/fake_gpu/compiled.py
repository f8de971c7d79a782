"""What a call writes to the memory of its arguments, and `torch.compile` without a card, which relies on what ops say of that.

Functions that torch would compile stay Python's. An op that writes to an argument and does not say so is refused within them: the compiler
would take such a call away, or move it. Outside of it nothing asks, and a test of such an op passes on a card, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from warpwave.inside.fake_gpu.host_side import is_packages_op, is_traced, storage_of, tensors_in
from warpwave.inside.fake_gpu.torch_device import Patch, apply
from warpwave.inside.process.outcomes import Pretended


class Contents:
    """The memory of named arguments. A tensor stands for its whole storage; tensors that share one share its bytes."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self.sizes: dict[int, int] = {}  # in bytes, by address
        with torch._C.DisableTorchFunction():
            for name, value in arguments.items():
                # A descriptor, or a pointer of another type, has a tensor as its base.
                for tensor in tensors_in(value if isinstance(value, torch.Tensor) else getattr(value, "base", value)):
                    if size := _bytes(tensor):
                        self._tensors.append((name, tensor))
                        self.sizes[tensor.untyped_storage().data_ptr()] = size

    def copy(self) -> dict[int, bytes]:
        """Return what it holds now, by address."""
        return {start: ctypes.string_at(start, size) for start, size in self.sizes.items()}

    def put(self, kept: Mapping[int, bytes]) -> None:
        """Write what was copied."""
        for start, data in kept.items():
            ctypes.memmove(start, data, len(data))

    def changed(self, start: int, before: bytes, after: bytes) -> list[str]:
        """Return the arguments in the storage at `start` of which an element changed; all of them if none did, but the memory between."""
        with torch._C.DisableTorchFunction():
            here = [(name, tensor) for name, tensor in self._tensors if tensor.untyped_storage().data_ptr() == start]
            found = [name for name, tensor in here if not np.array_equal(_elements(tensor, before), _elements(tensor, after))]
        return list(dict.fromkeys(found or [name for name, _ in here]))


def _bytes(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage; 0 if it has no memory."""
    storage = storage_of(tensor)
    has_memory = storage is not None and storage.device.type == "cpu" and storage.data_ptr() and not tensor.is_nested
    return storage.nbytes() if storage is not None and has_memory else 0


def _elements(tensor: torch.Tensor, data: bytes) -> Any:
    size = tensor.element_size()
    held = np.frombuffer(data, np.uint8)[tensor.storage_offset() * size :]
    strides = (*(stride * size for stride in tensor.stride()), 1)
    return np.lib.stride_tricks.as_strided(held, (*tensor.shape, size), strides)


# Backends of torch's own: their kernels need a card, and their tracer sees no launch in the interpreter. Others are the author's.
_OF_TORCH = ("inductor", "cudagraphs", "eager", "aot_eager", "aot_eager_decomp_partition")
_within = threading.local()  # whether this thread is in a function, or a backward, that torch would have compiled; whether it has no modes


class UndeclaredWriteError(Exception):
    """An op writes to an argument, and does not say so."""


def plain(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stand in for `torch.compile`: the author's kernels are launched all the same, and no others are generated."""
    Pretended.compiled = True
    return (lambda decorated: decorated) if function is None else function


def by_authors_backend(originals: list[Patch], compile_: Callable[..., Any], model: Any = None, **options: Any) -> Any:
    """Stand in for `torch.compile`, with backends of the author's. A function for one of torch's stays Python's."""
    if model is None:
        return functools.partial(by_authors_backend, originals, compile_, **options)
    if options.get("backend", "inductor") in _OF_TORCH:
        return followed(plain(model, **options))
    compiled = compile_(model, **options)

    def run(*args: Any, **kwargs: Any) -> Any:  # a function, which may be a method
        return without_modes(originals, compiled, *args, **kwargs)

    return compiled if isinstance(compiled, torch.nn.Module) else run


def without_modes(originals: list[Patch], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Let torch's own compiler see tensors as they are, and the functions that it has rules for: the `originals`."""
    modes = [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]
    for _ in modes:
        torch._C._pop_torch_function_stack()
    outer, _within.bare = has_no_modes(), True
    try:
        # Modes that torch's compiler enters itself work: it indexes with tensors by one.
        with torch._C.DisableTorchFunctionSubclass(), contextlib.ExitStack() as undo:
            apply(originals, undo)
            return function(*args, **kwargs)
    finally:
        _within.bare = outer
        for mode in modes:
            torch._C._push_on_torch_function_stack(mode)


def has_no_modes() -> bool:
    """Whether this thread lets torch see tensors as they are: in a backward that it traces, too."""
    return getattr(_within, "bare", False)


def followed(function: Any) -> Any:
    """Return a function that torch would have compiled. While it runs, what ops write is compared with what they say."""
    if isinstance(function, torch.nn.Module):
        function._compiled_call_impl = followed(function._call_impl)  # where torch itself puts what it compiled
        return function
    if isinstance(function, type):
        return function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        Pretended.ran_compiled = True
        with _set(True):
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def _set(value: bool) -> Iterator[None]:
    before, _within.compiled = getattr(_within, "compiled", None), value
    try:
        yield
    finally:
        _within.compiled = before


def is_followed(function: Any) -> bool:
    """Whether torch would have compiled the call of a package's op that this thread makes."""
    within = getattr(_within, "compiled", None)
    if within is None and Pretended.ran_compiled:  # what a compiled function computed has a compiled backward
        within = torch._C._current_graph_task_id() != -1
    return bool(within) and is_packages_op(function)


def call(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call an op of a package; raise `UndeclaredWriteError` if it writes to an argument, and its schema does not say so."""
    names: Any = getattr(op, "overloads", None)  # of a packet
    overloads = [getattr(op, name) for name in names()] if names else [op] if isinstance(op, torch._ops.OpOverload) else []
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    # The compiler takes an op of parts apart, and sees itself what they write.
    if not overloads or is_traced(args, kwargs) or any(has_kernel(each.name(), "CompositeImplicitAutograd") for each in overloads):
        return op(*args, **kwargs)
    arguments = [argument for overload in overloads for argument in overload._schema.arguments]
    declared = {argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write}
    named = {**dict(zip((argument.name for argument in arguments), args, strict=False)), **kwargs}
    written = Contents({name: value for name, value in named.items() if name in declared})
    memory = Contents({name: value for name, value in named.items() if name not in declared})
    before = memory.copy()
    with _set(False):  # the compiler does not look into the op
        result = op(*args, **kwargs)
    changed = {start: data for start, data in memory.copy().items() if data != before[start] and start not in written.sizes}
    if wrong := list(dict.fromkeys(name for start, data in changed.items() for name in memory.changed(start, before[start], data))):
        raise UndeclaredWriteError(
            f"`{overloads[0]._schema.name}` writes to {' and '.join(f'`{name}`' for name in wrong)}, and mutates_args does not name it; "
            "torch.compile relies on that, and removes or moves such a call. Name every argument that the op writes to: "
            f"mutates_args={wrong}, or `Tensor(a!)` in its schema"
        )
    return result
