"""Attention of fp32 for Hopper: each number is split into three bf16, and tensor cores multiply these.

The parts hold all 24 bits of a number. Of the nine products of two such numbers, the three smallest are left out: they are below a
rounding of fp32. Triton's own `input_precision="bf16x6"` multiplies the same, but splits a tile again in each program that loads it, in
registers, from where it has to go to shared memory. Here, q, k, v and dO are split once, into tensors that take half as much memory again,
and tiles of them come through tensor descriptors. Only P and dS are split on the way, and those enter their products from registers.

Hopper's tensor cores round a sum toward zero at each step. So the sum over all keys or queries is made in short ones, added in registers.
"""

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.attention.plain.tiles import padded, readable, steps
from kernels.configs import Card, card, choose
from kernels.configs.attention import ATTENTION, Tile, Tiles
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, descriptors, on_boundary

Shape = tuple[int, ...]
_ROWS = 128  # tiles divide it, so that no tile reaches into the next part or head
_BLOCK = 32  # rows that a program splits
_WIDEST = 128
_LEAST_WORK = 2**29  # queries by keys by columns, of all heads: below, the launches take longer than is saved


@triton.jit
def _three(x):
    """Return three bf16 whose sum is `x`, which is finite."""
    first = x.to(tl.bfloat16)
    rest = x - first.to(tl.float32)
    second = rest.to(tl.bfloat16)
    return first, second, (rest - second.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _product(a, b, SCORES: tl.constexpr):
    """Return `a @ b` of two numbers in three parts, the smallest products first.

    For `SCORES`, which may be -inf, the product of the first parts alone decides where others are infinite or no number.
    """
    a0, a1, a2 = a
    b0, b1, b2 = b
    acc = tl.dot(a0, b1, tl.dot(a1, b0, tl.dot(a0, b2, tl.dot(a1, b1, tl.dot(a2, b0)))))
    if SCORES:
        acc = tl.where(tl.abs(acc) < float("inf"), acc, 0.0)
    return tl.dot(a0, b0, acc)


@triton.jit
def _load(parts, row, step):
    """Load a tile of all three parts, which are `step` rows apart."""
    return parts.load([row, 0]), parts.load([row + step, 0]), parts.load([row + 2 * step, 0])


@triton.jit
def _transposed(tile):
    first, second, third = tile
    return first.T, second.T, third.T


@triton.jit(do_not_specialize=["heads", "rows"])
def attention_fp32_split_kernel(
    x, x_strides, parts, out, delta, heads, rows, padded_rows, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr
):
    """Split a block of rows, with zeros past the last row and column. With the output `out`, also write `delta`: row sums of x * out."""
    pair = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < WIDTH)
    at = x + pair // heads * x_strides[0] + pair % heads * x_strides[1] + row.to(tl.int64)[:, None] * x_strides[2] + column
    tile = tl.load(at, mask=inside, other=0.0)
    infinite = tl.abs(tile) == float("inf")
    first, second, third = _three(tl.where(infinite, 0.0, tile))
    first = tl.where(infinite, tile, first.to(tl.float32)).to(tl.bfloat16)
    to = parts + (pair * 3 * padded_rows + row[:, None]) * COLUMNS + column
    tl.store(to, first)
    tl.store(to + padded_rows * COLUMNS, second)
    tl.store(to + 2 * padded_rows * COLUMNS, third)
    if out is not None:
        known = tl.load(out + (pair * rows + row[:, None]) * WIDTH + column, mask=inside, other=0.0)
        tl.store(delta + pair * rows + row, tl.sum(tile * known, 1), mask=row < rows)


