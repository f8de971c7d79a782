"""Which bytes of memory from `torch.empty` and its kind were written. All other memory counts as written.

torch's own calls are watched. What one of them may write counts as written as a whole, and so does what leaves torch's sight
(`data_ptr`, `numpy`). So a report is about memory that nothing but kernels ever touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef

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
    )
)
_FILLERS = frozenset(("zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "bernoulli_"))
_MOST_BYTES = 1 << 30  # a larger storage is not tracked: its shadow would not fit beside it


class Shadow:
    """One mark per element of a storage: was it written? `unit` is the size of an element in bytes."""

    def __init__(self, nbytes: int, unit: int) -> None:
        self.nbytes, self.unit = nbytes, unit
        self.marks: NDArray[np.bool_] = np.zeros(-(-nbytes // unit), dtype=bool)

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

    def forget(self, shadow: Shadow) -> None:
        """Drop a shadow: all of its storage was written."""
        self._shadows = {key: entry for key, entry in self._shadows.items() if entry[1] is not shadow}

    def forget_all(self) -> None:
        """Treat everything as written."""
        self._shadows.clear()

    def called(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Learn from one call of torch."""
        name = getattr(function, "__name__", "")
        if name in _MAKERS:
            if isinstance(result, torch.Tensor) and not (kwargs and kwargs.get("out") is not None):
                self._made(result)
        elif self._shadows and name not in _HARMLESS:
            if name in _FILLERS and args and isinstance(args[0], torch.Tensor):
                self._filled(args[0])
                args = args[1:]
            for tensor in _within(args, kwargs):
                self._written(tensor)

    def _made(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is None or not 0 < storage.nbytes() <= _MOST_BYTES or storage.device.type != "cpu":
            return
        if len(self._shadows) > 1000:
            self._shadows = {key: entry for key, entry in self._shadows.items() if not entry[0].expired()}  # type: ignore[no-untyped-call, unused-ignore]
        # The weak reference keeps the address of the storage's object from being used again.
        self._shadows[storage._cdata] = _weak(storage), Shadow(storage.nbytes(), tensor.element_size())

    def _filled(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        shadow = self.of(storage) if storage is not None else None
        if shadow is None or not tensor.is_contiguous():
            self._written(tensor)
            return
        first = tensor.storage_offset() * tensor.element_size()
        shadow.marks[first // shadow.unit : -(-(first + tensor.numel() * tensor.element_size()) // shadow.unit)] = True

    def _written(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is not None:
            self._shadows.pop(storage._cdata, None)


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call, unused-ignore]


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _within(*values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _within(*value)
        elif isinstance(value, dict):
            yield from _within(*value.values())
