"""The sanitizer: it stands between Triton's interpreter and memory, checks each access, and collects what it finds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime import interpreter

from harness.inside.fake_gpu.interpreted.places import place_in_kernel
from harness.inside.fake_gpu.interpreted.waiting import Programs
from harness.inside.sanitize.findings import Findings
from harness.inside.sanitize.launch import Launch
from harness.inside.sanitize.memory import Block, Lanes
from harness.inside.sanitize.order import watched
from harness.inside.sanitize.origins import Patch, origin_of
from harness.inside.sanitize.origins import patches as origin_patches
from harness.inside.sanitize.unwritten import Entry, suspected
from harness.inside.sanitize.unwritten import patches as unwritten_patches
from harness.inside.sanitize.written import Shadows

_RELEASING = {interpreter._ir.MEM_SEMANTIC.RELEASE, interpreter._ir.MEM_SEMANTIC.ACQUIRE_RELEASE}
_OF_PROGRAM = interpreter._ir.MEM_SYNC_SCOPE.CTA  # the scope of an atomic that is one to its own program only
_ACQUIRING = {interpreter._ir.MEM_SEMANTIC.ACQUIRE, interpreter._ir.MEM_SEMANTIC.ACQUIRE_RELEASE}
_EXCHANGE = interpreter._ir.ATOMIC_OP.XCHG


class Sanitizer:
    """Wraps the interpreter's loads, stores and atomics. `findings` is what it found since somebody last took it."""

    def __init__(self) -> None:
        self.shadows = Shadows()
        self.findings = Findings()
        self._launch: Launch | None = None

    def patches(self) -> Iterator[Patch]:
        """Yield what the interpreter must do instead: owner, name, replacement."""
        builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
        yield from origin_patches(lambda: self._launch.tensors.by_address if self._launch else None)
        yield from unwritten_patches(builder)
        yield executor, "__call__", self._launching(executor.__call__)
        yield Programs, "hand_over", self._handing_over(Programs.hand_over)
        yield builder, "set_grid_idx", self._next_program(builder.set_grid_idx)
        yield builder, "create_masked_load", self._load(builder.create_masked_load)
        yield builder, "create_masked_store", self._store(builder.create_masked_store)
        yield builder, "create_atomic_rmw", self._rmw(builder.create_atomic_rmw)
        yield builder, "create_atomic_cas", self._cas(builder.create_atomic_cas)
        if store := getattr(builder, "create_atomic_store", None):  # since Triton 3.9
            yield builder, "create_atomic_store", self._atomic_store(store)

    def _launching(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def run(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if executor.pre_run_hooks:  # they may write to anything
                self.shadows.forget_all()
            outer = self._launch
            with torch._C.DisableTorchFunction():
                self._launch = launch = Launch(executor.fn, args, kwargs, self.shadows, self.findings)
                try:
                    return call(executor, *args, **kwargs)
                finally:
                    self._launch = outer
                    launch.close()

        return run

    def _handing_over(self, hand_over: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(hand_over)
        def run(*programs: Any) -> None:
            order = self._launch.order if self._launch else None
            seen = order.seen if order else None
            hand_over(*programs)
            if order is not None and seen is not None:  # of the program whose turn it is again
                order.seen = seen

        return run

    def _next_program(self, set_grid_idx: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(set_grid_idx)
        def run(builder: Any, *index: int) -> None:
            set_grid_idx(builder, *index)
            if self._launch:
                self._launch.begin(builder.grid_idx, builder.grid_dim)

        return run

    def _load(self, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def run(builder: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
            launch = self._launch
            if launch is None:
                return load(builder, ptrs, mask, other, *rest, **named)
            volatile = bool(named.get("is_volatile", rest[-1] if rest else False))  # how kernels wait for others
            late: list[Entry] = []  # the compiler removes a load whose result nobody uses
            lanes, mask = _checked(launch, "load", ptrs, mask, None if volatile else late)
            unwritten = None if lanes is None else launch.reads(lanes, logged=not volatile)
            result = load(builder, ptrs, mask, other, *rest, **named)
            if unwritten is not None and volatile:
                positions, blame = unwritten
                blame(positions)
            else:
                result = suspected(result, (*late, *([unwritten] if unwritten is not None else [])))
            return watched(result, launch.order, None) if volatile and launch.order else result

        return run

    def _store(self, store: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(store)
        def run(builder: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            launch = self._launch
            if launch is None:
                return store(builder, ptrs, value, mask, *rest, **named)
            lanes, mask = _checked(launch, "store", ptrs, mask)
            if lanes is not None:
                launch.writes(lanes, lambda: _changes(ptrs.data, value.data, mask.data))
            return store(builder, ptrs, value, mask, *rest, **named)

        return run

    def _rmw(self, atomic: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(atomic)
        def run(builder: Any, operation: Any, ptrs: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
            launch = self._launch
            if launch is None:
                return atomic(builder, operation, ptrs, value, mask, sem, scope)
            lanes, mask = _checked(launch, "atomic", ptrs, mask)
            if lanes is not None:
                launch.updates(lanes, reads=operation != _EXCHANGE, atomic=scope != _OF_PROGRAM)  # what it exchanges is seldom looked at
            return _synchronised(launch, lanes, sem, scope, atomic(builder, operation, ptrs, value, mask, sem, scope))

        return run

    def _cas(self, atomic: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(atomic)
        def run(builder: Any, ptrs: Any, compared: Any, value: Any, sem: Any, scope: Any) -> Any:
            launch = self._launch
            if launch is None:
                return atomic(builder, ptrs, compared, value, sem, scope)
            lanes, inside = _checked(launch, "atomic", ptrs, None)
            if inside is not None:  # there is no mask to take a lane out of it, so nothing is exchanged
                return interpreter.TensorHandle(compared.data.copy(), compared.dtype)
            if lanes is not None:
                launch.updates(lanes, atomic=scope != _OF_PROGRAM)
            return _synchronised(launch, lanes, sem, scope, atomic(builder, ptrs, compared, value, sem, scope))

        return run

    def _atomic_store(self, store: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(store)
        def run(builder: Any, ptrs: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
            launch, self._launch = self._launch, None  # it calls the plain one
            try:
                if launch is not None:
                    lanes, mask = _checked(launch, "atomic", ptrs, mask)
                    if lanes is not None:
                        launch.updates(lanes, reads=False, atomic=scope != _OF_PROGRAM)
                    _synchronised(launch, lanes, sem, scope, None)
                return store(builder, ptrs, value, mask, sem, scope)
            finally:
                self._launch = launch

        return run


def _checked(launch: Launch, doing: str, ptrs: Any, mask: Any, later: list[Entry] | None = None) -> tuple[Lanes | None, Any]:
    """Return the lanes of an access that are inside, and the mask without the others. Those are reported, `later` if it is given."""
    block = Block(place_in_kernel(), doing, origin_of(ptrs, launch.tensors.by_address), ptrs.data.shape, _bytes(ptrs.get_element_ty()))
    lanes, outside = launch.lanes(block, ptrs.data, None if mask is None else mask.data, later)
    if outside is None:
        return lanes, mask
    on = ~outside if mask is None else mask.data & ~outside
    return lanes, interpreter.TensorHandle(on, interpreter.tl.int1)


@functools.cache
def _bytes(element: Any) -> int:
    """Return the size of an element in the interpreter, which has at least a byte for each."""
    size: int = interpreter._get_np_dtype(element).itemsize
    return size


def _synchronised(launch: Launch, lanes: Lanes | None, sem: Any, scope: Any, result: Any) -> Any:
    """Do what the order of an atomic asks for, and return its result."""
    if launch.order is None or lanes is None or scope == _OF_PROGRAM:
        return result
    keys = launch.keys(lanes)
    clock = launch.order.published(keys) if sem in _ACQUIRING else None
    if sem in _RELEASING:
        launch.order.release(keys, launch.program)
    return watched(result, launch.order, clock) if clock and result is not None else result


def _changes(ptrs: NDArray[np.uint64], value: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which lanes are about to change the memory that they write to, bit for bit."""
    old = interpreter._interpreter.load(ptrs, mask, np.zeros(ptrs.shape, value.dtype), value.dtype)
    unsigned = np.dtype(f"u{value.dtype.itemsize}")
    changed: NDArray[np.bool_] = old.view(unsigned) != np.ascontiguousarray(value).view(unsigned)
    return changed
