"""What a launch was given: its tensors by name, and the storages that they are views of.

A kernel may touch the whole storage of a tensor that it was given. Views are how kernels get slices of one buffer, so an access beyond a
view, but in its storage, may be meant. An access beyond the storage never is.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.inside.fake_gpu.interpreted.places import Place
from harness.inside.sanitize.written import Shadow, Shadows


@dataclass(eq=False)
class Memory:
    """One storage. `shadow` says which of its bytes were written; None if all were."""

    start: int
    nbytes: int
    shadow: Shadow | None = None


@dataclass(frozen=True, eq=False)
class Given:
    """One tensor that the launch was given, by the name of the argument."""

    name: str
    memory: Memory
    address: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def index(self, address: int) -> tuple[int, tuple[int, ...]]:
        """Return the index of an address: flat in the tensor's shape, and by dimension.

        Beyond the tensor, the first dimension runs on, as indices of C do.
        """
        offset = (address - self.address) // self.itemsize
        if not self.shape:
            return offset, (offset,)
        left, found = offset, [0] * len(self.shape)
        by_stride = sorted(range(len(self.shape)), key=lambda axis: (-self.strides[axis], axis))
        for axis in by_stride:
            if self.strides[axis] > 0 and self.shape[axis] > 1:
                found[axis], left = divmod(left, self.strides[axis])
        if left or all(size == 1 for size in self.shape):
            found[by_stride[-1]] += left
        flat = 0
        for axis, size in enumerate(self.shape):
            flat = flat * size + found[axis]
        return flat, tuple(found)


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
        named = [*_named(function, args, kwargs)]
        self.given = [self._given(name, value) for name, value in named if isinstance(value, torch.Tensor)]
        # What has an address and no tensor may point to any.
        self.by_address: dict[int, Given | Anywhere] = {
            int(value.data_ptr()): ANYWHERE for _, value in named if not isinstance(value, torch.Tensor)
        }
        self.by_address |= {each.address: each for each in reversed(self.given)}
        self._all_alive = False

    def find(self, address: int) -> Memory | None:
        """Return the storage that holds an address."""
        return next((memory for memory in self.memories.values() if 0 <= address - memory.start < memory.nbytes), None)

    def take_all_alive(self) -> None:
        """Add every tensor that Python can see: an integer may have pointed to any of them. This is slow, and done once."""
        if self._all_alive:
            return
        self._all_alive = True
        for each in gc.get_objects():
            if issubclass(type(each), torch.Tensor) and each.device.type == "cpu":
                self._memory(each)

    def nearest(self, address: int) -> Given | None:
        """Return the tensor that ends or begins closest to an address."""

        def distance(each: Given) -> int:
            return max(each.memory.start - address, address - each.memory.start - each.memory.nbytes, 0)

        return min(self.given, key=distance, default=None)

    def _given(self, name: str, tensor: torch.Tensor) -> Given:
        memory = self._memory(tensor)
        return Given(name, memory, tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tuple(tensor.stride()))

    def _memory(self, tensor: torch.Tensor) -> Memory:
        try:
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
        except (NotImplementedError, RuntimeError):  # a sparse tensor, or one without data, or one of torch's compiler
            return Memory(0, 0)
        if start not in self.memories:
            shadow = self._shadows.of(storage)
            if shadow is not None and shadow.later is not None:
                shadow.later.wanted = False  # what the kernel reads of it is checked
            self.memories[start] = Memory(start, storage.nbytes(), shadow)
        return self.memories[start]


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    parameters = inspect.signature(function).parameters
    known = {name: value for name, value in kwargs.items() if name in parameters}
    try:
        bound = inspect.signature(function).bind_partial(*args, **known).arguments
    except TypeError:  # Triton reports it
        return
    for name, value in bound.items():
        yield from _tensors(name, value)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif hasattr(value, "data_ptr") and hasattr(value, "__dict__"):  # a package's own view of a tensor, which it holds
        tensors = [each for each in vars(value).values() if isinstance(each, torch.Tensor)]
        yield from ((name, each) for each in tensors or [value])
    elif isinstance(value, (tuple, list)):
        for position, each in enumerate(value):
            yield from _tensors(f"{name}[{position}]", each)
    elif (base := getattr(value, "base", None)) is not None:  # a tensor descriptor, a tensor under another type, or the one of the other
        yield from _tensors(name, base)
