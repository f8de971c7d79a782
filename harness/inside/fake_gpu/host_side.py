"""Which tensors are on the host, while others pretend to be on a card, and what the host knows of those without data.

Marks are attributes of tensors: they live as long as the tensor, and a copy has them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch

_HOST, _PINNED, _KNOWN, _SHAPE = "_warpwave_host", "_warpwave_pinned", "_warpwave_known", "_warpwave_shape"
_MOST_KNOWN = 1 << 16  # elements
Value = TypeVar("Value")


def is_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor was made on the host, or brought there."""
    return getattr(tensor, _HOST, False) is True


def is_meta(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, whatever it says to the package."""
    return bool(torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Meta))


def put_on_host(value: Value) -> Value:
    """Mark the tensors in what an operation returned."""
    for tensor in tensors_in(value):
        if type(tensor).__name__ != "FakeTensor":
            tensor.__dict__[_HOST] = True
    return value


def make_shape(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a tensor that the package itself wants on torch's meta device: it is neither on the host nor on the card."""
    put_on_host(tensor).__dict__[_SHAPE] = True
    return tensor


def is_shape(tensor: torch.Tensor) -> bool:
    """Whether `make_shape` has marked it."""
    return tensor.__dict__.get(_SHAPE, False) is True


def take_from_host(tensor: torch.Tensor) -> torch.Tensor:
    """Remove the mark."""
    tensor.__dict__.pop(_HOST, None)
    return tensor


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a tensor on the host as pinned."""
    put_on_host(tensor).__dict__[_PINNED] = True
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether `pin` has marked it."""
    return tensor.__dict__.get(_PINNED, False) is True


def is_knowable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has whole numbers, and not too many: lengths, offsets and indices."""
    return tensor.numel() <= _MOST_KNOWN and not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


def know(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Keep what a tensor without data would hold, if that is knowable."""
    if is_knowable(data):
        tensor.__dict__[_KNOWN] = data
    return tensor


def known(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the data that a tensor without data would hold, if that is known."""
    return tensor.__dict__.get(_KNOWN)


def forget(tensor: torch.Tensor) -> None:
    """Forget it: something has written to it."""
    tensor.__dict__.pop(_KNOWN, None)


def tensors_in(*values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments or results, also those in lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(*value)
        elif isinstance(value, dict):
            yield from tensors_in(*value.values())
