"""Which bytes of memory from `torch.empty` and its kind were written. All other memory counts as written.

torch's own calls are watched. Those that fill or copy write what they fill. What another may write counts as written as a whole, and so
does what leaves torch's sight (`data_ptr`, `numpy`). What torch reads is in `torch_reads.py`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef

from harness.inside.fake_gpu.host_side import tensors_in
from harness.records import Finding

_MAKERS = frozenset(("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"))
# Calls that write to none of their arguments, and keep no address of them.
_HARMLESS = frozenset(
    (
        *_MAKERS,
        *("__get__", "__getitem__", "__len__", "__repr__", "__format__", "__hash__", "size", "stride", "dim", "ndimension", "numel"),
        *("nelement", "element_size", "storage_offset", "is_contiguous", "get_device", "is_floating_point", "is_complex", "is_pinned"),
        *("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "transpose", "t", "permute", "movedim", "squeeze"),
        *("unsqueeze", "expand", "expand_as", "narrow", "select", "split", "chunk", "unbind", "tensor_split", "as_strided", "swapaxes"),
        *("detach", "requires_grad_", "contiguous", "to", "cpu", "clone", "float", "half", "bfloat16", "double", "zeros_like"),
        *("ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full", "record_stream", "is_same_size"),
        *("dtype", "element_size", "split_with_sizes", "diagonal", "unfold", "mT", "mH", "adjoint", "moveaxis", "swapdims", "is_signed"),
    )
)
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

    `later` is what is reported if these numbers are used: torch computed them of others that nobody wrote.
    """

    def __init__(self, nbytes: int, unit: int) -> None:
        self.nbytes, self.unit = nbytes, unit
        self.marks: NDArray[np.bool_] = np.zeros(-(-nbytes // unit), dtype=bool)
        self.later: Later | None = None

    def unwritten(self, offsets: NDArray[np.uint64], low: int, high: int, itemsize: int) -> NDArray[np.bool_] | None:
        """Return which of these elements, of `itemsize` bytes at `offsets`, were never written; None if all were."""
        if self.marks[low // self.unit : (high + itemsize - 1) // self.unit + 1].all():
            return None
        found = ~self.marks[offsets // self.unit]
        return found if found.any() else None

    def write(self, offsets: NDArray[np.uint64], itemsize: int) -> None:
        """Mark elements as written. Of a smaller one, all of the unit counts."""
        for part in range(0, itemsize, self.unit):
            self.marks[(offsets + part) // self.unit] = True


class Shadows:
    """The shadow of each storage that is not known to be written."""

    def __init__(self) -> None:
        self._shadows: dict[int, tuple[StorageWeakRef, Shadow]] = {}

    def of(self, storage: torch.UntypedStorage) -> Shadow | None:
        """Return the shadow of a storage; None if it counts as written. A storage that was resized does."""
        _, shadow = self._shadows.get(storage._cdata, (None, None))
        return shadow if shadow is None or shadow.nbytes == storage.nbytes() else None

    def __bool__(self) -> bool:
        return bool(self._shadows)

    def written(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return which elements of a tensor were written, as a view of the marks; None if all count as such."""
        storage = _storage(tensor)
        shadow = self.of(storage) if storage is not None else None
        if shadow is None or tensor.element_size() != shadow.unit:
            return None
        return torch.from_numpy(shadow.marks).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def later(self, tensor: torch.Tensor) -> Later | None:
        """Return what is reported if a tensor is used; None if nothing is."""
        storage = _storage(tensor)
        shadow = self.of(storage) if storage is not None else None
        return shadow.later if shadow is not None and shadow.later is not None and shadow.later.wanted else None

    def mark(self, tensor: torch.Tensor, written: torch.Tensor, later: Later | None = None) -> None:
        """Say which elements of a tensor are written. What else is in its storage stays as it is."""
        if self.written(tensor) is None:
            self._track(tensor, wholly_written=True)
        marks = self.written(tensor)
        if marks is not None:
            marks.copy_(written)
            self._shadows[tensor.untyped_storage()._cdata][1].later = later

    def forget(self, tensor: torch.Tensor) -> None:
        """Treat the storage of a tensor as written."""
        storage = _storage(tensor)
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
                self._made(result)
        elif self._shadows and name not in _HARMLESS:
            if name == "resize_":
                self._grown(result)
                return
            if name in (*_FILLERS, "copy_", "__setitem__") and args and isinstance(args[0], torch.Tensor):
                self._filled(name, *args, **(kwargs or {}))
                return
            for tensor in tensors_in(args, kwargs):
                if later := self.later(tensor):
                    later.wanted = False
                self.forget(tensor)

    def _made(self, tensor: torch.Tensor) -> None:
        self._track(tensor)
        if tensor.untyped_storage().nbytes() <= _MOST_POISONED and self.written(tensor) is not None:
            _poison(tensor)

    def _track(self, tensor: torch.Tensor, wholly_written: bool = False) -> None:
        storage = _storage(tensor)
        if storage is None or storage.nbytes() > _MOST_BYTES or storage.device.type != "cpu":
            return
        if len(self._shadows) > 1000:
            self._shadows = {key: entry for key, entry in self._shadows.items() if not entry[0].expired()}  # type: ignore[no-untyped-call, unused-ignore]
        # The weak reference keeps the address of the storage's object from being used again.
        shadow = Shadow(storage.nbytes(), tensor.element_size())
        shadow.marks[:] = wholly_written
        self._shadows[storage._cdata] = _weak(storage), shadow

    def _grown(self, tensor: torch.Tensor) -> None:
        """Keep what was written of a tensor that `resize_` has made larger."""
        _, before = self._shadows.get(tensor.untyped_storage()._cdata, (None, None))
        if before is None:
            return
        self._track(tensor)
        after = self.of(tensor.untyped_storage())
        if after is not None:
            after.marks[: len(before.marks)] = before.marks[: len(after.marks)]

    def _filled(self, name: str, tensor: torch.Tensor, *rest: Any, **named: Any) -> None:
        """Mark what a call has put into a tensor. What it copied may itself not be written."""
        given = [*rest, *named.values()] if name not in _FILLERS else []
        source = next((each for each in reversed(given) if isinstance(each, torch.Tensor)), None) if given else None
        values = None if source is None or (name == "__setitem__" and source is not rest[1]) else self.written(source)
        if values is not None and values.all():
            values = None
        marks = self.written(tensor)
        if marks is None and values is not None:
            self._track(tensor, wholly_written=True)
            marks = self.written(tensor)
        try:
            if marks is None:
                self.forget(tensor)
            elif name == "__setitem__":
                marks[rest[0]] = True if values is None else values
            else:
                marks.copy_(torch.tensor(True) if values is None else values)
        except (IndexError, RuntimeError, TypeError):
            self.forget(tensor)


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are views of one storage."""
    first, second = _storage(one), _storage(other)
    return first is not None and second is not None and first._cdata == second._cdata


def _poison(tensor: torch.Tensor) -> None:
    """Put what is no number into memory that nobody wrote, so that a result that depends on it is wrong each time."""
    with contextlib.suppress(RuntimeError), torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype is not torch.bool:
            tensor.fill_(int.from_bytes([_PATTERN] * tensor.element_size(), "little"))


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call, unused-ignore]


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
