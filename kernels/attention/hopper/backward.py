"""Launch attention backward for Hopper: which tensors it takes, what it prepares, and its tiles."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.attention.hopper import wide_backward
from kernels.attention.hopper.backward_kernel import attention_hopper_backward_kernel
from kernels.attention.hopper.prepare import attention_hopper_prepare_kernel, attention_hopper_round_kernel
from kernels.attention.hopper.tiles import fp32_layouts, largest_divisor, padded, tiles, travels
from kernels.attention.hopper.tiles import supports as supported
from kernels.attention.plain.sequences import Sequences
from kernels.attention.plain.tiles import steps
from kernels.configs import Card, card
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, descriptors, on_boundary

Shape = tuple[int, ...]

_ROWS = 64  # queries per tile: dK and dV (128 registers), S and dP (64) and the copies of P and dS (32) fill 240 registers
_KEYS = 64  # per consumer, and as many as _ROWS
_STAGES = 2  # of Q, dO and dS: 193 KB of shared memory together with K, V and the output buffer of dQ
_WAVES = 4  # of long programs of different lengths, from which on each walks over all heads that share keys
_LONG = 1 << 18  # elements of a head, from which on adding to dK and dV is short beside its products
_ROUNDED = 2048  # elements that a program rounds
_SHARED_CACHE = 18 << 20  # bytes of Q, dO and dQ that concurrent programs may share: a third of the L2 cache


def supports(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Return whether `backward` takes these tensors on this GPU."""
    return (_is_narrow(q, v) or wide_backward.fits(q, v)) and supported(q, k, v)


def _is_narrow(q: Tensor, v: Tensor) -> bool:
    """Return whether registers hold the gradients of 128 keys."""
    return q.shape[3] == v.shape[3] <= 128


def backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float, sequences: Sequences | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `forward.forward` by q, k and v, contiguous, in their dtypes. `out` and `lse` are its results.

    With `sequences`, of up to 128 columns, they are views of (rows, heads, D).
    """
    if sequences is not None:
        return _backward_sequences(dout, q, k, v, out, lse, causal, scale, sequences)
    if not _is_narrow(q, v):
        return wide_backward.backward(dout, q, k, v, out, lse, causal, scale)
    dout = dout if travels(dout) else dout.clone(memory_format=torch.contiguous_format)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    strides = tuple([x.stride() for x in (q, k, v, dout)])
    launch = _plan(card(), q.dtype, q.shape, k.shape, strides, on_boundary(out, lse), causal)
    launch(dout, q, k, v, out, lse, scale, dq, dk, dv)
    return dq, dk, dv


@functools.lru_cache(maxsize=1024)
def _plan(
    on: Card, dtype: torch.dtype, q: Shape, k: Shape, strides: tuple[Shape, ...], boundaries: tuple[bool, ...], causal: bool
) -> Callable[..., None]:
    """Return the launches for shapes, and for strides of q, k, v and dO."""
    batch, heads, rows, depth = q
    kv_heads, keys = k[1:3]
    row_tiles, blocks, group = cdiv(rows, _ROWS), cdiv(keys, 2 * _KEYS), heads // kv_heads
    # A program walks over all heads that share keys, or has one if multiprocessors would be idle. Under a mask, programs are of different
    # lengths, and a few long ones read the same queries at different times.
    waves = _WAVES if causal and rows * depth >= _LONG else 1
    shared = 1 if batch * kv_heads * blocks < waves * on.processors else group
    units = batch * heads // shared
    stores = shared == group  # dK and dV; else programs add to fp32 sums
    # Under a mask, the first keys have the most queries. So programs that start together take these of several heads first, but of no more
    # heads than the cache holds. Without a mask, take one head after the other.
    section = largest_divisor(units, max(1, _SHARED_CACHE // (8 * rows * depth))) if causal else 1
    options = {"WIDTH": depth, "D": padded(depth), "BLOCK": _ROWS}
    prepare = Bound(attention_hopper_prepare_kernel, (row_tiles * batch * heads,), **options, num_warps=4)
    options = {"CAUSAL": causal, "ROWS": _ROWS, "KEYS": _KEYS, "STAGES": _STAGES, "WIDTH": 0}
    multiply = Bound(attention_hopper_backward_kernel, (section, blocks, units // section), **options, num_warps=4)
    n_queries, n_keys = (batch * n * length * depth for n, length in ((heads, rows), (kv_heads, keys)))
    round_query, round_keys = (
        Bound(attention_hopper_round_kernel, (cdiv(n, _ROUNDED),), BLOCK=_ROUNDED, num_warps=4) for n in (n_queries, n_keys)
    )

    vector, _ = fp32_layouts()
    of_q, of_v, of_dout = (descriptors(lambda x, n=n: tiles(x, n)) for n in (_ROWS, _KEYS, _ROWS))
    # Half of K's columns, one consumer's share of dQ's product, are then whole panels.
    of_k = descriptors(lambda x: tiles(x, _KEYS, swizzle=padded(depth)))
    of_vector = descriptors(lambda x: TensorDescriptor(x, [len(x)], [1], [_ROWS], vector))
    of_total = descriptors(_sums)
    of_gradient = descriptors(lambda x: tiles(x, _KEYS) if stores else _sums(x))

    def launch(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, *gradients: Tensor) -> None:
        dq, dk, dv = gradients
        start, delta = (torch.empty(batch * heads * row_tiles * _ROWS, dtype=torch.float32, device=q.device) for _ in range(2))
        total = torch.empty((units // section, shared * section, rows, depth), dtype=torch.float32, device=q.device)
        prepare(out, dout, lse, delta, start, total, scale, rows, row_tiles, heads, *steps(dout), None, 0)
        sums = [x if stores else torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (dk, dv)]
        given = of_q(q), of_k(k), of_v(v), of_dout(dout), of_vector(start), of_vector(delta), of_total(total)
        of_both = (of_gradient(x.view(1, -1, keys, depth)) for x in sums)
        multiply(*given, *of_both, None, None, None, scale / math.log(2), heads, group, shared, section, row_tiles, keys, 0)
        round_query(dq, total, scale, n_queries)
        if not stores:
            for x, exact in zip((dk, dv), sums, strict=True):
                round_keys(x, exact, 1.0, n_keys)

    return launch


def _sums(x: Tensor) -> Any:
    """Return a descriptor of fp32 sums for half the columns of a tile."""
    _, rounded = fp32_layouts()
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, _ROWS, padded(x.shape[3]) // 2], rounded)


def _backward_sequences(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float, sequences: Sequences
) -> tuple[Tensor, Tensor, Tensor]:
    dout = dout if travels(dout) else dout.clone(memory_format=torch.contiguous_format)
    _, heads, rows, depth = q.shape
    kv_heads, keys = k.shape[1:3]
    # Where the tiles of a sequence begin among those of all: a tile more than whole ones for each sequence before.
    all_tiles = rows // _ROWS + len(sequences.queries)
    start, delta = (torch.empty(heads * all_tiles * _ROWS, dtype=torch.float32, device=q.device) for _ in range(2))
    dq, total = (torch.empty((1, rows, heads, depth), dtype=t, device=q.device).transpose(1, 2) for t in (q.dtype, torch.float32))
    dk, dv = (torch.empty((1, keys, kv_heads, depth), dtype=q.dtype, device=q.device).transpose(1, 2) for _ in range(2))
    by_queries, tiles_of_queries = sequences.table(_ROWS, rows)
    by_keys, tiles_of_keys = sequences.table(2 * _KEYS, keys, of_keys=True)
    group = heads // kv_heads
    shared = 1 if tiles_of_keys * kv_heads < _WAVES * card().processors else group  # as in `_plan`
    stores = shared == group
    sums = [x if stores else torch.zeros_like(x, dtype=torch.float32) for x in (dk, dv)]
    strides = tuple([x.stride() for x in (q, k, v, dout)])
    grids = tiles_of_queries * heads, tiles_of_keys * heads // shared, cdiv(dq.numel(), _ROUNDED), cdiv(dk.numel(), _ROUNDED)
    key = q.dtype, q.shape, k.shape, strides, on_boundary(out, lse), causal, stores, all_tiles, grids
    launches, describe = _plan_of_sequences(card(), *key)
    prepare, multiply, round_query, round_keys = launches
    prepare(out, dout, lse, delta, start, total, scale, rows, 0, heads, *steps(dout), by_queries, all_tiles)
    described = [of(x) for of, x in zip(describe, (q, k, v, dout, start, delta, total, *sums), strict=True)]
    multiply(*described, dk, dv, by_keys, scale / math.log(2), heads, group, shared, 1, 0, keys, all_tiles)
    round_query(dq, total, scale, dq.numel())
    if not stores:
        for x, exact in zip((dk, dv), sums, strict=True):
            round_keys(x, exact, 1.0, x.numel())
    return dq, dk, dv


@functools.lru_cache(maxsize=1024)
def _plan_of_sequences(
    on: Card,
    dtype: torch.dtype,
    q: Shape,
    k: Shape,
    strides: tuple[Shape, ...],
    boundaries: tuple[bool, ...],
    causal: bool,
    stores: bool,
    all_tiles: int,
    grids: tuple[int, ...],
) -> tuple[list[Bound], list[Callable[[Tensor], Any]]]:
    """Return the four launches, and what describes the nine tensors that the second one takes by TMA."""
    depth = q[3]
    options: list[tuple[Any, dict[str, Any]]] = [
        (attention_hopper_prepare_kernel, {"WIDTH": depth, "D": padded(depth), "BLOCK": _ROWS}),
        (attention_hopper_backward_kernel, {"CAUSAL": causal, "ROWS": _ROWS, "KEYS": _KEYS, "STAGES": _STAGES, "WIDTH": depth}),
        *[(attention_hopper_round_kernel, {"BLOCK": _ROUNDED})] * 2,
    ]
    launches = [Bound(kernel, (grid,), **each, num_warps=4) for (kernel, each), grid in zip(options, grids, strict=True)]
    vector, _ = fp32_layouts()

    def of_vector(x: Tensor) -> Any:
        return TensorDescriptor(x, [len(x)], [1], [_ROWS], vector)

    def of_rows(x: Tensor) -> Any:
        return tiles(x, _ROWS)

    def of_keys(x: Tensor) -> Any:
        return tiles(x, _KEYS, swizzle=padded(depth))

    def of_values(x: Tensor) -> Any:
        return tiles(x, _KEYS)

    of_gradient = of_values if stores else _sums
    each = of_rows, of_keys, of_values, of_rows, of_vector, of_vector, _sums, of_gradient, of_gradient
    return launches, [descriptors(of) for of in each]
