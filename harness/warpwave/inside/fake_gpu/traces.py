"""Traces of interpreted programs: what one program of a launch computes is computed again for the others, without Triton's language.

For each operation of a kernel, Triton's language looks at types and shapes, and then the interpreter's builder computes. The first part
takes longer than the second one, and is the same for all programs of a launch. So the first program is traced: which functions of the
builder it calls, and with whose results. The others replay the trace. They call the same functions in the same order, so results, findings
and errors are the same to the last bit. What depends on no program, such as `tl.arange`, is computed once.

Where a kernel decides by a number (`if`, the bounds of a loop), the trace branches. A program that takes a new branch calls the kernel,
which gets the results that are there already up to that point, and is traced from there on.

A number that the trace cannot follow, or that is printed, ends it, and the other programs are interpreted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle, interpreter_builder, interpreter_semantic

from warpwave.inside.fake_gpu.device_library import Calls

_NOT_KERNELS = (f"{Path(triton.__file__).parent}/", f"{Path(__file__).parents[1]}/")  # what stands between a kernel and the interpreter
Place = tuple[CodeType, int]  # of a kernel, and the line


def place_in_kernel() -> Place:
    """Return the code and line of the kernel that has called what called this, or that the trace has it from."""
    if Trace.place is not None:
        return Trace.place
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_KERNELS):
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


_MARK = "_warpwave_traced"  # of a handle: the place of its value among those of its program
_SAME = -1  # for a value that is the same in all programs
_HANDLES = tuple(filter(None, (getattr(interpreter, name, None) for name in ("TensorHandle", "TensorDescHandle", "BlockPointerHandle"))))
# What is not a function of its operands alone, or looks at the place in the kernel.
_EFFECTS = (
    "load",
    "store",
    "atomic",
    "descriptor",
    "block_ptr",
    "pointer",
    "program_id",
    "inline_asm",
    "assert",
    "assume",
    "print",
    "barrier",
)
_MOST_BYTES = 256 << 20  # of values that are the same in all programs, or that a new branch may need
_FEWEST_PROGRAMS = 3  # to trace one takes a little longer than to interpret it
_FEW_BRANCHES = 4  # more are worth it only if most programs find their branch


@dataclass(slots=True)
class _Step:
    """One call of a function of the builder, or of what does its work (`tl.sum`)."""

    function: Callable[..., Any]
    args: list[Any]
    named: dict[str, Any]
    holes: list[tuple[int, int]] = field(default_factory=list)  # an argument, and the place of its value
    inner: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)  # a list among the arguments, and its holes
    where: Place | None = None
    is_same: bool = False
    result: Any = None  # if it is the same
    parts: int = 0
    last_used: tuple[int, ...] = ()  # places of values that no later step of the last branch needs

    def run(self, values: list[Any]) -> None:
        """Compute, and append the result and its parts to the values."""
        args = self.args.copy()
        for position, place in self.holes:
            args[position] = values[place]
        for position, holes in self.inner:
            args[position] = filled = list(args[position])
            for inner, place in holes:
                filled[inner] = values[place]
        if self.where is not None:
            Trace.place = self.where
        result = self.function(*args, **self.named)
        values.append(result)
        if self.parts:
            values += _parts(result)
        for place in self.last_used:
            values[place] = None


class _Branch:
    """Steps without a decision. At their end the kernel `asks` for a number, or ends."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.varying: list[_Step] = []
        self.asks: Callable[[list[Any]], Any] | None = None
        self.following: dict[Any, _Branch] = {}


def _parts(result: Any) -> list[Any]:
    """Return the handles of a result that is no handle itself."""
    several = result if isinstance(result, tuple) else getattr(result, "handles", (result,))
    return [each.handle if isinstance(each, tl.tensor) else each for each in several]


