"""The programs of an interpreted launch: what they promise the compiler of their numbers, and how those take turns that wait for others."""

from __future__ import annotations

import contextvars
import inspect
import itertools
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import interpreter_builder, interpreter_semantic

from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.fake_gpu.traces import Trace, place_in_kernel

# What a kernel promises the compiler of its numbers: `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy` and `tl.assume`. The
# compiler believes it, and makes one access of several. The interpreter has the numbers, and fails the test if a promise is false. It waits
# for an access that uses them: kernels promise what is false of a part of a row that is empty.

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

    def making(self, keep: Callable[..., None], handle: Any, name: str, values: Any) -> None:
        """Keep a promise, and note one that is false."""
        if name in _CHECKS and (sentence := _false(handle, name, values)):
            self.any_is_false = True
            handle.__dict__.setdefault(_BROKEN, sentence)
        keep(handle, name, values)

    def computing(self, operation: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute; the result comes from a false promise if an operand does."""
        result = operation(builder, *args, **kwargs)
        if self.any_is_false and (broken := next(filter(None, map(_broken, args)), None)) and hasattr(result, "__dict__"):
            result.__dict__.setdefault(_BROKEN, broken)
        return result

    def accessing(self, operation: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
        """Access memory, unless the address comes from a false promise."""
        if self.any_is_false:
            handles = [each for each in (*args, *kwargs.values()) if hasattr(each, "dtype")]
            masks = [each for each in handles if each.dtype.scalar == tl.int1]
            # The compiler knows of a mask `i < n` by how much `n` can be divided.
            pointers = [each for each in handles if isinstance(each.dtype.scalar, tl.pointer_type)]
            wrong = [*map(_broken, (*pointers, *masks))]
            if any(wrong) and all(mask.__dict__["data"].any() for mask in masks):
                raise AssertionError(next(filter(None, wrong)))
        return operation(builder, *args, **kwargs)


def _broken(handle: Any) -> str:
    """Return what is false about the promise that a number comes from; empty if nothing is."""
    return str(getattr(handle, "__dict__", {}).get(_BROKEN, ""))


def _false(handle: Any, name: str, values: Any) -> str:
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
    """Return which numbers are no neighbours. Indices beyond an end may become 0, stay at the last one, or begin again at 0, also several
    times (`i % n`)."""
    for group in _groups(data, values):
        jumps = np.diff(group, axis=-1) != step
        ends = np.where(jumps.any(axis=-1), jumps.argmax(axis=-1), group.shape[-1])[:, None]  # of the first run
        behind = np.arange(group.shape[-1]) > ends
        again = np.arange(group.shape[-1]) - ends - 1
        last = np.take_along_axis(group, np.minimum(ends, group.shape[-1] - 1), axis=-1)
        wrapped = again % np.maximum(last // step + 1, 1)
        fine = np.any([np.all(~behind | (group == beyond), axis=-1) for beyond in (0, again * step, wrapped * step, last)], axis=0)
        if not fine.all():
            row, at = group[~fine][0], int(ends[~fine][0, 0])
            return f"{row[at]} is followed by {row[at + 1]} in a group of {len(row)}"
    return ""


def _not_constant(data: Numbers, values: list[int], step: int) -> str:
    for group in _groups(data, values):
        wrong = group[(group != group[:, :1]).any(axis=-1)]
        if wrong.size:
            other = wrong[0][wrong[0] != wrong[0][0]][0]
            return f"{wrong[0][0]} and {other} are in one group of {len(wrong[0])}"
    return ""


def _groups(data: Numbers, values: list[int]) -> list[Numbers]:
    sizes = [min(value, length) for value, length in zip(values, data.shape, strict=True)]
    return [np.moveaxis(data, axis, -1).reshape(-1, size) for axis, size in enumerate(sizes) if size > 1 and data.shape[axis] % size == 0]


_CHECKS: dict[str, tuple[str, Callable[[Numbers, list[int], int], str]]] = {
    "tt.divisibility": ("multiple_of", _not_multiple),
    "tt.contiguity": ("max_contiguous", _not_contiguous),
    "tt.constancy": ("max_constancy", _not_constant),
}


# Programs that wait for others of their launch, as in a stream-K product, behind a barrier of the grid, or with `tl.atomic_poll`.
#
# Triton's interpreter runs one program after the other. A program that waits for a later one would wait for ever. Here, one that asks again
# and again, and always gets the same answer, hands over: the next programs run, each in a thread of its own and only one at a time, until
# they end or wait, too. Then those that wait ask again, in turn.
#
# A kernel that adds floats by atomics runs its programs in another order from the second launch of a test on: rounding depends on it.
#
# A card runs only as many programs at once as fit on it. Whether those that wait for each other do is not checked.

Index = tuple[int, int, int]
_PATIENCE = 200  # equal answers, until a program counts as waiting; far fewer once it has waited
_AGAIN = 2
_MOST_LANES = 64  # programs wait with one, or a few
_MOST_AT_ONCE = 512  # programs that wait; each has a thread


def launching(call: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch a kernel whose programs take turns."""
    function, outer = executor.fn, Programs.running
    executor.fn = Programs.running = programs = Programs(function)
    try:
        return call(executor, *args, **kwargs)
    finally:
        executor.fn, Programs.running = function, outer
        programs.close()


def asking(name: str, ask: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
    """Read memory, or change it by an atomic operation, and count how often a program asks in vain."""
    result = ask(builder, *args, **kwargs)
    programs = Programs.running
    if programs is not None and (name != "create_masked_load" or kwargs.get("is_volatile", args[-1])):
        pointers = args[1] if name == "create_atomic_rmw" else args[0]
        if name != "create_atomic_rmw":
            programs.launched.waits = True
        elif args[0] == ir.ATOMIC_OP.FADD:
            code, line = place_in_kernel()
            programs.launched.rounds.add(f"{programs.launched.name} ({Path(code.co_filename).name}:{line})")
        programs.asked(name, pointers.data, result.__dict__["data"])  # not `result.data`: the sanitizer sees who looks at a result
    return result


class _Abandoned(BaseException):
    """The launch has failed, and this program ends with it."""


class _Program:
    """A program that has begun, in a thread of its own, or the main thread. One of them runs at a time: the one that got the last turn."""

    def __init__(self, index: Index | None) -> None:
        self.index, self.turn, self.done = index, threading.Semaphore(0), False
        self.answer: Any = None
        self.times = 0
        self.patience = _PATIENCE
        self.seen = -1  # the progress of the others when it last began to wait


class Programs:
    """The programs of one launch. It takes the place of the kernel's function, and is called once for each."""

    running: ClassVar[Programs | None] = None

    def __init__(self, function: Callable[..., Any]) -> None:

        self._function, self._builder = function, interpreter_builder
        self.__signature__ = inspect.signature(function)
        self.launched = Launched.again(function.__name__)
        self._shuffled: list[Index] = []  # the order of the grid, if it is another one
        self._main = self._current = _Program(None)
        self._ahead: dict[Index, _Program] = {}  # those that began before their turn in the grid
        self._called = 0  # programs of the grid that had their turn
        self._rest: Iterator[Index] | None = None  # those that have not begun, in order
        self._waiting: deque[_Program] = deque()
        self._wanted: _Program | None = None  # what the main thread waits for, if it runs no program itself
        self._error: BaseException | None = None
        self._progress = 0
        self._arguments: dict[str, Any] = {}
        self._trace: Trace | None = None
        self._is_traced = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, **arguments: Any) -> None:
        """Run the program whose turn it is in the grid, unless another has waited for it already."""
        if not self._called and self.launched.times > 1 and self.launched.rounds and not self.launched.waits:
            self._shuffled = _another_order(self._builder.grid_dim, self.launched.times)
        if self._shuffled:
            self._builder.set_grid_idx(*self._shuffled[self._called])
        self._arguments, index = arguments, self._builder.grid_idx
        if not self._called:
            self._trace = Trace.of(self._function, math.prod(self._builder.grid_dim))
        self._called += 1
        known = self._ahead.pop(index, None)
        if known is None:
            if self._rest is not None:
                next(self._rest)
            self._main.index, self._main.patience, self._main.answer = index, _PATIENCE, None
            if self._trace is None or not self._is_traced:
                self._function(**arguments)
            else:
                self._is_traced = self._trace.run(arguments) and self._is_traced
        elif not known.done:
            self._main.index, self._wanted = None, known
            self._waiting.remove(known)
            self.hand_over(self._main, known)
            self._wanted = None

    def asked(self, what: str, pointers: Any, answer: Any) -> None:
        """Note what the current program asked for and got. If it has got the same for long, let others run."""
        program = self._current
        if pointers.size > _MOST_LANES:
            program.answer = None
            return
        told = (what, pointers.tobytes(), answer.tobytes())
        if told != program.answer:
            self._progress += program.answer is not None
            program.answer, program.times = told, 0
            return
        program.times += 1
        if program.times < program.patience:
            return
        program.times = 0
        program.patience = _AGAIN if self._progress != program.seen else 2 * program.patience  # a loop that only looks like waiting ends
        program.seen = self._progress
        following = self._following(program)
        if following is not None:
            self.launched.waits = True
            self._waiting.append(program)
            self.hand_over(program, following)

    def close(self) -> None:
        """End the programs that still wait, after a failure, and let go of the trace."""
        if self._trace is not None:
            self._trace.close()
        self._error = self._error or _Abandoned()
        for program in [*self._waiting]:
            program.turn.release()

    def _following(self, program: _Program | None) -> _Program | None:
        """Return who runs next: a program that has not begun, else who has waited longest."""
        if len(self._waiting) < _MOST_AT_ONCE:
            self._rest = self._rest or itertools.islice(self._shuffled or _grid(self._builder.grid_dim), self._called, None)
            index = next(self._rest, None)
            if index is not None:
                self._ahead[index] = begun = _Program(index)
                self._progress += 1
                run = contextvars.copy_context().run  # with NumPy's settings of this launch
                threading.Thread(target=run, args=(self._run, begun), daemon=True).start()
                return begun
        return self._waiting.popleft() if self._waiting else None

    def hand_over(self, program: _Program, following: _Program) -> None:
        """Let another run, and return when it is this one's turn again."""
        self._current, self._is_traced = following, False
        builder, place = interpreter_semantic.builder, Trace.place
        interpreter_semantic.builder, Trace.place = self._builder, None
        following.turn.release()
        program.turn.acquire()
        interpreter_semantic.builder, Trace.place = builder, place
        if self._error is not None:
            raise self._error if program is self._main else _Abandoned
        if program.index is not None:
            self._builder.set_grid_idx(*program.index)

    def _run(self, program: _Program) -> None:
        program.turn.acquire()
        try:
            assert program.index is not None
            self._builder.set_grid_idx(*program.index)
            self._function(**self._arguments)
        except _Abandoned:
            return
        except BaseException as error:
            self._error = error
        program.done = True
        self._progress += 1
        self._current = self._main if self._error or program is self._wanted else self._following(None) or self._main
        if self._current is self._main and self._main in self._waiting:
            self._waiting.remove(self._main)
        self._current.turn.release()


def _grid(size: Index) -> Iterator[Index]:
    return ((x, y, z) for x in range(size[0]) for y in range(size[1]) for z in range(size[2]))


def _another_order(size: Index, times: int) -> list[Index]:
    """Return the grid backwards for the second launch, since chance may leave three programs as they were, and shuffled for later ones."""
    order = [*_grid(size)][::-1]
    if times > 2:
        random.Random(times).shuffle(order)  # noqa: S311
    return order
