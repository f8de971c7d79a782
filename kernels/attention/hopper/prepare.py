"""What both designs of the backward for Hopper compute first, a number a query, and how one of them rounds its sums."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attention_hopper_prepare_kernel(
    out, dout, lse, delta, start, dq, scale, rows, row_tiles, heads, batch_stride, head_stride, row_stride,
    WIDTH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write -delta, -lse / scale, and zeros to dQ if there is one. Rows that pad the last tile start from -inf, so that their P is zero."""
    pair = (tl.program_id(0) // row_tiles).to(tl.int64)
    row = tl.program_id(0) % row_tiles * BLOCK + tl.arange(0, BLOCK)
    flat = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, D)
    valid = row < rows
    inside = valid[:, None] & (column < WIDTH)
    here = row.to(tl.int64)[:, None] * WIDTH + column
    o = tl.load(out + pair * rows * WIDTH + here, mask=inside, other=0.0).to(tl.float32)
    there = pair // heads * batch_stride + pair % heads * head_stride + row.to(tl.int64)[:, None] * row_stride + column
    do = tl.load(dout + there, mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + flat, -tl.sum(o * do, 1))
    tl.store(start + flat, tl.load(lse + pair * rows + row, mask=valid, other=float("inf")) / -scale)
    if dq is not None:
        tl.store(dq + pair * rows * WIDTH + here, tl.zeros([BLOCK, D], tl.float32), mask=inside)


@triton.jit
def attention_hopper_round_kernel(out, sums, scale, n_elements, BLOCK: tl.constexpr):
    """Write fp32 sums times `scale` in the dtype of `out`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_elements
    tl.store(out + at, (tl.load(sums + at, mask=inside) * scale).to(out.dtype.element_ty), mask=inside)