class Trace:
    """The trace of a launch."""

    current: ClassVar[Trace | None] = None
    place: ClassVar[Place | None] = None  # in the kernel, of the step that is replayed
    _given_up: ClassVar[set[Any]] = set()  # functions

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._language = _Language(self)
        self._root: _Branch | None = None
        self._branch = _Branch()
        self._served = deque[Any]()
        self._values = self._bytes = self._bytes_same = self.branches = self.replayed = 0
        self._is_followed = True

    @classmethod
    def of(cls, function: Callable[..., Any], programs: int) -> Trace | None:
        """Return the trace for a launch, if it is worth one. A debugger would see one program only."""
        is_worth = programs >= _FEWEST_PROGRAMS and function not in cls._given_up and sys.gettrace() is None
        return cls(function) if is_worth else None

    def run(self, arguments: dict[str, Any]) -> bool:
        """Run a program. Return whether the next one may be run so, too."""
        try:
            if self._root is None:
                self._root = _Branch()
                _mark_all(arguments)
                self._trace(arguments, deque())
            elif (served := self._replay(arguments)) is not None:
                self._trace(arguments, served)
        finally:
            Trace.place = None
        if not self._is_followed or (self.branches > _FEW_BRANCHES and self.branches > self.replayed):
            self._given_up.add(self._function)
            return False
        return True

    def _replay(self, arguments: dict[str, Any]) -> deque[Any] | None:
        """Replay a program. Return the results so far if it takes a new branch."""
        values: list[Any] = []
        branch, path = self._root, list[tuple[_Branch, Any]]()
        while branch is not None:
            try:
                for step in branch.varying:
                    step.run(values)
                answer = branch.asks(values) if branch.asks else None
            except Exception:
                Trace.place = None
                self._function(**arguments)  # it raises the same in the kernel itself, whose lines belong to the error
                raise
            if branch.asks is None:
                self.replayed += 1
                return None
            path.append((branch, answer))
            branch = branch.following.get(answer)
        for place, value in enumerate(values):
            if isinstance(value, _HANDLES):
                value.__dict__[_MARK] = place
        served, place = deque[Any](), 0
        for passed, answer in path:
            for step in passed.steps:
                served.append(step.result if step.is_same else values[place])
                place += 0 if step.is_same else 1 + step.parts
            served.append(answer)
        self._branch = path[-1][0].following.setdefault(path[-1][1], _Branch())
        self._values = place
        return served

    def _trace(self, arguments: dict[str, Any], served: deque[Any]) -> None:
        """Call the kernel, which gets what is `served` first, and trace what it does then."""
        if not served:
            assert self._root is not None
            self._branch, self._values = self._root, 0
        self._served, self._bytes = served, 0
        self.branches += 1
        outer, Trace.current, Trace.place = Trace.current, self, None
        interpreter_semantic.builder = self._language
        try:
            self._function(**arguments)
            self._free()
        finally:
            interpreter_semantic.builder, Trace.current = interpreter_builder, outer

    def _free(self) -> None:
        """Note where values are used for the last time: there is no further branch that could need them."""
        seen = set[int]()
        for step in reversed(self._branch.varying):
            used = {place for _, place in step.holes} | {place for _, holes in step.inner for _, place in holes}
            step.last_used = tuple(used - seen)
            seen |= used

    def stop(self) -> None:
        """Follow no further."""
        self._is_followed = False
        interpreter_semantic.builder = interpreter_builder

    def close(self) -> None:
        """Let go of the launch: its memory is free as soon as nothing else holds it, as on a card."""
        self._root, self._branch = None, _Branch()
        vars(self._language).clear()

    @property
    def is_in_kernel(self) -> bool:
        """Whether a kernel's own code runs, and not a function of the builder that uses the language itself."""
        return interpreter_semantic.builder is self._language

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], is_pure: bool) -> Any:
        """Call a function, and note it as the next step."""
        if self._served:
            return self._served.popleft()
        place = None if is_pure else place_in_kernel()
        interpreter_semantic.builder = interpreter_builder
        result = function(*args, **named)
        if self._is_followed:
            interpreter_semantic.builder = self._language
            self._note(_Step(function, [*args], named, where=place), result, is_pure)
        return result

    def _note(self, step: _Step, result: Any, is_pure: bool) -> None:
        for position, arg in enumerate(step.args):
            if isinstance(arg, (list, tuple)):
                step.inner.append((position, [(at, each.__dict__.get(_MARK)) for at, each in enumerate(arg) if isinstance(each, _HANDLES)]))
            elif isinstance(arg, _HANDLES):
                step.holes.append((position, arg.__dict__.get(_MARK)))
        found = [place for _, place in step.holes] + [place for _, holes in step.inner for _, place in holes]
        if None in found or any(isinstance(each, _HANDLES) for each in step.named.values()):
            return self.stop()  # the handle comes from elsewhere
        step.holes = [hole for hole in step.holes if hole[1] != _SAME]
        step.inner = [(at, kept) for at, holes in step.inner if (kept := [hole for hole in holes if hole[1] != _SAME])]
        parts = [] if result is None or isinstance(result, _HANDLES) else _parts(result)
        if not all(isinstance(each, _HANDLES) for each in parts):
            return self.stop()
        handles = parts or ([] if result is None else [result])
        size = sum(each.__dict__["data"].nbytes for each in handles if "data" in each.__dict__)
        step.is_same = is_pure and not step.holes and not step.inner and self._bytes_same + size < _MOST_BYTES
        self._branch.steps.append(step)
        if step.is_same:
            self._bytes_same += size
            step.result = result
        else:
            self._bytes += size
            self._branch.varying.append(step)
            step.parts = len(parts)
            self._values += 1
        for number, handle in enumerate(parts):
            handle.__dict__[_MARK] = _SAME if step.is_same else self._values + number
        if isinstance(result, _HANDLES):
            result.__dict__[_MARK] = _SAME if step.is_same else self._values - 1
        if not step.is_same:
            self._values += len(parts)
        return None

    def ask(self, read: Callable[[Any], Any], tensor: Any) -> Any:
        """Return the number that a kernel decides by."""
        mark = tensor.handle.__dict__.get(_MARK)
        if mark == _SAME:
            return read(tensor)
        if self._served:
            return self._served.popleft()
        answer = read(tensor)
        if mark is None or self._bytes > _MOST_BYTES:
            self.stop()
        if self._is_followed:
            kind = tensor.type
            self._branch.asks = lambda values: read(tl.tensor(values[mark], kind))
            following = _Branch()
            self._branch.following[answer] = following
            self._branch = following
        return answer


