"""`torch.compile` without a card: functions stay Python's, and a call that the compiler would take away or move is refused.

The compiler believes what an op says of its arguments. Outside of it nothing asks, and a test of such an op passes on a card, too.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from warpwave.inside.fake_gpu.contents import Contents
from warpwave.inside.fake_gpu.host_side import is_packages_op, is_traced
from warpwave.inside.process.outcomes import Pretended

_within = threading.local()  # whether this thread is in a function, or a backward, that torch would have compiled


class UndeclaredWriteError(Exception):
    """An op writes to an argument, and does not say so."""


def plain(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Stand in for `torch.compile`: the author's kernels are launched all the same, and no others are generated."""
    Pretended.compiled = True
    return (lambda decorated: decorated) if function is None else function


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
    """Call an op of a package.

    Raises:
        UndeclaredWriteError: it wrote to an argument, and its schema does not say so.
    """
    overloads = _overloads(op)
    if not overloads or is_traced(args, kwargs) or any(map(_is_seen_through, overloads)):
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


def _overloads(op: Any) -> list[Any]:
    names: Any = getattr(op, "overloads", None)  # of a packet
    return [getattr(op, name) for name in names()] if names else [op] if isinstance(op, torch._ops.OpOverload) else []


def _is_seen_through(overload: Any) -> bool:
    """Whether the compiler takes an op apart, and sees itself what its parts write."""
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has_kernel(overload.name(), "CompositeImplicitAutograd"))
