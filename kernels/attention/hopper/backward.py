"""Launch attention backward for Hopper: which tensors it takes, what it prepares, and its tiles."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.attention.hopper import wide_backward
from kernels.attention.hopper.backward_kernel import attention_hopper_backward_kernel
from kernels.attention.hopper.prepare import attention_hopper_prepare_kernel
from kernels.attention.hopper.tiles import AVAILABLE, fp32_layouts, largest_divisor, padded, tiles, travels, with_positive_scale
from kernels.attention.hopper.tiles import supports as supported
from kernels.attention.plain.tiles import steps
from kernels.configs import card

if AVAILABLE:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

__all__ = ["backward", "supports"]

_ROWS = 64  # queries per tile: dK and dV (128 registers), S and dP (64) and the copies of P and dS (32) fill 240 registers
_KEYS = 64  # per consumer
_STAGES = 2  # of Q, dO and dS: 193 KB of shared memory together with K, V and the output buffer of dQ
_WAVES = 4  # of uneven programs, from which on each walks over all heads that share keys
_LONG = 1 << 18  # elements of a head, from which on adding to dK and dV is short beside its products
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
    group = heads // kv_heads
    shared = _heads_of_a_program(group, batch * kv_heads * blocks, causal and rows * depth >= _LONG)
    units = batch * heads // shared
    # Under a mask, the first keys have the most queries. So programs that start together take these of several heads first, but of no more
    # heads than the cache holds. Without a mask, take one head after the other.
    section = largest_divisor(units, max(1, _SHARED_CACHE // (8 * rows * depth))) if causal else 1
    delta = torch.empty(batch * heads * row_tiles * _ROWS, dtype=torch.float32, device=q.device)
    start = torch.empty_like(delta)
    total = torch.empty((units // section, shared * section, rows, depth), dtype=torch.float32, device=q.device)
    attention_hopper_prepare_kernel[(row_tiles * batch * heads,)](
        out, dout, lse, delta, start, total, positive, rows, row_tiles, heads, *steps(dout), WIDTH=depth, D=padded(depth), BLOCK=_ROWS
    )
    dq = torch.empty((batch, heads, rows, depth), dtype=q.dtype, device=q.device)
    make, dtype = (torch.empty, q.dtype) if shared == group else (torch.zeros, torch.float32)  # to store, or to add to
    dk, dv = (make((batch, kv_heads, keys, depth), dtype=dtype, device=q.device) for _ in range(2))
    vector, half_rows = fp32_layouts()
    descriptors = (
        tiles(q, _ROWS),
        tiles(k, _KEYS, swizzle=padded(depth)),  # half of K's columns, one consumer's share of dQ's product, are then whole panels
        tiles(v, _KEYS),
        tiles(dout, _ROWS),
        TensorDescriptor(start, [len(start)], [1], [_ROWS], vector),
        TensorDescriptor(delta, [len(delta)], [1], [_ROWS], vector),
        TensorDescriptor(total, list(total.shape), list(total.stride()), [1, 1, _ROWS, padded(depth) // 2], half_rows),
        *(_tiles_of_sums(x.view(1, -1, keys, depth), half_rows) for x in (dk, dv)),
    )
    attention_hopper_backward_kernel[(section, blocks, units // section)](
        *descriptors, positive / math.log(2), heads, group, shared, section, row_tiles, keys,
        CAUSAL=causal, ROWS=_ROWS, KEYS=_KEYS, STAGES=_STAGES, num_warps=4,
    )  # fmt: skip
    torch.mul(total.view(dq.shape), scale, out=dq)
    return dq, dk.to(q.dtype), dv.to(q.dtype)


def _heads_of_a_program(group: int, programs: int, uneven: bool) -> int:
    """Return how many of the heads that share keys a program walks over: all, or one if multiprocessors would be idle.

    `uneven`: programs are of different lengths, by a mask, and long. A few such programs read the same queries at different times.
    """
    return 1 if programs < (_WAVES if uneven else 1) * card().processors else group


def _tiles_of_sums(x: Tensor, half_rows: Any) -> Any:
    """Return a descriptor of the tiles of dK or dV: whole ones to store, in 16 bits, or half of the columns to add, in fp32."""
    if x.dtype != torch.float32:
        return tiles(x, _KEYS)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, _KEYS, padded(x.shape[3]) // 2], half_rows)
