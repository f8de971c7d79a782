"""What a launch was given: its tensors by name, and the storages that they are views of.

A kernel may touch the whole storage of a tensor that it was given. Views are how kernels get slices of one buffer, so an access beyond a
view, but in its storage, may be meant. An access beyond the storage never is.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef
from triton.runtime import interpreter

from warpwave.inside.fake_gpu.emulated_findings import Given
from warpwave.inside.fake_gpu.host_side import named_in, storage_of, tensors_in
from warpwave.inside.fake_gpu.torch_device import Patch, around
from warpwave.inside.fake_gpu.traces import Place
from warpwave.records import Finding

# Which bytes of memory from `torch.empty` and its kind were written. All other memory counts as written.
#
# torch's own calls are watched. Those that fill or copy write what they fill, and others what they are given as `out`. What another may
# write counts as written as a whole, and so does what leaves torch's sight (`data_ptr`, `numpy`). What torch reads is in `torch_reads.py`.


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_MAKERS = frozenset(("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"))
# Calls that write to none of their arguments, and keep no address of them.
_HARMLESS = _MAKERS | names("""
__get__ __getitem__ __len__ __repr__ __format__ __hash__ size stride dim ndimension numel nelement element_size storage_offset
is_contiguous get_device is_floating_point is_complex is_pinned view view_as reshape reshape_as flatten unflatten transpose t permute
movedim squeeze unsqueeze expand expand_as narrow select split chunk unbind tensor_split as_strided swapaxes detach requires_grad_
contiguous to cpu clone float half bfloat16 double zeros_like ones_like full_like rand_like randn_like new_zeros new_ones new_full
record_stream is_same_size dtype split_with_sizes diagonal unfold mT mH adjoint moveaxis swapdims is_signed is_conj is_neg is_shared
backward grad retain_grad register_hook
""")
_FILLERS = frozenset(("zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "arange_", "eye_"))
_MOST_BYTES = 1 << 30  # a larger storage is not tracked: its shadow would not fit beside it
_MOST_POISONED = 64 << 20  # bytes; to fill more would take noticeable time and memory
_PATTERN = 0x5A  # in each byte of a whole number


@dataclass(eq=False)
class Later:
    """A finding that is reported when the test ends, if it is still `wanted`."""

    finding: Finding
    wanted: bool = True


class Shadow:
    """One mark per element of a storage: was it written? `unit` is the size of an element in bytes.

    `later` is what is reported if these numbers are used: torch computed them from memory that was never written. `writer` is the last
    kernel that wrote elements.
    """

    def __init__(self, nbytes: int, unit: int) -> None:
        self.nbytes, self.unit = nbytes, unit
        self.marks: NDArray[np.bool_] = np.zeros(-(-nbytes // unit), dtype=bool)
        self.later: Later | None = None
        self.writer = ""

    def unwritten(self, offsets: NDArray[np.uint64], low: int, high: int, itemsize: int) -> NDArray[np.bool_] | None:
        """Return which of these elements, of `itemsize` bytes at `offsets`, were never written; None if all were."""
        if self.marks[low // self.unit : (high + itemsize - 1) // self.unit + 1].all():
            return None
        found = ~self.marks[offsets // self.unit]
        for part in range(self.unit, itemsize, self.unit):
            found |= ~self.marks[(offsets + part) // self.unit]
        return found if found.any() else None

    def divide(self, itemsize: int) -> bool:
        """Have a mark for each `itemsize` bytes, as a view of smaller elements needs. Return False if that takes too much memory."""
        if itemsize < self.unit and self.nbytes <= _MOST_POISONED:
            self.marks, self.unit = self.marks.repeat(self.unit // itemsize), itemsize
        return self.unit <= itemsize

    def write(self, offsets: NDArray[np.uint64], itemsize: int) -> None:
        """Mark elements as written. If `divide` refuses, a smaller one counts as all of its unit."""
        self.divide(itemsize)
        for part in range(0, itemsize, self.unit):
            self.marks[(offsets + part) // self.unit] = True


def wrote_others(writer: str) -> str:
    """Return `k wrote other elements of it`."""
    return f"{writer} wrote other elements of it" if writer else ""


class Shadows:
    """The shadow of each storage that is not known to be written."""

    def __init__(self) -> None:
        self._shadows: dict[int, tuple[StorageWeakRef, Shadow]] = {}

    def of(self, storage: torch.UntypedStorage) -> Shadow | None:
        """Return the shadow of a storage; None if it counts as written. A storage that was resized does."""
        _, shadow = self._shadows.get(storage._cdata, (None, None))
        return shadow if shadow is None or shadow.nbytes == storage.nbytes() else None

    def _of_tensor(self, tensor: torch.Tensor) -> Shadow | None:
        storage = storage_of(tensor)
        return self.of(storage) if storage is not None else None

    def __bool__(self) -> bool:
        return bool(self._shadows)

    def written(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return which elements of a tensor were written; None if all count as such."""
        parts = self._marks(tensor)
        return torch.stack(parts).all(0) if parts else None

    def _marks(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the marks of a tensor's elements, as views of all marks: of each element the first one, then the second, and so on.

        Other tensors of this storage may have smaller elements. None are returned if all count as written.
        """
        shadow = self._of_tensor(tensor)
        if shadow is None or not shadow.divide(tensor.element_size()):
            return []
        several, marks = tensor.element_size() // shadow.unit, torch.from_numpy(shadow.marks)
        shape, strides, begin = tensor.shape, [several * stride for stride in tensor.stride()], several * tensor.storage_offset()
        return [marks.as_strided(shape, strides, begin + part) for part in range(several)]

    def later(self, tensor: torch.Tensor) -> Later | None:
        """Return what is reported if a tensor is used; None if nothing is."""
        shadow = self._of_tensor(tensor)
        return shadow.later if shadow is not None and shadow.later is not None and shadow.later.wanted else None

    def writer(self, tensor: torch.Tensor) -> str:
        """Say which kernel left elements of a tensor unwritten: the last one that wrote others; empty if none did."""
        shadow = self._of_tensor(tensor)
        return wrote_others(shadow.writer) if shadow is not None else ""

    def mark(self, tensor: torch.Tensor, written: torch.Tensor, later: Later | None = None, like: torch.Tensor | None = None) -> None:
        """Say which elements of a tensor are written, of a copy `like` another. What else is in its storage stays as it is."""
        if not self._marks(tensor):
            self._track(tensor, wholly_written=True)
        if parts := self._marks(tensor):
            for marks in parts:
                marks.copy_(written)
            shadow = self._shadows[tensor.untyped_storage()._cdata][1]
            source = self._of_tensor(like) if like is not None else None
            shadow.later, shadow.writer = later, source.writer if source is not None else shadow.writer

    def forget(self, tensor: torch.Tensor) -> None:
        """Treat the storage of a tensor as written."""
        storage = storage_of(tensor)
        if storage is not None:
            self._shadows.pop(storage._cdata, None)

    def complete(self, shadow: Shadow) -> None:
        """Drop a shadow: all of its storage was written."""
        self._shadows = {key: entry for key, entry in self._shadows.items() if entry[1] is not shadow}

    def forget_all(self) -> None:
        """Treat everything as written."""
        self._shadows.clear()

    def called(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Learn from one call of torch."""
        name = getattr(function, "__name__", "")
        if name in _MAKERS or (name == "new" and all(isinstance(each, (int, torch.Size)) for each in args[1:])):
            if isinstance(result, torch.Tensor) and not (kwargs and kwargs.get("out") is not None):
                self._track(result)
                if result.untyped_storage().nbytes() <= _MOST_POISONED and self._marks(result):
                    _poison(result)
        elif self._shadows and name not in _HARMLESS:
            if name == "resize_":  # see `resized`
                return
            if name in (*_FILLERS, "copy_", "__setitem__") and args and isinstance(args[0], torch.Tensor):
                self._filled(name, *args, **(kwargs or {}))
                return
            out = (kwargs or {}).get("out")
            for tensor in tensors_in(args, kwargs):
                if later := self.later(tensor):
                    later.wanted = False
                if tensor is out and self._marks(tensor):
                    self._filled("fill_", tensor)
                else:
                    self.forget(tensor)

    def _track(self, tensor: torch.Tensor, wholly_written: bool = False) -> None:
        storage = storage_of(tensor)
        if storage is None or storage.nbytes() > _MOST_BYTES or storage.device.type != "cpu":
            return
        if len(self._shadows) > 1000:
            self._shadows = {key: entry for key, entry in self._shadows.items() if not entry[0].expired()}  # type: ignore[no-untyped-call, unused-ignore]
        # The weak reference keeps the address of the storage's object from being used again.
        shadow = Shadow(storage.nbytes(), tensor.element_size())
        shadow.marks[:] = wholly_written
        self._shadows[storage._cdata] = StorageWeakRef(storage), shadow  # type: ignore[no-untyped-call, unused-ignore]

    def resized(self, resize: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Resize a tensor. Elements that are added to its storage are unwritten."""
        storage = storage_of(tensor)
        before, known = (storage.nbytes(), self.of(storage)) if storage is not None else (0, None)
        result = resize(tensor, *args, **kwargs)
        if storage is not None and storage.nbytes() > before:
            self._track(tensor)
            if after := self.of(storage):
                after.marks[: before // after.unit] = True
                if known is not None and after.divide(known.unit) and known.divide(after.unit):
                    after.marks[: before // after.unit] = known.marks[: before // after.unit]
        return result

    def _filled(self, name: str, tensor: torch.Tensor, *rest: Any, **named: Any) -> None:
        """Mark what a call has put into a tensor. What it copied may itself not be written."""
        given = [*rest, *named.values()] if name not in _FILLERS or name == "fill_" else []
        source = next((each for each in reversed(given) if isinstance(each, torch.Tensor)), None) if given else None
        values = None if source is None or (name == "__setitem__" and source is not rest[1]) else self.written(source)
        if values is not None and values.all():
            values = None
        parts = self._marks(tensor)
        if not parts and values is not None:
            self._track(tensor, wholly_written=True)
            parts = self._marks(tensor)
        try:
            for marks in parts:
                if name == "__setitem__":
                    marks[rest[0]] = True if values is None else values
                else:
                    marks.copy_(torch.tensor(True, device="cpu") if values is None else values)
            if not parts:
                self.forget(tensor)
        except (IndexError, RuntimeError, TypeError):
            self.forget(tensor)


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are views of one storage."""
    first, second = storage_of(one), storage_of(other)
    return first is not None and second is not None and first._cdata == second._cdata


def _poison(tensor: torch.Tensor) -> None:
    """Fill memory that was never written with NaN, or a pattern, so that a result that depends on it is wrong each time."""
    with contextlib.suppress(RuntimeError), torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype is not torch.bool:
            tensor.fill_(int.from_bytes([_PATTERN] * tensor.element_size(), "little"))


@dataclass(eq=False)
class Memory:
    """One storage. `shadow` says which of its bytes were written; None if all were."""

    start: int
    nbytes: int
    shadow: Shadow | None = None


class Anywhere:
    """The origin of a pointer that a kernel made from an integer, such as an entry of a table of pointers."""


ANYWHERE = Anywhere()
Origin = Given | Anywhere | None  # None: it is lost


@dataclass(frozen=True, eq=False)
class Block:
    """One instruction as the kernel asked for it: `doing` is load, store or atomic, `shape` that of the block of lanes."""

    place: Place
    doing: str
    origin: Origin
    shape: tuple[int, ...]
    itemsize: int


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lanes of a block that are on, and inside of one storage, at `offsets` (bytes) from `low` to `high`, the last byte.

    `chosen` are their flat positions in the block; None if that is all of them.
    """

    block: Block
    memory: Memory
    offsets: NDArray[np.uint64]
    low: int
    high: int
    chosen: NDArray[np.int64] | None = None

    @property
    def nbytes(self) -> int:
        """What keeping this takes."""
        return int(self.offsets.nbytes) + (0 if self.chosen is None else int(self.chosen.nbytes))

    def positions(self, which: NDArray[Any]) -> NDArray[np.int64]:
        """Return the flat positions in the block of some lanes, given as indices or as a mask."""
        positions: NDArray[np.int64] = np.flatnonzero(which) if which.dtype == bool else which
        return positions if self.chosen is None else self.chosen[positions]

    def without_data(self) -> Lanes:
        """Return what a report needs of the first of two accesses that conflict."""
        return replace(self, offsets=self.offsets[:0], chosen=None)


class Tensors:
    """All tensors of a launch."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shadows: Shadows) -> None:
        self._shadows = shadows
        self.memories: dict[int, Memory] = {}
        named = _named(function, args, kwargs)
        self.given = [Given(name, value) for name, value in named if isinstance(value, torch.Tensor)]
        self._memory_of = {each: self._memory(each) for each in self.given}
        # What has an address and no tensor may point to any.
        self.by_address: dict[int, Given | Anywhere] = {
            int(value.data_ptr()): ANYWHERE for _, value in named if not isinstance(value, torch.Tensor)
        }
        self.by_address |= {each.tensor.data_ptr(): each for each in reversed(self.given)}
        self._all_alive = False

    def find(self, address: int) -> Memory | None:
        """Return the storage that holds an address."""
        return next((memory for memory in self.memories.values() if 0 <= address - memory.start < memory.nbytes), None)

    def of(self, origin: Given) -> Memory:
        """Return the storage of a tensor of the launch."""
        return self._memory_of[origin]

    def take_all_alive(self) -> None:
        """Add every tensor that Python can see: an integer may have pointed to any of them. This is slow, and done once."""
        if self._all_alive:
            return
        self._all_alive = True
        for each in gc.get_objects():
            if issubclass(type(each), torch.Tensor) and each.device.type == "cpu":
                self._memory(Given("", each))

    def _memory(self, given: Given) -> Memory:
        start, nbytes = given.storage
        if not start:
            return Memory(0, 0)
        if start not in self.memories:
            shadow = self._shadows.of(given.tensor.untyped_storage())
            if shadow is not None and shadow.later is not None:
                shadow.later.wanted = False  # what the kernel reads of it is checked
            self.memories[start] = Memory(start, nbytes, shadow)
        return self.memories[start]


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    signature = inspect.signature(function)
    known = {name: value for name, value in kwargs.items() if name in signature.parameters}
    try:
        bound = signature.bind_partial(*args, **known).arguments
    except TypeError:  # Triton reports it
        return []
    return [each for name, value in bound.items() for each in named_in(name, value)]


# Where a pointer of Triton's interpreter comes from: the tensor of the launch that it was computed from.
#
# With it, an access that leaves its tensor and ends in another one is out of bounds, too. A pointer whose origin is lost, such as one of
# two that a condition chose from, may point into any tensor of the launch.

_NAME = "_warpwave_origin"
_CARRIERS = (
    *("create_addptr", "create_splat", "create_unsplat", "create_broadcast", "create_expand_dims", "create_reshape", "create_trans"),
    *("create_select", "create_cat", "create_join", "create_bitcast", "create_int_to_ptr"),
)


def origin_of(handle: Any, by_address: dict[int, Given | Anywhere]) -> Origin:
    """Return the origin of a handle of pointers. A scalar that nothing was done to yet is an argument."""
    known: Origin | bool = handle.__dict__.get(_NAME, False)
    if known is not False:
        return known  # type: ignore[return-value]
    return by_address.get(int(handle.data.flat[0])) if handle.data.size == 1 else None


def origin_patches(by_address: Callable[[], dict[int, Given | Anywhere] | None]) -> Iterator[Patch]:
    """Yield what lets the results of operations on pointers keep their origin, while `by_address` returns the arguments of a launch."""

    def carry(operation: Any, builder: Any, *args: Any) -> Any:
        result = operation(builder, *args)
        if isinstance(result.dtype, tl.pointer_type) and (given := by_address()) is not None:
            handles = (each for each in args if isinstance(each, interpreter.TensorHandle))
            origins = {origin_of(each, given) for each in handles if isinstance(each.dtype.scalar, tl.pointer_type)} or {ANYWHERE}
            result.__dict__[_NAME] = origins.pop() if len(origins) == 1 else None
        return result

    def materialize(plain: Any, described: Any, *args: Any) -> Any:
        pointers, masks = plain(described, *args)
        if not isinstance(masks, interpreter.TensorHandle):  # block pointers of Triton 3.6
            masks = interpreter.TensorHandle(masks, tl.int1)
        if (given := by_address()) is not None:
            pointers.__dict__[_NAME] = origin_of(described.base, given)
        return pointers, masks

    builder = interpreter.InterpreterBuilder
    for name in _CARRIERS:
        if name in vars(builder):
            yield builder, name, around(carry, vars(builder)[name])
    for name in ("TensorDescHandle", "BlockPointerHandle"):  # Triton 3.8 has no block pointers any more
        if owner := getattr(interpreter, name, None):
            yield owner, "materialize_pointers", around(materialize, owner.materialize_pointers)


# Values that a load took from memory that was never written. They are a fault where a kernel uses them, and none where `tl.where` drops
# them.
#
# Packages load a square of a matrix of which only a triangle was written, and mask the rest afterwards.
#
# A load beyond a tensor's end is a fault as soon as anything is done with its result. If nothing is, the compiler removes the load:
# packages load what only some of their types need.

Blame = Callable[[NDArray[np.int64]], None]  # reports flat positions in the block
# Positions, who reports them, and whether they are reported even if `tl.where` drops them.
Entry = tuple[NDArray[np.int64], Blame, bool]
_CASTS = ("fp_ext", "fp_trunc", "fp_to_fp", "int_cast", "si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "bitcast")

_ARITHMETIC = ("fadd", "fsub", "fmul", "add", "sub", "mul")  # `-x` is `0 - x`


def suspected(handle: Any, entries: Iterable[Entry]) -> Any:
    """Return a handle like `handle` whose `entries` are reported as soon as its data is looked at."""
    entries = tuple(entry for entry in entries if entry[0].size)
    return watched(handle, _report, _plain=handle, _entries=entries) if entries else handle


def _report(handle: Any) -> None:
    entries, handle._entries = handle._entries, ()
    for positions, blame, _ in entries:
        blame(positions)


def watched(handle: Any, looked: Callable[[Any], None], **marks: Any) -> Any:
    """Return a handle like `handle` that calls `looked` with itself before its data is looked at."""
    base: Any = type(handle)
    result: Any = object.__new__(_watched(base))
    result.__dict__.update(handle.__dict__, _looked=looked, **marks)
    return result


@functools.cache
def _watched(base: Any) -> Any:
    class Watched(base):  # type: ignore[misc]
        """The result of a load or an atomic."""

        @property
        def data(self) -> Any:
            self._looked(self)
            return self.__dict__["data"]

        @data.setter
        def data(self, value: Any) -> None:
            self.__dict__["data"] = value

        @property
        def is_suspected(self) -> bool:
            """Whether there is something to report yet."""
            return bool(self.__dict__.get("_entries"))

        def converted(self, cast: Callable[[Any], Any]) -> Any:
            """Convert without a look: `arithmetic.cast` has conversions of its own, on top of these."""
            return suspected(cast(self._plain), self._entries)

    return Watched


def patches(builder: Any) -> Iterator[Patch]:
    """Yield what passes such values on without a look: the choice between two values, and conversions."""
    yield builder, "create_select", around(_choose, builder.create_select)
    for name in _ARITHMETIC:
        yield builder, f"create_{name}", around(_compute, getattr(builder, f"create_{name}"))
    for name in _CASTS:
        if cast := getattr(builder, f"create_{name}", None):
            yield builder, f"create_{name}", around(_convert, cast)


def _entries_of(handle: Any) -> tuple[Any, Any]:
    """Return a plain handle and its entries, for an operation that passes values on. Report those that `tl.where` may not drop."""
    entries = getattr(handle, "_entries", ())
    if not entries:
        return handle, ()
    handle._entries = tuple(entry for entry in entries if not entry[2])
    for positions, blame, at_any_use in entries:
        if at_any_use:
            blame(positions)
    return handle._plain, handle._entries


def _choose(select: Any, builder: Any, condition: Any, left: Any, right: Any) -> Any:
    (left, of_left), (right, of_right) = _entries_of(left), _entries_of(right)
    result = select(builder, condition, left, right)
    if not (of_left or of_right):
        return result
    taken = np.broadcast_to(condition.data, result.data.shape).ravel().astype(bool)
    kept = [(positions[taken[positions]], blame, False) for positions, blame, _ in of_left]
    kept += [(positions[~taken[positions]], blame, False) for positions, blame, _ in of_right]
    return suspected(result, kept)


def _compute(operation: Any, builder: Any, left: Any, right: Any) -> Any:
    (left, of_left), (right, of_right) = _entries_of(left), _entries_of(right)
    result = operation(builder, left, right)
    kept: list[Any] = []
    for handle, entries in ((left, of_left), (right, of_right)):
        if handle.data.shape == result.data.shape:
            kept += entries
            continue
        for positions, blame, _ in entries:  # in the result, they are others
            blame(positions)
    return suspected(result, kept)


def _convert(cast: Any, builder: Any, source: Any, *rest: Any) -> Any:
    if getattr(source, "is_suspected", False):
        return source.converted(lambda plain: cast(builder, plain, *rest))
    return cast(builder, source, *rest)
