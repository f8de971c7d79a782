"""Attention forward in plain Triton: a program walks over the keys of one tile of queries and corrects its softmax on the way.

Formula: Dao, "FlashAttention-2" (arXiv 2307.08691), section 3.1. Scores are never stored. The backward needs only their log-sum-exp, one
number per row.
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


@triton.jit
def _attend(
    state, q_tile, q, k, v, first, reach, clear, end, keys, scale, extra,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, V_COLUMNS: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr,
    TMA: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Process blocks of keys up to `end`. Those from `clear` on may cross the diagonal or the last key, see `_masks`.

    Under a causal mask, `reach` is the last key that query `first` sees.
    """
    acc, total, peak = state
    mask, place, seed, threshold, heads = extra
    EXACT: tl.constexpr = q_tile.dtype == tl.float32 or mask is not None
    row = (first + tl.arange(0, q_tile.shape[0]))[:, None]
    for start in tl.range(0, end, N):
        k_tile = load_tile(k, start, 0, WIDTH, N, q_tile.shape[1], TMA, MASK == "none")
        scores = rows_by_rows(q_tile, q, first, k_tile, k, start, WIDTH, PART, PRECISION)
        if mask is not None:
            scores = with_mask(scores, mask, place, row, (start + tl.arange(0, N))[None, :], q[4], keys, scale)
        if MASK == "all":
            scores = tl.where(visible(reach, start, keys, q_tile.shape[0], N, CAUSAL), scores, -float("inf"))
        elif MASK == "edge":  # noqa: SIM102 - one is decided at compile time, the other at run time
            if start >= clear:
                scores = tl.where(visible(reach, start, keys, q_tile.shape[0], N, CAUSAL), scores, -float("inf"))
        unit = scale if mask is None else 1.0
        new_peak = tl.maximum(peak, tl.max(scores, 1) * unit)
        offset = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        p = exponential(scores, unit, offset[:, None], EXACT)
        shrink = exponential(peak, 1.0, offset, True)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        if seed is not None:
            p = tl.where(kept(seed, place[1] * heads + place[2], row, (start + tl.arange(0, N))[None, :], threshold), p, 0.0)
        v_tile = load_tile(v, start, 0, V_WIDTH, N, V_COLUMNS, TMA, MASK == "none")
        acc = product(p, v_tile, acc, PRECISION)
        peak = new_peak
    return acc, total, peak


@triton.jit(do_not_specialize=["tiles", "heads", "group", "keys", "threshold"])
def forward_kernel(
    q, k, v,
    out_ptr, lse_ptr,
    q_strides, k_strides, v_strides, tiles, heads, group, rows, keys, scale, mask, mask_strides, seed, threshold, kept_scale, table,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, COLUMNS: tl.constexpr, V_COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, TMA: tl.constexpr, PART: tl.constexpr, HEADS_FIRST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend with a tile of queries: of a head, or of a head of one of the sequences in `table`, where `rows` are those of all."""
    if table is None:
        tile, batch, head = placed(tiles, heads, HEADS_FIRST)
        lse_ptr += tl.cast(batch * heads + head, tl.int64) * rows
        q_begin = 0
        k_begin = 0
        first = tile * M
        reach = first
    else:
        batch = 0
        tile, head, q_begin, length, k_begin, keys = placed_in_sequence(table, heads)
        lse_ptr += tl.cast(head, tl.int64) * rows + q_begin
        rows = length
        first = tile * M
        reach = first + keys - rows
        if first >= rows:
            return
    q_view = (q, q_strides, batch, head, rows, q_begin)
    k_view = (k, k_strides, batch, head // group, keys, k_begin)
    v_view = (v, v_strides, batch, head // group, keys, k_begin)
    q_tile = load_tile(q_view, first, 0, WIDTH, M, COLUMNS, TMA, False)
    acc = tl.zeros((M, V_COLUMNS), tl.float32)
    total = tl.zeros((M,), tl.float32)
    peak = tl.full((M,), -float("inf"), tl.float32)
    state = (acc, total, peak)

    # The number of keys of this tile in blocks without a mask. If no block has one, these are all keys; tell the compiler.
    clear = (tl.minimum(keys, reach) if CAUSAL else keys) // N * N
    end = clear if MASK == "none" else tl.minimum(keys, reach + M) if CAUSAL else keys
    within = (q_tile, q_view, k_view, v_view, first, reach)
    extra = (mask, (mask_strides, batch, head), seed, threshold, heads)
    state = _attend(state, *within, clear, end, keys, scale, extra, WIDTH, V_WIDTH, V_COLUMNS, N, CAUSAL, MASK, TMA, PART, PRECISION)

    acc, total, peak = state
    row = first + tl.arange(0, M)
    lse = peak + tl.log(total)
    if seed is not None:
        acc *= kept_scale
    if mask is not None or table is not None:
        # A row that sees nothing is zero, and so are its gradients: exp(score - inf).
        lse = tl.where(total == 0.0, float("inf"), lse)
        total = tl.where(total == 0.0, 1.0, total)
    tl.store(lse_ptr + row, lse, mask=row < rows)
    if table is None:
        store_tile(out_ptr, acc / total[:, None], tl.cast(batch * heads + head, tl.int64) * rows, 1, first, rows, V_WIDTH, M, V_COLUMNS)
    else:
        store_tile(out_ptr, acc / total[:, None], q_begin * heads + head, heads, first, rows, V_WIDTH, M, V_COLUMNS)


def _masks(needed: bool, everywhere: bool) -> str:
    """Return which blocks are masked: "none", those at the "edge" (by a branch; a causal mask always has an edge), or "all".

    A comparison per score is cheap beside fp32's products, while a branch takes registers. For other dtypes, the branch is faster.
    """
    return "none" if not needed else "all" if everywhere else "edge"


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float, tile: Tile, precision: str,
    extra: Extra = NOTHING, sequences: Sequences | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the output (B, H, L, Ev) and, in fp32, the natural logarithms of the sums of exponentials (B, H, L).

    `q` is (B, H, L, E), `k` (B, H / group, S, E) and `v` (B, H / group, S, Ev), none of them empty; `scale` is positive. With `sequences`,
    B is 1, L and S are the lengths of all together, and the output is a view of (L, H, Ev).
    """
    batch, heads, rows, width = q.shape
    keys, v_width = v.shape[-2:]
    if sequences is None:
        table, tiles = None, -(-rows // tile.m)
        out = torch.empty((batch, heads, rows, v_width), dtype=q.dtype, device=q.device)
    else:
        table, tiles = sequences.table(tile.m, rows)
        out = torch.empty((1, rows, heads, v_width), dtype=q.dtype, device=q.device).transpose(1, 2)
    lse = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    q, k, v = (reachable(readable(x)) if tile.tma else readable(x) for x in (q, k, v))
    tensors = [described(x, n) if tile.tma else x for x, n in ((q, tile.m), (k, tile.n), (v, tile.n))]
    sizes = (tiles, heads, heads // k.shape[1], rows, keys, scale)
    masks = _masks(causal or sequences is not None or keys % tile.n > 0, tile.mask_all or q.dtype == torch.float32)
    meta = {"CAUSAL": causal, "MASK": masks, "TMA": tile.tma, "PRECISION": precision, **options(tile, width, v_width)}
    forward_kernel[(tiles * batch * heads,)](*tensors, out, lse, steps(q), steps(k), steps(v), *sizes, *extra, table, **meta)
    return out, lse
