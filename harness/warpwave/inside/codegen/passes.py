"""Where a compiled kernel first computes something else: its code after each pass, executed as far as it is Triton's own (TTIR, TTGIR).

Triton runs the passes of a stage together. Here those of `make_ttir` and `make_ttgir` run one by one, and the code after each is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from warpwave.inside.codegen.ttir import VALUE, Operation
from warpwave.inside.codegen.undefined import Launch, NotFollowedError, Value, element_of, pointee, values_of

FRONT_END = "front_end"
Storage = tuple[int, int]  # address and size in bytes
Memory: TypeAlias = "dict[Storage, NDArray[np.uint8]]"


class After(NamedTuple):
    """The code behind a pass, `make_ttir/canonicalizer`, or behind the front end."""

    name: str
    code: str

    @property
    def digest(self) -> str:
        """Short, and the same for code that differs in its places in the source and the names of its values alone."""
        plain = re.sub(r"^#loc.*\n|\s*loc\((?:[^()]|\([^()]*\))*\)", "", self.code, flags=re.MULTILINE)
        values: dict[str, str] = {}  # a release names them after variables, and another one numbers them
        plain = re.sub(r"%[\w.$-]+", lambda value: values.setdefault(value[0], f"%{len(values)}"), plain)
        return hashlib.sha256(plain.strip().encode()).hexdigest()[:6]


@contextlib.contextmanager
def one_by_one(note: Callable[[After], None]) -> Iterator[None]:
    """Have Triton's backends run passes one by one within, and call `note` with the code after each."""
    from triton.backends import backends

    def made(real: Callable[[Any], Any]) -> Callable[[Any], _Manager]:
        return lambda context: _Manager(real, context, note)

    with contextlib.ExitStack() as undo:
        for backend in backends.values():
            names = vars(__import__(backend.compiler.__module__, fromlist=["ir"]))
            for name, module in [(name, each) for name, each in names.items() if _is_of_triton(each)]:
                undo.callback(names.__setitem__, name, module)
                names[name] = _Module(module, {"pass_manager": made(module.pass_manager)} if name == "ir" else {})
        yield


