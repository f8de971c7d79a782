"""Launch attention backward for Hopper: which tensors it takes, what it prepares, and its tiles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernels.attention.hopper import wide_backward
from kernels.attention.hopper.backward_kernel import attention_hopper_backward_kernel
from kernels.attention.hopper.prepare import attention_hopper_prepare_kernel
from kernels.attention.hopper.tiles import AVAILABLE, fp32_layouts, largest_divisor, padded, tiles, travels, with_positive_scale
from kernels.attention.hopper.tiles import supports as supported
from kernels.attention.plain.tiles import steps

if AVAILABLE:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

__all__ = ["backward", "supports"]

_ROWS = 64  # queries per tile: dK and dV (128 registers), S and dP (64) and the copies of P and dS (32) fill 240 registers
_KEYS = 64  # per consumer
_STAGES = 2  # of Q, dO and dS: 193 KB of shared memory together with K, V and the output buffer of dQ
_MANY = 16  # heads that share keys: from here on they take turns, so that all programs of a pair work on the same tiles of queries
_SHARED_CACHE = 18 << 20  # bytes of Q, dO and dQ that concurrent programs may share: a third of the L2 cache


def supports(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Return whether `backward` takes these tensors on this GPU."""
    return (_is_narrow(q, v) or wide_backward.fits(q, v)) and supported(q, k, v, 256)


def _is_narrow(q: Tensor, v: Tensor) -> bool:
    """Return whether registers hold the gradients of 128 keys."""
    return q.shape[3] == v.shape[3] <= 128


def backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `forward.forward` by q, k and v, contiguous, in their dtypes. `out` and `lse` are its results."""
    if not _is_narrow(q, v):
        return wide_backward.backward(dout, q, k, v, out, lse, causal, scale)
    q, positive = with_positive_scale(q, scale)
    batch, heads, rows, depth = q.shape
    kv_heads, keys = k.shape[1:3]
    row_tiles, blocks = -(-rows // _ROWS), -(-keys // (2 * _KEYS))
    dout = dout if travels(dout) else dout.clone(memory_format=torch.contiguous_format)
    # Under a mask, the first keys have the most queries. So programs that start together take these of several heads first, but of no more
    # heads than the cache holds. Without a mask, take one head after the other.
    section = largest_divisor(batch * kv_heads, max(1, _SHARED_CACHE // (8 * rows * depth))) if causal else 1
    group = heads // kv_heads
    delta = torch.empty(batch * heads * row_tiles * _ROWS, dtype=torch.float32, device=q.device)
    start = torch.empty_like(delta)
    total = torch.empty((batch * kv_heads // section, heads // kv_heads * section, rows, depth), dtype=torch.float32, device=q.device)
    attention_hopper_prepare_kernel[(row_tiles * batch * heads,)](
        out, dout, lse, delta, start, total, positive, rows, row_tiles, heads, *steps(dout), WIDTH=depth, D=padded(depth), BLOCK=_ROWS
    )
    dq = torch.empty((batch, heads, rows, depth), dtype=q.dtype, device=q.device)
    dk, dv = (torch.empty((batch, kv_heads, keys, depth), dtype=x.dtype, device=x.device) for x in (k, v))
    vector, half_rows = fp32_layouts()
    descriptors = (
        tiles(q, _ROWS),
        tiles(k, _KEYS, swizzle=padded(depth)),  # half of K's columns, one consumer's share of dQ's product, are then whole panels
        tiles(v, _KEYS),
        tiles(dout, _ROWS),
        TensorDescriptor(start, [len(start)], [1], [_ROWS], vector),
        TensorDescriptor(delta, [len(delta)], [1], [_ROWS], vector),
        TensorDescriptor(total, list(total.shape), list(total.stride()), [1, 1, _ROWS, padded(depth) // 2], half_rows),
        tiles(dk.view(-1, section, keys, depth), _KEYS),
        tiles(dv.view(-1, section, keys, depth), _KEYS),
    )
    attention_hopper_backward_kernel[(section, blocks, batch * kv_heads // section)](
        *descriptors, positive / math.log(2), kv_heads, group, group if group >= _MANY else 1, section, row_tiles, keys,
        CAUSAL=causal, ROWS=_ROWS, KEYS=_KEYS, STAGES=_STAGES, num_warps=4,
    )  # fmt: skip
    torch.mul(total.view(dq.shape), scale, out=dq)
    return dq, dk, dv
