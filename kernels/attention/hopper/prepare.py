"""What both designs of the backward for Hopper compute first, a number a query, and how one of them rounds its sums."""

import triton
import triton.language as tl

from kernels.attention.plain.tiles import placed_in_sequence


@triton.jit
def attention_hopper_prepare_kernel(
    out, dout, lse, delta, start, dq, scale, rows, row_tiles, heads, batch_stride, head_stride, row_stride, table, all_tiles,
    WIDTH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write -delta, -lse / scale, and zeros to dQ if there is one. Rows that pad the last tile start from -inf, so that their P is zero.

    `out` and `dq` are (batch, heads, rows, WIDTH). With `table`, which is of tiles of BLOCK queries, they are (rows, heads, WIDTH), and
    `delta` and `start` have `all_tiles` tiles a head.
    """
    if table is None:
        pair = (tl.program_id(0) // row_tiles).to(tl.int64)
        row = tl.program_id(0) % row_tiles * BLOCK + tl.arange(0, BLOCK)
        flat = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        at = pair * rows * WIDTH
        of_dout = pair // heads * batch_stride + pair % heads * head_stride
        lse += pair * rows
        step = 1
    else:
        tile, head, begin, length, _, _ = placed_in_sequence(table, heads)
        row = tile * BLOCK + tl.arange(0, BLOCK)
        first = (begin + tl.load(table + tl.program_id(0) // heads * 8 + 6) * BLOCK) // BLOCK + tile
        flat = (tl.cast(head, tl.int64) * all_tiles + first) * BLOCK + tl.arange(0, BLOCK)
        at = (tl.cast(begin, tl.int64) * heads + head) * WIDTH
        of_dout = tl.cast(head, tl.int64) * head_stride + tl.cast(begin, tl.int64) * row_stride
        lse += tl.cast(head, tl.int64) * rows + begin
        rows = length
        step = heads
        if tile * BLOCK >= rows:
            return
    column = tl.arange(0, D)
    valid = row < rows
    inside = valid[:, None] & (column < WIDTH)
    here = row.to(tl.int64)[:, None] * (step * WIDTH) + column
    o = tl.load(out + at + here, mask=inside, other=0.0).to(tl.float32)
    do = tl.load(dout + of_dout + row.to(tl.int64)[:, None] * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + flat, -tl.sum(o * do, 1))
    tl.store(start + flat, tl.load(lse + row, mask=valid, other=float("inf")) / -scale)
    if dq is not None:
        tl.store(dq + at + here, tl.zeros([BLOCK, D], tl.float32), mask=inside)


@triton.jit
def attention_hopper_round_kernel(out, sums, scale, n_elements, BLOCK: tl.constexpr):
    """Write fp32 sums times `scale` in the dtype of `out`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_elements
    tl.store(out + at, (tl.load(sums + at, mask=inside) * scale).to(out.dtype.element_ty), mask=inside)
