"""Programs that wait for others of their launch, as in a stream-K product, behind a barrier of the grid, or with `tl.atomic_poll`.

Triton's interpreter runs one program after the other. A program that waits for a later one would wait for ever. Here, one that asks again
and again, and always gets the same answer, hands over: the next programs run, each in a thread of its own and only one at a time, until
they end or wait, too. Then those that wait ask again, in turn.

A kernel that adds floats by atomics runs its programs in another order from the second launch of a test on: rounding depends on it.

A card runs only as many programs at once as fit on it. Whether those that wait for each other do is not checked.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from triton._C.libtriton import ir
from triton.runtime.interpreter import interpreter_builder

from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.fake_gpu.promises import place_in_kernel

Index = tuple[int, int, int]
_PATIENCE = 200  # equal answers, until a program counts as waiting; far fewer once it has waited
_AGAIN = 2
_MOST_LANES = 64  # nobody waits with more
_MOST_AT_ONCE = 512  # programs that wait; each has a thread


def launching(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch whose programs take turns."""

    @functools.wraps(call)
    def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
        function, outer = executor.fn, Programs.running
        executor.fn = Programs.running = programs = Programs(function)
        try:
            return call(executor, *args, **kwargs)
        finally:
            executor.fn, Programs.running = function, outer
            programs.close()

    return launch


def asking(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation of the interpreter's builder that counts how often a program asks in vain."""

    @functools.wraps(ask)
    def run(builder: Any, *args: Any, **kwargs: Any) -> Any:
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

    return run


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, **arguments: Any) -> None:
        """Run the program whose turn it is in the grid, unless another has waited for it already."""
        if not self._called and self.launched.times > 1 and self.launched.rounds and not self.launched.waits:
            self._shuffled = _another_order(self._builder.grid_dim, self.launched.times)
        if self._shuffled:
            self._builder.set_grid_idx(*self._shuffled[self._called])
        self._arguments, index = arguments, self._builder.grid_idx
        self._called += 1
        known = self._ahead.pop(index, None)
        if known is None:
            if self._rest is not None:
                next(self._rest)
            self._main.index, self._main.patience, self._main.answer = index, _PATIENCE, None
            self._function(**arguments)
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
        """End the programs that still wait, after a failure."""
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
        self._current = following
        following.turn.release()
        program.turn.acquire()
        if self._error is not None:
            raise self._error if program is self._main else _Abandoned
        if program.index is not None:
            self._builder.set_grid_idx(*program.index)

    def _run(self, program: _Program) -> None:
        """Run a program in this thread."""
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