@triton.jit(do_not_specialize=["tiles", "group", "rows", "keys"])
def attention_fp32_forward_kernel(
    q, k, v, out_ptr, lse_ptr, tiles, group, rows, keys, q_step, k_step, scale,
    V_WIDTH: tl.constexpr, V_COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute the output of a tile of queries, and lse. The last tile comes first: under a causal mask it takes longest."""
    head = tl.program_id(0) // tiles
    first = (tiles - 1 - tl.program_id(0) % tiles) * M
    q_tile = _load(q, head * 3 * q_step + first, q_step)
    row = first + tl.arange(0, M)
    last = tl.minimum(row, keys - 1) if CAUSAL else tl.full((M,), keys - 1, tl.int32)
    highest = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    out = tl.zeros((M, V_COLUMNS), tl.float32)
    for start in tl.range(0, tl.minimum(keys, first + M) if CAUSAL else keys, N, disable_licm=True):
        at_keys = head // group * 3 * k_step + start
        scores = _product(q_tile, _transposed(_load(k, at_keys, k_step)), True) * scale
        scores = tl.where((start + tl.arange(0, N))[None, :] <= last[:, None], scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == -float("inf"), 0.0, higher)  # a row of nothing but -inf so far
        p = tl.exp(scores - base[:, None])
        change = tl.exp(highest - base)
        total = total * change + tl.sum(p, 1)
        out = out * change[:, None] + _product(_three(p), _load(v, at_keys, k_step), False)
        highest = higher
    at = head.to(tl.int64) * rows + row
    column = tl.arange(0, V_COLUMNS)
    tl.store(lse_ptr + at, highest + tl.log(total), mask=row < rows)
    tl.store(out_ptr + at[:, None] * V_WIDTH + column, out / total[:, None], mask=(row < rows)[:, None] & (column < V_WIDTH))


@triton.jit(do_not_specialize=["tiles", "group", "rows", "keys"])
def attention_fp32_query_kernel(
    q, k, v, dout, lse_ptr, delta_ptr, dq_ptr, tiles, group, rows, keys, q_step, k_step, scale,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute dQ of a tile of queries. The last tile comes first: under a causal mask it takes longest."""
    head = tl.program_id(0) // tiles
    first = (tiles - 1 - tl.program_id(0) % tiles) * M
    q_tile = _load(q, head * 3 * q_step + first, q_step)
    dout_tile = _load(dout, head * 3 * q_step + first, q_step)
    row = first + tl.arange(0, M)
    at = head.to(tl.int64) * rows + row
    lse = tl.load(lse_ptr + at, mask=row < rows, other=float("inf"))
    delta = tl.load(delta_ptr + at, mask=row < rows, other=0.0)
    last = tl.minimum(row, keys - 1) if CAUSAL else tl.full((M,), keys - 1, tl.int32)
    dq = tl.zeros((M, COLUMNS), tl.float32)
    for start in tl.range(0, tl.minimum(keys, first + M) if CAUSAL else keys, N, disable_licm=True):
        at_keys = head // group * 3 * k_step + start
        k_tile = _load(k, at_keys, k_step)
        p = tl.exp(_product(q_tile, _transposed(k_tile), True) * scale - lse[:, None])
        dp = _product(dout_tile, _transposed(_load(v, at_keys, k_step)), False)
        p = tl.where((start + tl.arange(0, N))[None, :] <= last[:, None], p, 0.0)
        dq += _product(_three(p * (dp - delta[:, None])), k_tile, False)
    column = tl.arange(0, COLUMNS)
    tl.store(dq_ptr + at[:, None] * WIDTH + column, dq * scale, mask=(row < rows)[:, None] & (column < WIDTH))


@triton.jit(do_not_specialize=["tiles", "group", "rows", "keys"])
def attention_fp32_key_value_kernel(
    q, k, v, dout, lse_ptr, delta_ptr, dk_ptr, dv_ptr, tiles, group, rows, keys, q_step, k_step, scale,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, COLUMNS: tl.constexpr, V_COLUMNS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV of a tile of keys, or one of them, summed over the heads of queries that share it.

    Scores are transposed, so that P' and dS' enter their products from registers. Past the last query, P is exp(-inf) = 0.
    """
    head = tl.program_id(0) // tiles
    first = tl.program_id(0) % tiles * N
    k_tile = _load(k, head * 3 * k_step + first, k_step)
    if DK:
        v_tile = _load(v, head * 3 * k_step + first, k_step)
    dk = tl.zeros((N, COLUMNS), tl.float32)
    dv = tl.zeros((N, V_COLUMNS), tl.float32)
    key = first + tl.arange(0, N)
    begin = first // M * M if CAUSAL else 0
    blocks = tl.cdiv(tl.maximum(rows - begin, 0), M)
    for block in tl.range(0, blocks * group, disable_licm=DK != DV):
        query_head = head * group + block // blocks
        start = begin + block % blocks * M
        row = start + tl.arange(0, M)
        at = query_head.to(tl.int64) * rows + row
        q_tile = _load(q, query_head * 3 * q_step + start, q_step)
        lse = tl.load(lse_ptr + at, mask=row < rows, other=float("inf"))
        p = tl.exp(_product(k_tile, _transposed(q_tile), True) * scale - lse[None, :])
        if CAUSAL:
            p = tl.where(row[None, :] >= key[:, None], p, 0.0)
        dout_tile = _load(dout, query_head * 3 * q_step + start, q_step)
        if DV:
            dv += _product(_three(p), dout_tile, False)
        if DK:
            delta = tl.load(delta_ptr + at, mask=row < rows, other=0.0)
            dp = _product(v_tile, _transposed(dout_tile), False)
            dk += _product(_three(p * (dp - delta[None, :])), q_tile, False)
    to = (head.to(tl.int64) * keys + key)[:, None]
    if DK:
        column = tl.arange(0, COLUMNS)
        tl.store(dk_ptr + to * WIDTH + column, dk * scale, mask=(key < keys)[:, None] & (column < WIDTH))
    if DV:
        column = tl.arange(0, V_COLUMNS)
        tl.store(dv_ptr + to * V_WIDTH + column, dv, mask=(key < keys)[:, None] & (column < V_WIDTH))


def _tiles(width: int, v_width: int) -> Tiles:
    width = padded(max(width, v_width))
    return next(tiles for tiles in choose(ATTENTION).in_parts if width <= tiles.width)


def supports(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> bool:
    """Return whether it takes fp32 of these shapes, and is faster than the plain kernels, which split for themselves."""
    batch, heads, rows, width = query.shape
    keys, v_width = value.shape[2:]
    pairs, work = batch * heads, batch * heads * rows * keys * max(width, v_width) // (1 + causal)
    # The second dimension of a grid has 16 bits. Rows of a tensor descriptor, and the elements of a head, are counted in 32.
    is_counted = pairs < 2**16 and 3 * (max(rows, keys) + _ROWS) * max(pairs, _WIDEST) < 2**31
    fits = query.dtype == torch.float32 and max(width, v_width) <= _WIDEST and min(rows, keys) >= _ROWS and is_counted
    return fits and work >= _LEAST_WORK


class _Splitter:
    """Splits tensors of one shape (batch, heads, rows, width) into their parts, the rows of a matrix; `step` is how many a part has."""

    def __init__(self, shape: tuple[int, ...], *blocks: int) -> None:
        """Describe the parts for tiles of `blocks` rows."""
        batch, self._heads, self._rows, width = shape
        self.step = cdiv(self._rows, _ROWS) * _ROWS
        self._size = (batch * self._heads * 3 * self.step, padded(width))
        grid = self.step // _BLOCK, batch * self._heads
        self._split = Bound(attention_fp32_split_kernel, grid, WIDTH=width, COLUMNS=padded(width), BLOCK=_BLOCK)
        self._describe = [descriptors(lambda x, n=n: TensorDescriptor.from_tensor(x, [n, x.shape[1]])) for n in blocks]

    def __call__(self, x: Tensor, out: Tensor | None = None, delta: Tensor | None = None) -> list[TensorDescriptor]:
        parts = torch.empty(self._size, dtype=torch.bfloat16, device=x.device)
        self._split(x, steps(x), parts, out, delta, self._heads, self._rows, self.step)
        return [describe(parts) for describe in self._describe]


def _options(tile: Tile, causal: bool, **more: int) -> dict[str, Any]:
    return {**more, "M": tile.m, "N": tile.n, "CAUSAL": causal, "num_warps": tile.warps, "num_stages": tile.stages}


def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Return the output (batch, heads, rows, width of v), dense, and the natural logarithms of the sums of exponentials."""
    q, k, v = (readable(x) for x in (q, k, v))
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    strides = tuple([steps(x) for x in (q, k, v)])
    split_q, split_k, split_v, attend, sizes = _forward_plan(card(), q.shape, v.shape, strides, on_boundary(q, k, v), causal)
    attend(*split_q(q), *split_k(k), *split_v(v), out, lse, *sizes, scale)
    return out, lse


@functools.lru_cache(maxsize=1024)
def _forward_plan(on: Card, q: Shape, v: Shape, strides: tuple[Shape, ...], boundaries: Any, causal: bool) -> tuple[Any, ...]:
    """Return the launches for shapes, and for strides of q, k and v: those that split these, and the one that attends, with its sizes."""
    (batch, heads, rows, width), (kv_heads, keys, v_width) = q, v[1:]
    tile = _tiles(width, v_width).forward
    tiles = cdiv(rows, tile.m)
    split_q, split_k, split_v = _Splitter(q, tile.m), _Splitter((*v[:3], width), tile.n), _Splitter(v, tile.n)
    options = _options(tile, causal, V_WIDTH=v_width, V_COLUMNS=padded(v_width))
    attend = Bound(attention_fp32_forward_kernel, (tiles * batch * heads,), **options)
    return split_q, split_k, split_v, attend, (tiles, heads // kv_heads, rows, keys, split_q.step, split_k.step)


def backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v, dense. The arguments are those and the results of `forward`."""
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    q, k, v, dout, out = (readable(q), readable(k), readable(v), readable(dout), out.contiguous())
    strides = tuple([steps(x) for x in (q, k, v, dout)])
    plan = _backward_plan(card(), q.shape, v.shape, strides, on_boundary(q, k, v, dout, out, lse), causal)
    (split_q, split_k, split_v, split_dout), (query, query_tiles), (key_value, key_tiles), sizes = plan
    delta = torch.empty_like(lse)
    split = [split_q(q), split_k(k), split_v(v), split_dout(dout, out, delta)]
    for_query, for_keys = zip(*split, strict=True)
    query(*for_query, lse, delta, dq, query_tiles, *sizes, scale)
    for each in key_value:
        each(*for_keys, lse, delta, dk, dv, key_tiles, *sizes, scale)
    return dq, dk, dv


@functools.lru_cache(maxsize=1024)
def _backward_plan(on: Card, q: Shape, v: Shape, strides: tuple[Shape, ...], boundaries: Any, causal: bool) -> tuple[Any, ...]:
    """Return the launches for shapes, and for strides of q, k, v and dO: those that split, of queries and of keys; and their sizes."""
    (batch, heads, rows, width), (kv_heads, keys, v_width) = q, v[1:]
    of_query, of_keys = (tiles := _tiles(width, v_width)).query, tiles.key_value
    split_q, split_dout = (_Splitter((*q[:3], columns), of_query.m, of_keys.m) for columns in (width, v_width))
    split_k, split_v = (_Splitter((*v[:3], columns), of_query.n, of_keys.n) for columns in (width, v_width))
    query_tiles, key_tiles = cdiv(rows, of_query.m), cdiv(keys, of_keys.n)
    options = _options(of_query, causal, WIDTH=width, COLUMNS=padded(width))
    query = Bound(attention_fp32_query_kernel, (query_tiles * batch * heads,), **options)
    options = _options(of_keys, causal, WIDTH=width, COLUMNS=padded(width), V_WIDTH=v_width, V_COLUMNS=padded(v_width))
    wanted: list[dict[str, int]] = [{"DK": True, "DV": False}, {"DK": False, "DV": True}] if of_keys.split else [{"DK": True, "DV": True}]
    key_value = [Bound(attention_fp32_key_value_kernel, (key_tiles * batch * kv_heads,), **options, **which) for which in wanted]
    sizes = (heads // kv_heads, rows, keys, split_q.step, split_k.step)
    return (split_q, split_k, split_v, split_dout), (query, query_tiles), (key_value, key_tiles), sizes
