"""Attention of fp32 for Hopper: each number is split into three bf16, and tensor cores multiply these.

The parts hold all 24 bits of a number. Of the nine products of two such numbers, the three smallest are left out: they are below a
rounding of fp32. Triton's own `input_precision="bf16x6"` multiplies the same, but splits a tile again in each program that loads it, in
registers, from where it has to go to shared memory. Here, q, k, v and dO are split once, into tensors that take half as much memory again,
and tiles of them come through tensor descriptors. Only P and dS are split on the way, and those enter their products from registers.

Hopper's tensor cores round a sum toward zero at each step. So the sum over all keys or queries is made in short ones, added in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.attention.plain.tiles import padded, readable, steps
from kernels.configs import choose
from kernels.configs.attention import ATTENTION, Tile, Tiles

_ROWS = 128  # tiles divide it, so that no tile reaches into the next part or head
_FEW = 128
_WIDEST = 128
_MOST_ROWS = 2**31  # tensor descriptors count in 32 bits


@triton.jit
def _three(x):
    """Return three bf16 whose sum is `x`."""
    first = x.to(tl.bfloat16)
    rest = tl.where(tl.abs(x) == float("inf"), 0.0, x - first.to(tl.float32))
    second = rest.to(tl.bfloat16)
    return first, second, (rest - second.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _product(a, b, SCORES: tl.constexpr):
    """Return `a @ b` of two numbers in three parts, the smallest products first.

    An infinity times a part that is 0 is no number. For `SCORES`, the product of the first parts alone decides then: a score may be -inf.
    """
    a0, a1, a2 = a
    b0, b1, b2 = b
    acc = tl.dot(a0, b1, tl.dot(a1, b0, tl.dot(a0, b2, tl.dot(a1, b1, tl.dot(a2, b0)))))
    if SCORES:
        acc = tl.where(acc == acc, acc, 0.0)
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
    """Split a block of rows, with zeros past the last row and column. With the output `out`, also write `delta`, the row sums of x * out."""
    pair = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < WIDTH)
    at = x + pair // heads * x_strides[0] + pair % heads * x_strides[1] + row.to(tl.int64)[:, None] * x_strides[2] + column
    tile = tl.load(at, mask=inside, other=0.0)
    first, second, third = _three(tile)
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
    for start in tl.range(0, tl.minimum(keys, first + M) if CAUSAL else keys, N):
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
    for start in tl.range(0, tl.minimum(keys, first + M) if CAUSAL else keys, N):
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
    for block in tl.range(0, blocks * group):
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


def _tiles(query: torch.Tensor, value: torch.Tensor) -> Tiles:
    width = padded(max(query.shape[-1], value.shape[-1]))
    return next(tiles for tiles in choose(ATTENTION).in_parts if width <= tiles.width)


def supports(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> bool:
    """Return whether it takes fp32 of these shapes, and is faster than the plain kernels, which split for themselves."""
    batch, heads, rows, _ = query.shape
    fits = (
        max(query.shape[-1], value.shape[-1]) <= _WIDEST
        and batch * heads * 3 * max(rows, key.shape[2]) < _MOST_ROWS - 2 * _ROWS * batch * heads * 3
    )
    return query.dtype == torch.float32 and min(rows, key.shape[2]) >= _FEW and fits


class _Parts:
    """Three bf16 for each number of (batch, heads, rows, width), as rows of one matrix. `step`: rows of a part."""

    def __init__(self, x: torch.Tensor, out: torch.Tensor | None = None, delta: torch.Tensor | None = None) -> None:
        batch, heads, rows, width = x.shape
        self.step, columns = -(-rows // _ROWS) * _ROWS, padded(width)
        self._parts = torch.empty((batch * heads * 3 * self.step, columns), dtype=torch.bfloat16, device=x.device)
        x = readable(x)
        grid = (self.step // 32, batch * heads)
        attention_fp32_split_kernel[grid](x, steps(x), self._parts, out, delta, heads, rows, self.step, width, columns, BLOCK=32)

    def by(self, rows: int) -> TensorDescriptor:
        """Return a tensor descriptor of tiles of so many rows."""
        return TensorDescriptor.from_tensor(self._parts, [rows, self._parts.shape[1]])


def _options(tile: Tile, causal: bool) -> dict[str, object]:
    return {"M": tile.m, "N": tile.n, "CAUSAL": causal, "num_warps": tile.warps, "num_stages": tile.stages}


def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output, dense, and the natural logarithms of the sums of exponentials."""
    tile = _tiles(q, v).forward
    batch, heads, rows, _ = q.shape
    kv_heads, keys, width = v.shape[-3:]
    out = torch.empty((batch, heads, rows, width), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    queries, keys_, values = _Parts(q), _Parts(k), _Parts(v)
    count = -(-rows // tile.m)
    operands = (queries.by(tile.m), keys_.by(tile.n), values.by(tile.n))
    sizes = (count, heads // kv_heads, rows, keys, queries.step, keys_.step, scale, width, padded(width))
    attention_fp32_forward_kernel[(count * batch * heads,)](*operands, out, lse, *sizes, **_options(tile, causal))
    return out, lse


def backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k and v, dense. The arguments are those and the results of `forward`."""
    tiles = _tiles(q, v)
    batch, heads, rows, width = q.shape
    kv_heads, keys, v_width = v.shape[-3:]
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    delta = torch.empty_like(lse)
    queries, keys_, values, douts = _Parts(q), _Parts(k), _Parts(v), _Parts(dout, out.contiguous(), delta)
    sizes = (heads // kv_heads, rows, keys, queries.step, keys_.step, scale)

    def operands(tile: Tile) -> list[TensorDescriptor]:
        return [queries.by(tile.m), keys_.by(tile.n), values.by(tile.n), douts.by(tile.m)]

    tile = tiles.query
    count = -(-rows // tile.m)
    attention_fp32_query_kernel[(count * batch * heads,)](
        *operands(tile), lse, delta, dq, count, *sizes, width, padded(width), **_options(tile, causal)
    )
    tile = tiles.key_value
    count = -(-keys // tile.n)
    widths = (width, v_width, padded(width), padded(v_width))
    for wanted in ({"DK": True, "DV": False}, {"DK": False, "DV": True}) if tile.split else ({"DK": True, "DV": True},):
        attention_fp32_key_value_kernel[(count * batch * kv_heads,)](
            *operands(tile), lse, delta, dk, dv, count, *sizes, *widths, **wanted, **_options(tile, causal)
        )
    return dq, dk, dv
