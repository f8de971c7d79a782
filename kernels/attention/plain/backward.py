"""Attention backward in plain Triton: one kernel for the gradient of queries, one for those of keys and values.

Formula: Dao, "FlashAttention-2" (arXiv 2307.08691), section 3.1. Both kernels recompute the probabilities P = exp(scale Q K' - lse). So
several programs never add to the same memory, and results are bitwise reproducible. A single kernel with all three accumulators would run
out of registers. The mask is applied to every block, even if it masks nothing: a second loop without it would mostly take more registers.
"""

import torch
import triton
import triton.language as tl

from kernels.attention.plain.sequences import Sequences
from kernels.attention.plain.tiles import (
    NOTHING,
    Extra,
    described,
    exponential,
    kept,
    load_tile,
    options,
    placed,
    placed_in_sequence,
    product,
    reachable,
    readable,
    rows_by_rows,
    steps,
    store_tile,
    visible,
    with_mask,
)
from kernels.configs.attention import Tile

# Scores of a head: a tile of 64 x 64. Columns: of a matrix instruction.
FEW_SCORES, _NARROW = 64 * 64, 16


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


@triton.jit
def _sweep_queries(
    dk, dv, k_tile, v_tile, q, k, v, dout,
    lse_ptr, delta_ptr,
    first, heads, group, begin, rows, keys, reach, total, scale, extra,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, M: tl.constexpr, EVEN: tl.constexpr, GROUPED: tl.constexpr, CAUSAL: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, TMA: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Walk over the queries from `begin` on, for each head of a group. Two nested loops would take more registers.

    Under a causal mask, query i sees `reach` keys more than i + 1. `total` queries of a head are in memory.
    """
    q_ptr, q_strides, batch, q_head, _, q_begin = q
    dout_ptr, dout_strides, _, _, _, _ = dout
    head, start = q_head, begin
    mask, mask_strides, seed, threshold, kept_scale = extra
    EXACT: tl.constexpr = k_tile.dtype == tl.float32 or mask is not None
    key = (first + tl.arange(0, k_tile.shape[0]))[:, None]
    for _ in tl.range(0, tl.cdiv(rows - begin, M) * group):
        q = (q_ptr, q_strides, batch, head, rows, q_begin)
        dout = (dout_ptr, dout_strides, batch, head, rows, q_begin)
        row = start + tl.arange(0, M)
        inside = (row < rows) | EVEN
        q_tile = load_tile(q, start, 0, WIDTH, M, k_tile.shape[1], TMA, EVEN)
        # Scores are transposed, so that P' and dS' enter their products from registers.
        scores = rows_by_rows(k_tile, k, first, q_tile, q, start, WIDTH, PART, PRECISION)
        # Past the last query, P is exp(-inf) = 0, so the other values do not matter.
        at = (tl.cast(batch, tl.int64) * heads + head) * total + q_begin
        lse = tl.load(lse_ptr + at + row, mask=inside, other=float("inf"))
        if mask is not None:
            scores = with_mask(scores, mask, (mask_strides, batch, head), row[None, :], key, rows, keys, scale)
        p = exponential(scores, scale if mask is None else 1.0, lse[None, :], EXACT)
        if CAUSAL:
            p = tl.where(row[None, :] + reach >= (first + tl.arange(0, k_tile.shape[0]))[:, None], p, 0.0)
        dout_tile = load_tile(dout, start, 0, V_WIDTH, M, v_tile.shape[1], TMA, EVEN)
        factor = 1.0
        if seed is not None:
            factor = tl.where(kept(seed, batch * heads + head, row[None, :], key, threshold), kept_scale, 0.0)
        if DV:
            dv = product(p if seed is None else p * factor, dout_tile, dv, PRECISION)
        if DK:
            dp = rows_by_rows(v_tile, v, first, dout_tile, dout, start, V_WIDTH, PART, PRECISION)
            delta = tl.load(delta_ptr + at + row, mask=inside, other=0.0)
            ds = p * ((dp if seed is None else dp * factor) - delta[None, :])
            dk = product(ds, q_tile, dk, PRECISION)
        start += M
        if GROUPED:
            past = start >= rows
            head += past
            start = tl.where(past, begin, start)
    return dk, dv


@triton.jit(do_not_specialize=["tiles", "kv_heads", "group", "keys", "threshold"])
def key_value_kernel(
    q, k, v, dout,
    lse_ptr, delta_ptr, dk_ptr, dv_ptr,
    q_strides, k_strides, v_strides, dout_strides, tiles, kv_heads, group, rows, keys, scale, mask, mask_strides, seed, threshold,
    kept_scale, table,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, COLUMNS: tl.constexpr, V_COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, GROUPED: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TMA: tl.constexpr,
    PART: tl.constexpr, HEADS_FIRST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute dK and dV of a tile of keys, or one of them, summed over the query heads that share it."""
    total = rows
    if table is None:
        tile, batch, head = placed(tiles, kv_heads, HEADS_FIRST)
        # Start with the first tile of keys: most queries see it.
        first = (tiles - 1 - tile) * N
        q_begin = 0
        k_begin = 0
        reach = 0
        begin = first // M * M
    else:
        batch = 0
        tile, head, q_begin, rows, k_begin, keys = placed_in_sequence(table, kv_heads)
        first = tile * N
        reach = keys - rows
        begin = tl.maximum(first - reach, 0) // M * M
        if first >= keys:
            return
    k_view = (k, k_strides, batch, head, keys, k_begin)
    v_view = (v, v_strides, batch, head, keys, k_begin)
    k_tile = load_tile(k_view, first, 0, WIDTH, N, COLUMNS, TMA, False)
    v_tile = load_tile(v_view, first, 0, V_WIDTH, N, V_COLUMNS, TMA, False)
    dk = tl.zeros((N, COLUMNS), tl.float32)
    dv = tl.zeros((N, V_COLUMNS), tl.float32)

    if not CAUSAL:
        begin = 0
    q_view = (q, q_strides, batch, head * group, rows, q_begin)
    dout_view = (dout, dout_strides, batch, head * group, rows, q_begin)
    extra = (mask, mask_strides, seed, threshold, kept_scale)
    within = (k_tile, v_tile, q_view, k_view, v_view, dout_view, lse_ptr, delta_ptr)
    sizes = (first, kv_heads * group, group, begin, rows, keys, reach, total, scale)
    dk, dv = _sweep_queries(dk, dv, *within, *sizes, extra, WIDTH, V_WIDTH, M, EVEN, GROUPED, CAUSAL, DK, DV, TMA, PART, PRECISION)
    if table is None:
        at = tl.cast(batch * kv_heads + head, tl.int64) * keys
        step = 1
    else:
        at = k_begin * kv_heads + head
        step = kv_heads
    if DK:
        store_tile(dk_ptr, dk * scale, at, step, first, keys, WIDTH, N, COLUMNS)
    if DV:
        store_tile(dv_ptr, dv, at, step, first, keys, V_WIDTH, N, V_COLUMNS)


def _has_few_terms(rows: int, keys: int, causal: bool, width: int, v_width: int) -> bool:
    """Return whether a 16-bit gradient is a sum of so few terms that rounding each of them shows in it.

    Of many terms, the roundings cancel, and rounding the sum is what is left. Of few they do not, and PyTorch, which computes such calls
    in fp32, rounds the sum alone. Under a causal mask, only scores below it count: the first queries see few keys. A call with
    few scores takes as long as its launches, and heads narrower than a matrix instruction are padded anyway, so products of twice the
    length cost little there.
    """
    seen = min(rows, keys)
    scores = seen * (seen + 1) // 2 + (rows - seen) * keys if causal else rows * keys
    return scores <= FEW_SCORES or min(width, v_width) < _NARROW


def backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
    causal: bool, scale: float, query_tile: Tile, key_value_tile: Tile, precision: str,
    extra: Extra = NOTHING, sequences: Sequences | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the gradients of q, k and v, dense. The arguments are those and the results of `forward`."""
    batch, heads, rows, width = q.shape
    kv_heads, keys, v_width = v.shape[-3:]
    longest = (rows, keys) if sequences is None else (sequences.longest_query, sequences.longest_key)
    exact = q.dtype != torch.float32 and _has_few_terms(*longest, causal, width, v_width)
    if exact and precision != "widened":
        precision = "split"
    if sequences is None:
        dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    else:
        dq, dk, dv = (torch.empty_like(x.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2) for x in (q, k, v))
    delta = torch.empty_like(lse)
    q, k, v, dout, out = (readable(x) for x in (q, k, v, dout, out))
    if query_tile.tma or key_value_tile.tma:
        q, k, v, dout = (reachable(x) for x in (q, k, v, dout))
    strides = [steps(x) for x in (q, k, v, dout)]
    sizes = (heads // kv_heads, rows, keys, scale)

    def operands(tile: Tile) -> tuple[list[object], dict[str, object]]:
        """Return the four tensors as a kernel takes them, and the options that its tile decides."""
        tensors = [described(x, n) if tile.tma else x for x, n in ((q, tile.m), (k, tile.n), (v, tile.n), (dout, tile.m))]
        return tensors, {"CAUSAL": causal, "TMA": tile.tma, "PRECISION": precision, **options(tile, width, v_width)}

    table, tiles = sequences.table(query_tile.m, rows) if sequences else (None, -(-rows // query_tile.m))
    tensors, meta = operands(query_tile)
    meta |= {"EDGE": causal or sequences is not None or keys % query_tile.n > 0, "EXACT_DELTA": exact}
    query_kernel[(tiles * batch * heads,)](*tensors, out, lse, delta, dq, *strides, steps(out), tiles, heads, *sizes, *extra, table, **meta)
    table, tiles = sequences.table(key_value_tile.n, keys, of_keys=True) if sequences else (None, -(-keys // key_value_tile.n))
    tensors, meta = operands(key_value_tile)
    meta |= {"EVEN": sequences is None and rows % key_value_tile.m == 0, "GROUPED": heads > kv_heads}
    for wanted in ({"DK": True, "DV": False}, {"DK": False, "DV": True}) if key_value_tile.split else ({"DK": True, "DV": True},):
        key_value_kernel[(tiles * batch * kv_heads,)](
            *tensors, lse, delta, dk, dv, *strides, tiles, kv_heads, *sizes, *extra, table, **wanted, **meta
        )
    return dq, dk, dv
