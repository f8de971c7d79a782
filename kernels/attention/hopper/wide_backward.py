"""Launch attention backward for Hopper, heads of more than 128 columns: a kernel for dK and dV, and one for dQ."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.attention.hopper.prepare import attention_hopper_prepare_kernel
from kernels.attention.hopper.tiles import fp32_layouts, largest_divisor, padded, tiles, travels
from kernels.attention.hopper.wide_keys import attention_hopper_key_value_kernel
from kernels.attention.hopper.wide_queries import attention_hopper_query_kernel
from kernels.attention.plain.backward import FEW_SCORES
from kernels.attention.plain.tiles import steps
from kernels.configs import Card, card
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, descriptors, on_boundary

Shape = tuple[int, ...]

_ROWS = 64  # queries, and keys: of a tile
_ROOMY = 384  # columns of Q and dO together, padded, of which 227 KB of shared memory hold three tiles beside K, V and P; else two
_MANY = 16  # heads that share keys: from here on they take turns, so that all programs of a pair work on the same tiles of queries
_SHARED_CACHE = 24 << 20  # bytes of Q and dO, or K and V, that concurrent programs may share: half of the L2 cache


def fits(q: Tensor, v: Tensor) -> bool:
    """Return whether the kernels take these: more than 128 columns of queries or of values, of the other more than 64, and many scores.

    With few scores, the plain kernels take as long, and round less: docs/kernels/attention.md, "Few terms".
    """
    widths = q.shape[3], v.shape[3]
    return max(widths) > 128 and min(widths) > 64 and q.shape[2] * v.shape[2] > FEW_SCORES


def _rest(width: int) -> int:
    """Return the columns past the first 128 that products take, in panels of 64."""
    return max(0, cdiv(width, 64) * 64 - 128)


def backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by q, k and v, contiguous, in their dtypes. `out` and `lse` are the forward's results."""
    dout = dout if travels(dout) else dout.clone(memory_format=torch.contiguous_format)
    padded_rows = q.shape[0] * q.shape[1] * cdiv(q.shape[2], _ROWS) * _ROWS
    delta, start = (torch.empty(padded_rows, dtype=torch.float32, device=q.device) for _ in range(2))
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    strides = tuple([x.stride() for x in (q, k, v, dout)])
    launch = _plan(card(), q.dtype, q.shape, v.shape, strides, on_boundary(out, lse), causal)
    launch(dout, q, k, v, out, lse, scale, delta, start, dq, dk, dv)
    return dq, dk, dv


@functools.lru_cache(maxsize=1024)
def _plan(
    on: Card, dtype: torch.dtype, q: Shape, v: Shape, strides: tuple[Shape, ...], boundaries: tuple[bool, ...], causal: bool
) -> Callable[..., None]:
    """Return the three launches for shapes, and for strides of q, k, v and dO."""
    batch, heads, rows, depth = q
    kv_heads, keys, v_depth = v[1:]
    row_tiles, group = cdiv(rows, _ROWS), heads // kv_heads
    rest = {"CAUSAL": causal, "REST": _rest(depth), "V_REST": _rest(v_depth), "num_warps": 4}
    prepare = Bound(attention_hopper_prepare_kernel, (row_tiles * batch * heads,), WIDTH=v_depth, D=padded(v_depth), BLOCK=_ROWS)

    # Under a mask, the first keys have the most queries, and the last queries the most keys. So programs that start together take these of
    # several heads first, but of no more heads than the cache holds. Without a mask, take one head after the other.
    head = rows * (depth + v_depth) * dtype.itemsize
    kv_section = largest_divisor(batch * kv_heads, max(1, _SHARED_CACHE // head)) if causal else 1
    stages, grid = 3 if padded(depth) + padded(v_depth) <= _ROOMY else 2, (kv_section, cdiv(keys, _ROWS), batch * kv_heads // kv_section)
    key_value = Bound(attention_hopper_key_value_kernel, grid, STAGES=stages, **rest)
    head = keys * (depth + v_depth) * dtype.itemsize
    section = largest_divisor(batch * heads, max(1, _SHARED_CACHE // head) * group) if causal else 1
    stages, grid = 1 if min(depth, v_depth) > 128 else 2, (section, cdiv(row_tiles, 2), batch * heads // section)
    query = Bound(attention_hopper_query_kernel, grid, V_STAGES=stages, **rest)

    vector, _ = fp32_layouts()
    of_given = [descriptors(lambda x: tiles(x, _ROWS)) for _ in range(4)]
    of_vectors = [descriptors(lambda x: TensorDescriptor(x, [len(x)], [1], [_ROWS], vector)) for _ in range(2)]
    of_dq = descriptors(lambda x: tiles(x.view(-1, section, rows, depth), _ROWS))
    of_dk = descriptors(lambda x: tiles(x.view(-1, kv_section, keys, depth), _ROWS))
    of_dv = descriptors(lambda x: tiles(x.view(-1, kv_section, keys, v_depth), _ROWS))

    def launch(dout, q, k, v, out, lse, scale, delta, start, dq, dk, dv):
        prepare(out, dout, lse, delta, start, None, scale, rows, row_tiles, heads, *steps(dout), None, 0)
        given = [of(x) for of, x in zip(of_given, (q, k, v, dout), strict=True)]
        vectors = [of(x) for of, x in zip(of_vectors, (start, delta), strict=True)]
        together = group if group >= _MANY else 1
        key_value(*given, *vectors, of_dk(dk), of_dv(dv), scale, kv_heads, group, together, kv_section, row_tiles)
        query(*given, of_dq(dq), start, delta, scale, heads, group, section, row_tiles, keys)

    return launch