def _is_of_triton(value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__.startswith("triton._C.libtriton")


class _Module:
    """A module of Triton's compiler in which what adds a pass also takes a `_Manager`."""

    def __init__(self, module: Any, others: Mapping[str, Any]) -> None:
        self._module, self._others = module, others

    def __getattr__(self, name: str) -> Any:
        found = self._others.get(name) or getattr(self._module, name)
        if isinstance(found, types.ModuleType):
            return _Module(found, {})
        return self._adding(name, found) if callable(found) and not isinstance(found, type) else found

    def _adding(self, name: str, add: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if not args or not isinstance(args[0], _Manager):
                return add(*args, **options)
            manager, *rest = args
            manager.passes.append((name.removeprefix("add_"), lambda real: add(real, *rest, **options)))
            return None

        return call


class _Manager:
    """Stands for a pass manager: `run` runs each pass with a manager of its own."""

    def __init__(self, make: Callable[[Any], Any], context: Any, note: Callable[[After], None]) -> None:
        self._make, self._context, self._note = make, context, note
        self.passes: list[tuple[str, Callable[[Any], Any]]] = []

    def enable_debug(self) -> bool:
        """Return that nothing is printed."""
        return False

    def run(self, module: Any, stage: str = "") -> None:
        """Run what was added."""
        if not stage.startswith(("make_ttir", "make_ttgir")):
            self._run([add for _, add in self.passes], module, stage)
            self._note(After(stage, str(module)))
            return
        if stage == "make_ttir":
            self._note(After(FRONT_END, str(module)))
        for name, add in self.passes:
            self._run([add], module, stage)
            self._note(After(f"{stage}/{name}", str(module)))

    def _run(self, adds: Sequence[Callable[[Any], Any]], module: Any, stage: str) -> None:
        real = self._make(self._context)
        for add in adds:
            add(real)
        real.run(module, stage)


def changes(codes: Sequence[After]) -> str:
    """Return name and digest of each step that left other code than the one before. All steps would be too long for a test's property."""
    steps = [(each.name, each.digest) for at, each in enumerate(codes) if not at or each.name != FRONT_END]
    return " ".join(f"{name}:{digest}" for (name, digest), (_, before) in zip(steps, [("", ""), *steps], strict=False) if digest != before)


_MOST = 300_000  # operations of a launch
_MOST_S = 30.0  # of all its codes: the test itself has a limit
# What moves no data.
_ORDERS = re.compile(r"async_(commit_group|wait)|local_dealloc|(local_|cond_)?barrier|instruction_sched|memory_counter_wait")
_ELEMENT = re.compile(r"x(bf16|f\d\w*|i\d+)\b")
_LAYOUT = re.compile(r"(tensor<(?:\d+x)*(?:!tt\.ptr<[^<>]*>|\w+)), #(?:[^<>]|<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)*>")
_SHARED = re.compile(r"!ttg\.memdesc<((?:\d+x)*\w+)(?:[^<>]|<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)*>")

# What Triton's code computes. As in `undefined.py`, but what a program stores is there when it or a later one loads it. Which lane has
# which element, and when a copy arrives, is left out: a tensor is whole, and shared memory is an array, of which parts are views.


class _Computed(Launch):
    def __init__(self, code: str, memory: Memory, grid: Sequence[int]) -> None:
        super().__init__(_SHARED.sub(r"tensor<\1>", _LAYOUT.sub(r"\1>", code)), list(memory), grid)
        self.contents = {storage: data.copy() for storage, data in memory.items()}

    def place(self, address: NDArray[Any], on: NDArray[Any], size: int) -> tuple[Storage, NDArray[np.int64]]:
        low, high = int(address[on].min()), int(address[on].max()) + size
        for storage in self.contents:
            if storage[0] <= low and high <= sum(storage):
                return storage, np.where(on, address - storage[0], 0)[..., None] + np.arange(size)
        raise NotFollowedError("accesses memory outside of its tensors")

    def read(self, address: NDArray[Any], on: NDArray[Any], kind: str) -> Union[NDArray[Any], None]:
        if not on.any():
            return super().read(address, on, kind)
        element, dtype, size = element_of(kind)
        if size != dtype.itemsize and element != "bf16":
            raise NotFollowedError(f"loads {element}")
        storage, at = self.place(address, on, size)
        found = np.ascontiguousarray(self.contents[storage][at]).view(f"u{size}")[..., 0]
        return (found.astype("u4") << 16).view("f4") if element == "bf16" else found.view(dtype)

    def elementwise(self, operation: Operation, given: Sequence[Value]) -> list[Value]:
        found = super().elementwise(operation, given)
        is_bf16 = element_of(operation.types[0])[0] == "bf16"
        return [each._replace(data=_rounded(each.data)) for each in found] if is_bf16 else found

    def tt_store(self, operation: Operation, pointer: Value, value: Value, *rest: Value) -> list[Value]:
        mask = rest[0] if rest else Value(np.ones(pointer.data.shape, bool))
        if not (pointer.known and value.known and mask.known and self.known):
            raise NotFollowedError("stores what only an operation without a rule computes")
        if mask.data.any():
            element, dtype, size = element_of(pointee(operation.types[0]))
            if size != dtype.itemsize and element != "bf16":
                raise NotFollowedError(f"stores {element}")
            storage, at = self.place(pointer.data, mask.data, size)
            data = np.broadcast_to(value.data, pointer.data.shape).astype(dtype)
            if element == "bf16":
                data = (_rounded(data).view("u4") >> 16).astype("u2")
            raw = np.ascontiguousarray(data).view("u1").reshape(*data.shape, size)
            self.contents[storage][at[mask.data]] = raw[mask.data]
        return []

    def atomic(self, operation: Operation, pointer: Value, *values: Value) -> Value:
        raise NotFollowedError(f"has {operation.name}")

    # What only TTGIR has.

    def operation(self, operation: Operation) -> None:
        """Refuse what moves data in a way that is not known here. An older release has `amdgpu.` in place of `amdg.`."""
        dialect, _, name = operation.name.partition(".")
        if dialect in ("ttg", "amdg", "amdgpu", "ttng"):
            operation = replace(operation, name=f"gpu.{name}")
            if not (hasattr(self, f"gpu_{name}") or _ORDERS.match(name)):
                raise NotFollowedError(f"has {dialect}.{name}")
        super().operation(operation)

    def gpu_convert_layout(self, operation: Operation, value: Value) -> Value:
        return value

    gpu_in_thread_transpose = gpu_convert_layout

    def loaded(self, text: str, element: str, pointer: Value) -> Value:
        """Return what is at pointers, and zero where the mask is off and no other value is named: the unit for buffers gives that."""
        given = [self.values[name] for name in VALUE.findall(text)]
        mask = given[0] if given else Value(np.ones(pointer.data.shape, bool))
        other = given[1] if len(given) > 1 else Value(np.zeros(pointer.data.shape, element_of(element)[1]))
        pointers = Operation("tt.load", [], "", [f"tensor<1x!tt.ptr<{element}>>"], "")
        return self.tt_load(pointers, pointer, mask, other)

    def lanes(self, base: Value, offset: Value, element: str) -> Value:
        """Return pointers: a base, and for each lane how many elements further."""
        return Value(base.data + offset.data.astype("i8") * element_of(element)[2], {}, base.known and offset.known)

    def gpu_buffer_load(self, operation: Operation, base: Value, offset: Value, *rest: Value) -> Value:
        element = element_of(operation.types[0])[0]
        masks = operation.text.partition(" stride")[0].partition("]")[2]
        return self.loaded(masks, element, self.lanes(base, offset, element))

    def gpu_buffer_store(self, operation: Operation, value: Value, base: Value, offset: Value, *rest: Value) -> list[Value]:
        element = element_of(operation.types[0])[0]
        mask = self.given(VALUE.findall(operation.text.partition(" stride")[0].partition("]")[2]))
        pointers = replace(operation, types=[f"tensor<1x!tt.ptr<{element}>>"])
        return self.tt_store(pointers, self.lanes(base, offset, element), value, *mask)

    def gpu_async_copy_global_to_local(self, operation: Operation, pointer: Value, memory: Value, *rest: Value) -> Value:
        element = _ELEMENT.findall(",".join(operation.types))[-1]
        memory.data[...] = self.loaded(operation.text.partition(" mask ")[2], element, pointer).data
        return Value(np.zeros(()))  # a token

    def gpu_buffer_load_to_local(self, operation: Operation, base: Value, offset: Value, *rest: Value) -> Value:
        text, _, into = operation.text.partition(" into ")
        (memory,) = self.given(VALUE.findall(into))
        element = _ELEMENT.findall(",".join(operation.types))[-1]
        masks = text.partition(" stride")[0].partition("]")[2]
        memory.data[...] = self.loaded(masks, element, self.lanes(base, offset, element)).data
        return Value(np.zeros(()))

    def gpu_local_alloc(self, operation: Operation, *given: Value) -> Value:
        return given[0]._replace(data=given[0].data.copy()) if given else self.guess(operation.types[0])._replace(known=True)

    def gpu_memdesc_index(self, operation: Operation, memory: Value, index: Value) -> Value:
        return memory._replace(data=memory.data[int(index.data)])

    def gpu_memdesc_trans(self, operation: Operation, memory: Value) -> Value:
        return memory._replace(data=memory.data.T) if memory.data.ndim == 2 else self.guess(operation.types[0])

    def gpu_local_load(self, operation: Operation, memory: Value, *token: Value) -> Value:
        return memory._replace(data=memory.data.copy())

    def gpu_local_store(self, operation: Operation, value: Value, memory: Value) -> list[Value]:
        if not value.known:
            raise NotFollowedError("keeps in shared memory what only an operation without a rule computes")
        memory.data[...] = value.data
        return []


def _rounded(data: NDArray[Any]) -> NDArray[Any]:
    """Round float32 to the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(data).view("u4")
    return np.asarray(np.where(np.isnan(data), bits, (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000)).astype("u4").view("f4")


def computed(code: str, arguments: Sequence[Any], grid: Sequence[int], memory: Memory) -> Memory:
    """Return what is in memory after a launch of Triton's code. `arguments` are numbers and addresses.

    Raises:
        NotFollowedError: an operation has no rule, or the launch is too large.
    """
    launch = _Computed(code, memory, grid)
    given = values_of(launch, arguments)
    with np.errstate(all="ignore"):
        for z, y, x in np.ndindex(*(*reversed([*grid, 1, 1][:3]),)):
            try:
                launch.run((x, y, z), given)
            except (IndexError, TypeError, ValueError) as error:  # an operation that this release writes in another way
                raise NotFollowedError(f"is not understood: {error}") from error
            if launch.cost > _MOST:
                raise NotFollowedError("takes too long to execute")
    return launch.contents


def snapshot(storages: Sequence[Storage]) -> Memory:
    """Return copies of memory."""
    return {each: np.ctypeslib.as_array((ctypes.c_uint8 * each[1]).from_address(each[0])).copy() for each in storages}


def first_other(
    codes: Sequence[After], arguments: Sequence[Any], grid: Sequence[int], before: Memory, end: Memory, types: Mapping[Storage, str]
) -> str:
    """Return after which step a launch leaves something else in memory than what the front end made of it; in words.

    `end` is what the machine code left. `types` are the dtypes of storages, for numpy.
    """
    try:
        first = computed(codes[0].code, arguments, grid, before)
    except NotFollowedError as error:
        return f"not executed: its first code {error}"
    until = time.monotonic() + _MOST_S
    passes = [each for each in codes[1:] if each.name.startswith(("make_ttir/", "make_ttgir"))]
    last, before_it, executed, why = first, codes[0].digest, len(passes), ""
    for number, each in enumerate(passes, 1):
        if each.digest == before_it:
            continue
        try:
            if time.monotonic() > until:
                raise NotFollowedError(f"was not reached within {_MOST_S:g} s")
            last, before_it = computed(each.code, arguments, grid, before), each.digest
        except NotFollowedError as error:
            executed, why = number - 1, f" ({each.name} was not executed: its code {error})"
            break
        if _differ(first, last, types):
            return f"{each.name} is the first pass after which it computes something else (pass {number} of {len(passes)})"
    which = f"all {len(passes)}" if executed == len(passes) else f"the first {executed} of {len(passes)}"
    if _differ(last, end, types):
        return f"{which} passes of make_ttir and make_ttgir change nothing; what comes behind them, to the machine code, does{why}"
    rounded = "" if all(np.array_equal(data, end[storage]) for storage, data in last.items()) else ", but for rounding"
    return f"the front end, {which} passes of make_ttir and make_ttgir and the machine code compute the same{rounded}{why}"


def _differ(one: Memory, other: Memory, types: Mapping[Storage, str]) -> bool:
    for storage, data in one.items():
        if np.array_equal(data, other[storage]):
            continue
        kind = types.get(storage, "u1")
        mine, theirs = (_numbers(each[storage], kind) for each in (one, other))
        loose = 0.02 if kind in ("f2", "bf16") else 1e-3 if kind in ("f4", "f8") else 0.0
        largest = float(np.nanmax(np.abs(mine[np.isfinite(mine)]), initial=0.0))
        if not np.allclose(mine, theirs, rtol=loose, atol=loose * largest / 10, equal_nan=True):
            return True
    return False


def _numbers(data: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    if kind == "bf16":
        return np.asarray((data[: data.size // 2 * 2].view("u2").astype("u4") << 16).view("f4"), "f8")
    size = np.dtype(kind).itemsize
    return np.asarray(data[: data.size // size * size].view(kind), "f8")
