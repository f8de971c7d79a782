"""The sanitizer: it stands between Triton's interpreter and memory, checks each access, and collects what it finds."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Union

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime import interpreter

from warpwave.inside.codegen.undefined import Followed
from warpwave.inside.fake_gpu.emulated_findings import Given, at, finding, nearest
from warpwave.inside.fake_gpu.interpreter import first_code
from warpwave.inside.fake_gpu.lanes import lanes_of
from warpwave.inside.fake_gpu.programs import Programs
from warpwave.inside.fake_gpu.torch_device import Patch, around
from warpwave.inside.fake_gpu.traces import place_in_kernel
from warpwave.inside.process.outcomes import describe, statement
from warpwave.inside.sanitize.memory import (
    Anywhere,
    Blame,
    Block,
    Entry,
    Lanes,
    Memory,
    Shadows,
    Tensors,
    origin_of,
    origin_patches,
    suspected,
    watched,
    wrote_others,
)
from warpwave.inside.sanitize.memory import patches as unwritten_patches
from warpwave.inside.sanitize.races import Access, Clock, Conflict, Findings, Log, Order, raced_with
from warpwave.records import Defect

# One launch in the interpreter: which of its accesses are out of bounds, read unwritten memory, or race.

_FEW_KEYS = 16  # an atomic on more addresses than this counts as one lock, not as one for each address
Mask = Union[NDArray[np.bool_], None]


class Launch:
    """The tensors of a launch, and what its programs do to them."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, shadows: Shadows, findings: Findings) -> None:
        self.tensors = Tensors(function, args, kwargs, shadows)
        self.order: Order | None = None  # a single program races with no other
        self.program = 0
        self._function = function.__name__
        self._index = (0, 0, 0)
        self._logs: defaultdict[Memory, Log] = defaultdict(Log)
        self._shadows, self._findings = shadows, findings

    def begin(self, index: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
        """Begin a program."""
        self._index = index
        self.program = (index[0] * grid[1] + index[1]) * grid[2] + index[2]
        if (programs := grid[0] * grid[1] * grid[2]) > 1:
            self.order = self.order or Order(programs)
            self.order.begin()

    def close(self) -> None:
        """Report races, and let go of shadows that are complete."""
        for log in self._logs.values():
            self._races(log.close())
        for memory in self.tensors.memories.values():
            if memory.shadow is not None and memory.shadow.marks.all():
                self._shadows.complete(memory.shadow)

    def lanes(self, block: Block, addresses: NDArray[np.uint64], mask: Mask, later: list[Entry] | None = None) -> tuple[Lanes | None, Mask]:
        """Return the lanes that are on and inside, and which ones are on and out of bounds (None: no lane). The latter are reported.

        There are no lanes if there is nothing more to check: none is left, or they are in several storages. What is out of bounds goes to
        `later` instead if it is given, to be reported when the block is used.
        """
        chosen = None if mask is None or mask.all() else np.flatnonzero(mask)
        found = addresses.ravel() if chosen is None else addresses.ravel()[chosen]
        if not found.size:
            return None, None
        memory = self.tensors.of(block.origin) if isinstance(block.origin, Given) else self.tensors.find(int(found[0]))
        if memory is not None:
            offsets = found - np.uint64(memory.start)  # below the start, they wrap around and are far too large
            if (high := int(offsets.max())) <= memory.nbytes - block.itemsize:
                return Lanes(block, memory, offsets, int(offsets.min()), high + block.itemsize - 1, chosen), None
        outside = self._outside(block, found)
        if not outside.any():
            # One access has reached several storages. Which of them it wrote is not looked at: they count as written.
            for reached in self.tensors.memories.values():
                if reached.shadow is not None and not _beyond([reached], found, 1).all():
                    self._shadows.complete(reached.shadow)
                    reached.shadow = None
            return None, None
        positions = np.arange(addresses.size) if chosen is None else chosen
        report = functools.partial(self._report, Defect.OUT_OF_BOUNDS, block, address=int(found[outside][0]), index=self._index)
        if later is None:
            report(positions[outside])
        else:
            later.append((positions[outside], report, True))
        marked = np.zeros(addresses.shape, bool)
        marked.ravel()[positions[outside]] = True
        on = np.ones(addresses.shape, bool) if mask is None else mask
        return self.lanes(block, addresses, on & ~marked, later)[0], marked

    def reads(self, lanes: Lanes, logged: bool = True) -> tuple[NDArray[np.int64], Blame] | None:
        """Log a read, unless it cannot race. Return the positions in the block that were never written, and what reports some of them."""
        if logged:
            self._log(lanes, writes=False)
        memory, block = lanes.memory, lanes.block
        if memory.shadow is None:
            return None
        unwritten = memory.shadow.unwritten(lanes.offsets, lanes.low, lanes.high, block.itemsize)
        if unwritten is None:
            return None
        index, shadow, positions, offsets = self._index, memory.shadow, lanes.positions(unwritten), lanes.offsets[unwritten]

        def blame(which: NDArray[np.int64]) -> None:
            used = offsets[np.isin(positions, which)]
            self._report(Defect.UNINITIALISED, block, which, memory.start + int(used[0]), index, said=wrote_others(shadow.writer))
            shadow.write(used, block.itemsize)  # each element is reported once

        return positions, blame

    def writes(self, lanes: Lanes, changes: Callable[[], NDArray[np.bool_]]) -> None:
        """Mark what is written. `changes` returns which lanes of the block are about to change memory."""
        if lanes.memory.shadow is not None:
            lanes.memory.shadow.write(lanes.offsets, lanes.block.itemsize)
            lanes.memory.shadow.writer = self._function
        if self.order is not None:
            changed = changes().ravel()
            self._log(lanes, writes=True, changed=changed if lanes.chosen is None else changed[lanes.chosen])

    def updates(self, lanes: Lanes, reads: bool = True, atomic: bool = True) -> None:
        """Check an atomic that writes, and first reads. `atomic` says whether it is one to other programs, too."""
        if reads and (found := self.reads(lanes, logged=False)):
            positions, blame = found
            blame(positions)
        if lanes.memory.shadow is not None:
            lanes.memory.shadow.write(lanes.offsets, lanes.block.itemsize)
            lanes.memory.shadow.writer = self._function
        self._log(lanes, writes=True, atomic=atomic)

    def confirms(self, lanes: Lanes, equal: Callable[[], NDArray[np.bool_]]) -> None:
        """A compare-and-swap of all lanes finds what it compares with in those that are `equal`."""
        if self.order is not None:
            self._logs[lanes.memory].confirm(self.program, lanes.offsets[equal().ravel()])

    def keys(self, lanes: Lanes) -> list[Hashable]:
        """Return what programs synchronise on with this atomic."""
        addresses, start = np.unique(lanes.offsets), lanes.memory.start
        return [start + int(offset) for offset in addresses] if len(addresses) <= _FEW_KEYS else [("all of", start)]

    def _outside(self, block: Block, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which addresses are outside of the origin's storage, or of all storages if the origin is not known."""
        if isinstance(block.origin, Given):
            return _beyond([self.tensors.of(block.origin)], addresses, block.itemsize)
        outside = _beyond(self.tensors.memories.values(), addresses, block.itemsize)
        if outside.any() and isinstance(block.origin, Anywhere):
            self.tensors.take_all_alive()
            outside = _beyond(self.tensors.memories.values(), addresses, block.itemsize)
        return outside

    def _log(self, lanes: Lanes, writes: bool, atomic: bool = False, changed: NDArray[np.bool_] | None = None) -> None:
        if self.order is not None:
            access = Access(self.program, self._index, self.order.segment, self.order.seen, lanes, writes, atomic, changed)
            self._races(self._logs[lanes.memory].add(access))

    def _races(self, conflicts: Iterator[Conflict]) -> None:
        for conflict in conflicts:
            second, lanes = conflict.second, conflict.second.lanes
            address = lanes.memory.start + int(lanes.offsets[conflict.lanes[0]])
            self._report(Defect.RACE, lanes.block, lanes.positions(conflict.lanes), address, second.index, conflict.first)

    def _report(
        self,
        defect: Defect,
        block: Block,
        positions: NDArray[np.int64],
        address: int,
        index: tuple[int, int, int] | None = None,
        other: Access | None = None,
        said: str = "",
    ) -> None:
        """Keep a defect of lanes at `positions` of the block, of which the first touched `address`; a race is with an `other` access."""
        owner = block.origin if isinstance(block.origin, Given) else nearest(self.tensors.given, address)
        code, line = block.place
        said = owner.beyond(address, block.itemsize) if owner and defect is Defect.OUT_OF_BOUNDS else said
        row = finding(
            function=self._function,
            defect=defect,
            access=block.doing,
            **at(owner, address),
            lane=int(positions[0]),
            lanes=len(positions),
            block=tuple(block.shape),
            program=index or self._index,
            file=code.co_filename,
            line=line,
            text=statement(code.co_filename, line),
            other=raced_with(other) if other else said,
        )
        self._findings.keep(row)


def _beyond(memories: Iterable[Memory], addresses: NDArray[np.uint64], itemsize: int) -> NDArray[np.bool_]:
    """Return which elements of `itemsize` bytes are in none of some storages."""
    outside = np.ones(addresses.shape, bool)
    for memory in memories:
        if memory.nbytes >= itemsize:
            outside &= (addresses - np.uint64(memory.start)) > np.uint64(memory.nbytes - itemsize)
    return outside


_RELEASING = {interpreter._ir.MEM_SEMANTIC.RELEASE, interpreter._ir.MEM_SEMANTIC.ACQUIRE_RELEASE}
_OF_PROGRAM = interpreter._ir.MEM_SYNC_SCOPE.CTA  # the scope of an atomic that is one to its own program only
_ACQUIRING = {interpreter._ir.MEM_SEMANTIC.ACQUIRE, interpreter._ir.MEM_SEMANTIC.ACQUIRE_RELEASE}
_EXCHANGE = interpreter._ir.ATOMIC_OP.XCHG


class Sanitizer:
    """Wraps the interpreter's loads, stores and atomics. `findings` is what it found since they were last taken."""

    def __init__(self) -> None:
        self.shadows = Shadows()
        self.findings = Findings()
        self._launch: Launch | None = None

    def patches(self) -> Iterator[Patch]:
        """Yield what the interpreter must do instead: owner, name, replacement."""
        builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
        yield torch.Tensor, "resize_", around(self.shadows.resized, torch.Tensor.resize_)
        yield from origin_patches(lambda: self._launch.tensors.by_address if self._launch else None)
        yield from unwritten_patches(builder)
        yield executor, "__call__", around(self._run, executor.__call__)
        yield interpreter.InterpretedFunction, "run", around(self._launched, interpreter.InterpretedFunction.run)
        yield Programs, "hand_over", around(self._hand_over, Programs.hand_over)
        yield builder, "set_grid_idx", around(self._next_program, builder.set_grid_idx)
        checks: dict[str, Callable[..., Any]] = {"masked_load": _load, "masked_store": _store, "atomic_rmw": _rmw, "atomic_cas": _cas}
        for name, check in checks.items():
            yield builder, f"create_{name}", around(functools.partial(self._if_launched, check), getattr(builder, f"create_{name}"))
        if store := getattr(builder, "create_atomic_store", None):  # since Triton 3.9
            yield builder, "create_atomic_store", around(self._atomic_store, store)

    def _run(self, call: Any, executor: Any, *args: Any, **kwargs: Any) -> Any:
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

    def _launched(self, run: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        followed = Followed()
        if self._launch is None:  # else it is called by a kernel
            with torch._C.DisableTorchFunction():
                followed = _followed(kernel, args, kwargs)
        self.findings.undefined(followed)
        return run(kernel, *args, **kwargs)

    def _hand_over(self, hand_over: Any, *programs: Any) -> None:
        order = self._launch.order if self._launch else None
        seen = order.seen if order else None
        hand_over(*programs)
        if order is not None and seen is not None:  # of the program whose turn it is again
            order.seen = seen

    def _next_program(self, set_grid_idx: Any, builder: Any, *index: int) -> None:
        set_grid_idx(builder, *index)
        if self._launch:
            self._launch.begin(builder.grid_idx, builder.grid_dim)

    def _if_launched(self, check: Callable[..., Any], plain: Any, builder: Any, *args: Any, **named: Any) -> Any:
        """Call a `check` with the launch, or the interpreter's own operation where there is none."""
        return check(self._launch, plain, builder, *args, **named) if self._launch else plain(builder, *args, **named)

    def _atomic_store(self, store: Any, builder: Any, ptrs: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
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


def _followed(kernel: Any, args: Any, kwargs: dict[str, Any]) -> Followed:
    """Return what a launch that is about to be interpreted does with undefined lanes."""
    name = kernel.fn.__name__
    try:
        text, signature = first_code(kernel, args, kwargs)
        if not text:
            return Followed()
        named = {name: value for name, value in kwargs.items() if name in signature}
        bound = inspect.signature(kernel.rewrite()).bind(*args, **named)
        bound.apply_defaults()
        grid = kwargs["grid"](bound.arguments) if callable(kwargs["grid"]) else kwargs["grid"]
        return lanes_of(text, signature, [bound.arguments[name] for name in signature], grid)
    except Exception as error:  # the interpreter takes more than the compiler
        return Followed(name, why=f"{name} could not be compiled here, so its undefined lanes are not known: {describe(error)}")


def _load(launch: Launch, load: Any, builder: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
    volatile = bool(named.get("is_volatile", rest[-1] if rest else False))  # how kernels wait for others
    late: list[Entry] = []  # the compiler removes a load whose result is never used
    lanes, mask = _checked(launch, "load", ptrs, mask, None if volatile else late)
    unwritten = None if lanes is None else launch.reads(lanes, logged=not volatile)
    result = load(builder, ptrs, mask, other, *rest, **named)
    if unwritten is not None and volatile:
        positions, blame = unwritten
        blame(positions)
    else:
        result = suspected(result, (*late, *([(*unwritten, False)] if unwritten is not None else [])))
    return _acquiring(result, launch.order, None) if volatile and launch.order else result


def _store(launch: Launch, store: Any, builder: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
    lanes, mask = _checked(launch, "store", ptrs, mask)
    if lanes is not None:
        launch.writes(lanes, lambda: _changes(ptrs.data, value.data, mask.data))
    return store(builder, ptrs, value, mask, *rest, **named)


def _rmw(launch: Launch, atomic: Any, builder: Any, operation: Any, ptrs: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    lanes, mask = _checked(launch, "atomic", ptrs, mask)
    if lanes is not None:
        launch.updates(lanes, reads=operation != _EXCHANGE, atomic=scope != _OF_PROGRAM)  # what it exchanges is seldom looked at
    return _synchronised(launch, lanes, sem, scope, atomic(builder, operation, ptrs, value, mask, sem, scope))


def _cas(launch: Launch, atomic: Any, builder: Any, ptrs: Any, compared: Any, value: Any, sem: Any, scope: Any) -> Any:
    lanes, inside = _checked(launch, "atomic", ptrs, None)
    if inside is not None:  # there is no mask to take a lane out of it, so nothing is exchanged
        return interpreter.TensorHandle(compared.data.copy(), compared.dtype)
    if lanes is not None:
        launch.confirms(lanes, lambda: ~_changes(ptrs.data, compared.data, np.ones(ptrs.data.shape, bool)))
        launch.updates(lanes, atomic=scope != _OF_PROGRAM)
    return _synchronised(launch, lanes, sem, scope, atomic(builder, ptrs, compared, value, sem, scope))


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
    keys, order = launch.keys(lanes), launch.order
    clock = order.published(keys)
    if sem in _ACQUIRING:
        order.acquire_heard(keys)
    if sem in _RELEASING:
        order.release(keys, launch.program)
    if not clock or result is None:
        return result
    return _acquiring(result, order, clock) if sem in _ACQUIRING else watched(result, lambda handle: order.hear(keys, clock))


def _acquiring(handle: Any, order: Order, clock: Clock | None) -> Any:
    """Return a handle like `handle` that acquires `clock` as soon as its data is looked at."""
    return watched(handle, lambda handle: order.acquire(clock))


def _changes(ptrs: NDArray[np.uint64], value: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which lanes are about to change the memory that they write to, bit for bit."""
    old = interpreter._interpreter.load(ptrs, mask, np.zeros(ptrs.shape, value.dtype), value.dtype)
    unsigned = np.dtype(f"u{value.dtype.itemsize}")
    changed: NDArray[np.bool_] = old.view(unsigned) != np.ascontiguousarray(value).view(unsigned)
    return changed
