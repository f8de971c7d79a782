"""The backward kernel of attention in plain Triton for the gradient of queries, see `backward.py`."""

import triton
import triton.language as tl

from kernels.attention.plain.tiles import (
    exponential,
    kept,
    load_tile,
    placed,
    placed_in_sequence,
    product,
    rows_by_rows,
    store_tile,
    visible,
    with_mask,
)


@triton.jit
def _block(
    q_tile, dout_tile, lse, q, k, v, dout, first, reach, start, keys, scale, extra,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, TMA: tl.constexpr,
    PART: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return a block of keys, the probabilities of it, and their gradients dP."""
    mask, place, seed, threshold, kept_scale, heads = extra
    EXACT: tl.constexpr = q_tile.dtype == tl.float32 or mask is not None
    row = (first + tl.arange(0, q_tile.shape[0]))[:, None]
    k_tile = load_tile(k, start, 0, WIDTH, N, q_tile.shape[1], TMA, not MASKED)
    v_tile = load_tile(v, start, 0, V_WIDTH, N, dout_tile.shape[1], TMA, not MASKED)
    scores = rows_by_rows(q_tile, q, first, k_tile, k, start, WIDTH, PART, PRECISION)
    dp = rows_by_rows(dout_tile, dout, first, v_tile, v, start, V_WIDTH, PART, PRECISION)
    if mask is not None:
        scores = with_mask(scores, mask, place, row, (start + tl.arange(0, N))[None, :], q[4], keys, scale)
    p = exponential(scores, scale if mask is None else 1.0, lse[:, None], EXACT)
    if seed is not None:
        dp = tl.where(kept(seed, place[1] * heads + place[2], row, (start + tl.arange(0, N))[None, :], threshold), dp * kept_scale, 0.0)
    if MASKED:
        p = tl.where(visible(reach, start, keys, q_tile.shape[0], N, CAUSAL), p, 0.0)
    return k_tile, p, dp


@triton.jit(do_not_specialize=["tiles", "heads", "group", "keys", "threshold"])
def query_kernel(
    q, k, v, dout, out,
    lse_ptr, delta_ptr, dq_ptr,
    q_strides, k_strides, v_strides, dout_strides, out_strides, tiles, heads, group, rows, keys, scale, mask, mask_strides, seed, threshold,
    kept_scale, table,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, COLUMNS: tl.constexpr, V_COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, EDGE: tl.constexpr, EXACT_DELTA: tl.constexpr, TMA: tl.constexpr, PART: tl.constexpr, HEADS_FIRST: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute dQ of a tile of queries, and first delta, which is subtracted from dP.

    Delta is the row sum of dO * O. With `EXACT_DELTA` it is that of P * dP, the same without the rounding of O, by a walk of its own.
    """
    if table is None:
        tile, batch, head = placed(tiles, heads, HEADS_FIRST)
        at = tl.cast(batch * heads + head, tl.int64) * rows
        q_begin = 0
        k_begin = 0
        first = tile * M
        reach = first
    else:
        batch = 0
        tile, head, q_begin, length, k_begin, keys = placed_in_sequence(table, heads)
        at = tl.cast(head, tl.int64) * rows + q_begin
        rows = length
        first = tile * M
        reach = first + keys - rows
        if first >= rows:
            return
    q_view = (q, q_strides, batch, head, rows, q_begin)
    k_view = (k, k_strides, batch, head // group, keys, k_begin)
    v_view = (v, v_strides, batch, head // group, keys, k_begin)
    dout_view = (dout, dout_strides, batch, head, rows, q_begin)
    dout_tile = load_tile(dout_view, first, 0, V_WIDTH, M, V_COLUMNS, TMA, False)
    q_tile = load_tile(q_view, first, 0, WIDTH, M, COLUMNS, TMA, False)
    row = first + tl.arange(0, M)
    lse = tl.load(lse_ptr + at + row, mask=row < rows, other=float("inf"))
    dq = tl.zeros((M, COLUMNS), tl.float32)

    # Without masked blocks, the keys are whole blocks. Tell the compiler.
    end = tl.minimum(keys, reach + M) if CAUSAL else keys if EDGE else keys // N * N
    within = (q_tile, dout_tile, lse, q_view, k_view, v_view, dout_view, first, reach)
    extra = (mask, (mask_strides, batch, head), seed, threshold, kept_scale, heads)
    if EXACT_DELTA:
        total = tl.zeros((M,), tl.float32)
        delta = tl.zeros((M,), tl.float32)
        for start in tl.range(0, end, N):
            _, p, dp = _block(*within, start, keys, scale, extra, WIDTH, V_WIDTH, N, CAUSAL, EDGE, TMA, PART, PRECISION)
            total += tl.sum(p, 1)
            delta += tl.sum(p * dp, 1)
        delta /= tl.where(total == 0.0, 1.0, total)  # a row that sees nothing
    else:
        out_tile = load_tile((out, out_strides, batch, head, rows, q_begin), first, 0, V_WIDTH, M, V_COLUMNS, False, False)
        delta = tl.sum(dout_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    tl.store(delta_ptr + at + row, delta, mask=row < rows)
    for start in tl.range(0, end, N):
        k_tile, p, dp = _block(*within, start, keys, scale, extra, WIDTH, V_WIDTH, N, CAUSAL, EDGE, TMA, PART, PRECISION)
        dq = product(p * (dp - delta[:, None]), k_tile, dq, PRECISION)
    if table is None:
        store_tile(dq_ptr, dq * scale, at, 1, first, rows, WIDTH, M, COLUMNS)
    else:
        store_tile(dq_ptr, dq * scale, q_begin * heads + head, heads, first, rows, WIDTH, M, COLUMNS)
