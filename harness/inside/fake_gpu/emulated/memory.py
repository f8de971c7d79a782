"""Which memory a launch may touch: the storage of each tensor that it was given, and of those whose addresses it was given."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Union

import torch

# A table of addresses has an entry for each tensor of a list: it is short.
_LONGEST_TABLE = 1 << 16
# Programs are mapped from 4 MiB on, their heap above them; user space ends at 128 TiB. What the JIT passes in 32 bits is no address.
_LOWEST, _HIGHEST = 1 << 22, 1 << 47
_WIDE = ("i64", "u64")

Buffer = tuple[int, int]


def buffers(values: Iterable[tuple[str, Any]]) -> list[Buffer]:
    """Return address and size in bytes of all memory that a kernel with these arguments may touch, without repeats.

    `values` are types and values, as `flatten` yields them. A tensor stands for its whole storage, because a view may be made to look
    beyond itself. A 64-bit number, and a tensor of such, may hold addresses: if one is in the storage of a living tensor, the kernel may
    touch that, too.
    """
    found: dict[Buffer, None] = {}
    suspects: set[int] = set()
    for kind, value in values:
        tensor = _tensor_of(value)
        if tensor is not None:
            found[_storage(tensor)] = None
            suspects |= _table(tensor)
        elif hasattr(value, "data_ptr"):
            suspects.add(int(value.data_ptr()))
        elif isinstance(value, int) and (kind in _WIDE or kind.startswith("*")):
            suspects.add(value)
    suspects = {number for number in suspects if _LOWEST <= number < _HIGHEST and not _within(number, found)}
    if suspects:
        found.update(dict.fromkeys(_living(suspects)))
    return [buffer for buffer in found if buffer[1]]


def _tensor_of(value: Any) -> Union[torch.Tensor, None]:
    """Return the tensor that an argument is or stands for: Triton takes anything with `data_ptr`, such as a package's own view."""
    if isinstance(value, torch.Tensor):
        return value
    held = vars(value).values() if hasattr(value, "__dict__") else ()
    tensors = [each for each in (getattr(value, "base", None), *held) if isinstance(each, torch.Tensor)]
    usual = tensors[0] if tensors and hasattr(value, "base") else None
    if not hasattr(value, "data_ptr"):
        return usual
    return next((each for each in tensors if _within(int(value.data_ptr()), [_storage(each)])), usual)


def _storage_of_any(tensor: torch.Tensor) -> Union[Buffer, None]:
    """Return a storage, or None for a tensor without memory, such as one that torch's compiler traces with."""
    try:
        # The tensor's own device is "cpu" also where its storage has no memory. Its size may be a formula then, which has no hash.
        return _storage(tensor) if tensor.untyped_storage().device.type == "cpu" else None
    except (RuntimeError, NotImplementedError):
        return None


def _storage(tensor: torch.Tensor) -> Buffer:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _table(tensor: torch.Tensor) -> set[int]:
    if tensor.dtype not in (torch.int64, torch.uint64) or tensor.numel() > _LONGEST_TABLE:
        return set()
    return set(tensor.detach().flatten().tolist())


def _within(number: int, found: Iterable[Buffer]) -> bool:
    return any(start <= number < start + size for start, size in found)


def _living(addresses: set[int]) -> list[Buffer]:
    """Return the storages of living tensors that these addresses are in. torch keeps no list of its tensors; Python's collector does."""
    tensors = [entry for entry in gc.get_objects() if issubclass(type(entry), torch.Tensor)]
    known = sorted({storage for tensor in tensors if tensor.device.type == "cpu" and (storage := _storage_of_any(tensor))})
    starts = [start for start, _ in known]
    nearest = {known[place - 1] for number in addresses if (place := bisect_right(starts, number))}
    return [(start, size) for start, size in nearest if any(start <= number < start + size for number in addresses)]
