"""Checks at the start of every op: dtypes, autocast, and layouts that a kernel may walk in memory order."""

from __future__ import annotations

from typing import Any

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_dtype(op: str, *tensors: torch.Tensor | None) -> None:
    """Refuse dtypes that the kernels do not support, with PyTorch's exception.

    Raises:
        NotImplementedError: a dtype is not among `DTYPES`.
    """
    for tensor in tensors:
        if tensor is not None and tensor.dtype not in DTYPES:
            raise NotImplementedError(f'"{op}" is implemented for fp32, fp16 and bf16, not for {tensor.dtype}')


def check_same(op: str, *tensors: torch.Tensor) -> None:
    """Refuse tensors of different dtypes or devices.

    Raises:
        RuntimeError: they differ.
    """
    first = tensors[0]
    for other in tensors[1:]:
        if (other.dtype, other.device) != (first.dtype, first.device):
            seen = f"{first.dtype} on {first.device} and {other.dtype} on {other.device}"
            raise RuntimeError(f"{op} expected all tensors to be of one dtype on one device, but got {seen}")


def autocast(tensor: torch.Tensor, to: torch.dtype | None = None) -> torch.Tensor:
    """Return `tensor` as autocast requires: in `to`, or in autocast's own dtype.

    It is unchanged if autocast is off, or if it is not fp16, bf16 or fp32. torch.library can register one fixed dtype for an op; this
    follows the user's.
    """
    kind = tensor.device.type
    if tensor.dtype not in DTYPES or not torch.is_autocast_enabled(kind):
        return tensor
    return tensor.to(to or torch.get_autocast_dtype(kind))


def autocast_all(first: torch.Tensor, *others: Any, to: torch.dtype | None = None) -> tuple[Any, ...]:
    """Return `autocast` of tensors on one device; None stays None. While autocast is off, that costs one question for all of them."""
    tensors = first, *others
    if not torch.is_autocast_enabled(first.device.type):
        return tensors
    return tuple([None if tensor is None else autocast(tensor, to) for tensor in tensors])


def laid_out_as(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `tensor` with the strides of `like`, which is dense, copied only if they differ.

    An element-wise kernel can then walk through both in memory order, whatever that order is.
    """
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)
