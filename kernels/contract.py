"""Checks at the start of every op: dtypes, autocast, and layouts that a kernel may walk in memory order."""

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


def check_same(op: str, first: torch.Tensor, *others: torch.Tensor | None) -> None:
    """Refuse tensors of different dtypes or devices; None is none.

    Raises:
        RuntimeError: they differ.
    """
    for other in others:
        if other is not None and (other.dtype, other.device) != (first.dtype, first.device):
            seen = f"{first.dtype} on {first.device} and {other.dtype} on {other.device}"
            raise RuntimeError(f"{op} expected all tensors to be of one dtype on one device, but got {seen}")


def autocast_all(first: torch.Tensor, *others: Any, to: torch.dtype | None = None) -> tuple[Any, ...]:
    """Return tensors on one device as autocast requires: in `to`, or in autocast's own dtype.

    They are unchanged if autocast is off, and None or not fp16, bf16 or fp32. torch.library can register one fixed dtype for an op; this
    follows the user's.
    """
    kind, tensors = first.device.type, (first, *others)
    if not torch.is_autocast_enabled(kind):
        return tensors
    to = to or torch.get_autocast_dtype(kind)
    return tuple([x.to(to) if x is not None and x.dtype in DTYPES else x for x in tensors])


def laid_out_as(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `tensor` with the strides of `like`, which is dense, copied only if they differ.

    An element-wise kernel can then walk through both in memory order, whatever that order is.
    """
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)
