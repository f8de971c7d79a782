"""What the tensors among the arguments of a call hold, byte for byte: of a launch, of an op."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from warpwave.inside.fake_gpu.host_side import tensors_in


class Contents:
    """The memory of named arguments. A tensor stands for its whole storage; tensors that share one share its bytes."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self.sizes: dict[int, int] = {}  # in bytes, by address
        with torch._C.DisableTorchFunction():
            for name, value in arguments.items():
                # A descriptor, or a pointer of another type, has a tensor as its base.
                for tensor in tensors_in(value if isinstance(value, torch.Tensor) else getattr(value, "base", value)):
                    if size := _bytes(tensor):
                        self._tensors.append((name, tensor))
                        self.sizes[tensor.untyped_storage().data_ptr()] = size

    def copy(self) -> dict[int, bytes]:
        """Return what it holds now, by address."""
        return {start: ctypes.string_at(start, size) for start, size in self.sizes.items()}

    def put(self, kept: Mapping[int, bytes]) -> None:
        """Write what was copied."""
        for start, data in kept.items():
            ctypes.memmove(start, data, len(data))

    def changed(self, start: int, before: bytes, after: bytes) -> list[str]:
        """Return the arguments in the storage at `start` of which an element changed; all of them if none did, but the memory between."""
        with torch._C.DisableTorchFunction():
            here = [(name, tensor) for name, tensor in self._tensors if tensor.untyped_storage().data_ptr() == start]
            found = [name for name, tensor in here if not np.array_equal(_elements(tensor, before), _elements(tensor, after))]
        return list(dict.fromkeys(found or [name for name, _ in here]))


def _bytes(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage; 0 if it has no memory, as one that torch's compiler traces with."""
    try:
        storage = tensor.untyped_storage()
        return storage.nbytes() if storage.device.type == "cpu" and storage.data_ptr() and not tensor.is_nested else 0
    except (NotImplementedError, RuntimeError):
        return 0


def _elements(tensor: torch.Tensor, data: bytes) -> Any:
    size = tensor.element_size()
    held = np.frombuffer(data, np.uint8)[tensor.storage_offset() * size :]
    strides = (*(stride * size for stride in tensor.stride()), 1)
    return np.lib.stride_tricks.as_strided(held, (*tensor.shape, size), strides)