def _mark_all(value: Any) -> None:
    """Mark the handles of a launch's arguments: they are the same in all programs."""
    if isinstance(value, _HANDLES):
        value.__dict__[_MARK] = _SAME
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, (tl.core.base_value, *_HANDLES)):
        value = [each for each in vars(value).values() if not isinstance(each, tl.dtype)]
    elif not isinstance(value, (list, tuple)):
        return
    for each in value:
        _mark_all(each)


class _Language:
    """What Triton's language calls instead of the interpreter's builder while a kernel is traced."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        member = getattr(interpreter_builder, name)
        call: Any = member
        if name.startswith("create_"):
            is_pure = not any(word in name for word in _EFFECTS)

            def call(*args: Any, **named: Any) -> Any:
                function = Calls.again(member) if name == "create_extern_elementwise" else member
                return self._trace.call(function, args, named, is_pure)

        elif name.startswith("get_"):

            def call(*args: Any) -> Any:
                made = member(*args)
                if isinstance(made, TensorHandle):
                    made.__dict__[_MARK] = _SAME
                return made

        else:
            return member
        self.__dict__[name] = call
        return call


def shared(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what makes the semantics of the language for a builder: there is one for the interpreter's, which a trace watches."""
    return lambda builder: interpreter_semantic if builder is interpreter_builder else plain(builder)


def passing(operation: Callable[..., Any], builder: Any, *args: Any, **named: Any) -> Any:
    """Compute. The trace ends if a kernel has come here without it: what is replayed would lack this operation."""
    if Trace.current is not None and Trace.current.is_in_kernel:
        Trace.current.stop()
    return operation(builder, *args, **named)


# What a kernel calls that is not in the builder.


def tensors(function: Callable[..., Any], several: Iterable[Any]) -> Any:
    """Call a function of tensors that returns tensors, as a step."""
    trace, several = Trace.current, tuple(several)
    if trace is None or not trace.is_in_kernel:
        return function(*several)
    kinds = [each.type for each in several]
    return trace.call(lambda *handles: function(*map(tl.tensor, handles, kinds)), tuple(each.handle for each in several), {}, is_pure=True)


def reducing(apply: Callable[..., Any], ops: Any, values: Any) -> Any:
    """Reduce or scan."""
    if not isinstance(values, tuple):
        return reducing(apply, ops, (values,))[0]
    return tensors(lambda *several: apply(ops, several), values)


def marking(set_attr: Callable[..., None], handle: Any, name: str, values: Any) -> None:
    """Mark a number, as `tl.multiple_of` does."""
    trace = Trace.current
    if trace is None or not trace.is_in_kernel:
        set_attr(handle, name, values)
    else:
        trace.call(lambda handle: set_attr(handle, name, values), (handle,), {}, is_pure=False)


def deciding(patch: Callable[..., None], tensor: Any, scope: Any) -> None:
    """Let the trace know where a kernel decides by a number, transposes, or prints."""
    patch(tensor, scope)
    before = vars(tensor)

    def asked(read: Callable[[Any], Any], value: Any) -> Any:
        trace = Trace.current
        is_number = value.handle.__dict__["data"].size == 1  # a block of more is true to the interpreter
        return trace.ask(read, value) if trace is not None and is_number and trace.is_in_kernel else read(value)

    def shown(show: Callable[[Any], str], value: Any) -> str:
        if Trace.current is not None and Trace.current.is_in_kernel:
            Trace.current.stop()
        return show(value)

    def bound(watch: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda value: watch(plain, value)

    for watch, names in ((asked, ("__bool__", "__index__")), (shown, ("__repr__", "__str__"))):
        for name in names:
            scope.set_attr(tensor, name, bound(watch, before[name]))
    transposed = before["T"].fget
    scope.set_attr(tensor, "T", property(lambda value: tensors(transposed, (value,))))
