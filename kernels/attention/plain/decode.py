"""Attention of few queries to many keys, as in a step of decoding: the keys are split between programs, which fill the card.

A program packs all queries that share a head of K and V into one tile, so that it reads each key once for the whole group. It writes its
sum, which is not yet divided, with its highest score and its sum of exponentials; a second kernel adds up the parts. Formula: Dao et al.,
"Flash-Decoding for long-context inference" (2023).
"""

import functools

import torch
import triton
import triton.language as tl

from kernels.attention.plain.tiles import exponential, load_tile, padded, product, readable, steps
from kernels.configs import Card, card
from kernels.configs.attention import Decode
from kernels.launches.bound import Bound, on_boundary

_START = 2  # blocks of keys that a program could process while it starts, fills its pipeline and writes its part: parts are not for free


@triton.jit(do_not_specialize=["kv_heads", "group", "rows", "keys", "part"])
def attention_decode_kernel(
    q, k, v,
    out_ptr, lse_ptr, peak_ptr, total_ptr,
    q_strides, k_strides, v_strides, kv_heads, group, rows, keys, part, scale,
    WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, COLUMNS: tl.constexpr, V_COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend to one part of the keys. `WHOLE`: there is one part, so write the result; otherwise its sums, in fp32, part by part."""
    pair = tl.program_id(0)
    batch, kv_head = pair // kv_heads, pair % kv_heads
    queries = group * rows
    place = tl.arange(0, M)
    column = tl.arange(0, COLUMNS)
    head = kv_head * group + place // rows
    at = tl.cast(batch, tl.int64) * q_strides[0] + tl.cast(head, tl.int64) * q_strides[1] + tl.cast(place % rows, tl.int64) * q_strides[2]
    inside = place < queries
    q_tile = tl.load(q + at[:, None] + column[None, :], mask=inside[:, None] & (column < WIDTH)[None, :], other=0.0)
    k_view = (k, k_strides, batch, kv_head, keys, 0)
    v_view = (v, v_strides, batch, kv_head, keys, 0)
    acc = tl.zeros((M, V_COLUMNS), tl.float32)
    total = tl.zeros((M,), tl.float32)
    peak = tl.full((M,), -float("inf"), tl.float32)
    begin = tl.program_id(1) * part
    for start in tl.range(begin, tl.minimum(keys, begin + part), N):
        k_tile = load_tile(k_view, start, 0, WIDTH, N, COLUMNS, False, False)
        v_tile = load_tile(v_view, start, 0, V_WIDTH, N, V_COLUMNS, False, False)
        scores = product(q_tile, k_tile.T, None, PRECISION)
        scores = tl.where((start + tl.arange(0, N) < keys)[None, :], scores, -float("inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
        offset = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        p = exponential(scores, scale, offset[:, None], q_tile.dtype == tl.float32)
        shrink = exponential(peak, 1.0, offset, True)
        total = total * shrink + tl.sum(p, 1)
        acc = product(p, v_tile, acc * shrink[:, None], PRECISION)
        peak = new_peak
    row = (tl.cast(tl.program_id(1), tl.int64) * tl.num_programs(0) + pair) * queries + place
    wide = tl.arange(0, V_COLUMNS)
    if WHOLE:
        acc = acc / total[:, None]
        tl.store(lse_ptr + row, peak + tl.log(total), mask=inside)
    else:
        tl.store(peak_ptr + row, peak, mask=inside)
        tl.store(total_ptr + row, total, mask=inside)
    tl.store(
        out_ptr + row[:, None] * V_WIDTH + wide[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside[:, None] & (wide < V_WIDTH)[None, :]
    )


@triton.jit(do_not_specialize=["parts"])
def attention_decode_sum_kernel(
    sums, peaks, totals, out, lse, parts, V_WIDTH: tl.constexpr, V_COLUMNS: tl.constexpr, PARTS: tl.constexpr, AT_ONCE: tl.constexpr
):
    """Add up the parts of one query. A part whose scores are all -inf weighs nothing."""
    row, rows = tl.cast(tl.program_id(0), tl.int64), tl.num_programs(0)
    every = tl.arange(0, PARTS)
    peak = tl.load(peaks + every.to(tl.int64) * rows + row, mask=every < parts, other=-float("inf"))
    total = tl.load(totals + every.to(tl.int64) * rows + row, mask=every < parts, other=0.0)
    top = tl.max(peak, 0)
    offset = tl.where(top == -float("inf"), 0.0, top)
    total = tl.sum(tl.exp(peak - offset) * total, 0)
    column = tl.arange(0, V_COLUMNS)
    acc = tl.zeros((V_COLUMNS,), tl.float32)
    for start in tl.range(0, parts, AT_ONCE):
        part = start + tl.arange(0, AT_ONCE)
        at = part.to(tl.int64) * rows + row
        weight = tl.exp(tl.load(peaks + at, mask=part < parts, other=-float("inf")) - offset)
        mask = (part < parts)[:, None] & (column < V_WIDTH)[None, :]
        acc += tl.sum(weight[:, None] * tl.load(sums + at[:, None] * V_WIDTH + column[None, :], mask=mask, other=0.0), 0)
    tl.store(lse + row, top + tl.log(total))
    tl.store(out + row * V_WIDTH + column, (acc / total).to(out.dtype.element_ty), mask=column < V_WIDTH)


def supports(q: torch.Tensor, k: torch.Tensor, causal: bool, most: int) -> bool:
    """Return whether the queries that share keys are at most `most`. With a causal mask, few queries see few keys: nothing to split."""
    return not causal and q.dtype != torch.float32 and q.shape[2] * q.shape[1] // k.shape[1] <= most


@functools.lru_cache
def split(programs: int, keys: int, block: int, resident: int) -> int:
    """Return how many keys a part has, a multiple of `block`, for this many pairs of a batch and a head.

    `resident` programs run at a time. Each wave takes as long as its part and its start. So the fewest such steps win, then the fewest
    parts.
    """
    blocks = -(-keys // block)
    options = {-(-blocks // parts) for parts in range(1, min(blocks, 4 * resident) + 1)}
    return block * min(options, key=lambda each: (-(-programs * -(-blocks // each) // resident) * (each + _START), -each))


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, tile: Decode, precision: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `forward.forward` does, of the same tensors in fp16 or bf16, without a mask."""
    (batch, heads, rows, width), (kv_heads, keys, v_width) = q.shape, v.shape[1:]
    out = torch.empty((batch, heads, rows, v_width), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    q, k, v = (readable(x) for x in (q, k, v))
    part = split(batch * kv_heads, keys, tile.n, tile.resident * card().processors)
    parts = -(-keys // part)
    if parts == 1:
        sums, peaks, totals = out, lse, lse
    else:
        sums = torch.empty((parts, *out.shape), dtype=torch.float32, device=q.device)
        peaks, totals = (torch.empty((parts, *lse.shape), dtype=torch.float32, device=q.device) for _ in range(2))
    strides, group = (steps(q), steps(k), steps(v)), heads // kv_heads
    layout = q.dtype, on_boundary(q, k, v), strides
    attend, add_up = _plan(card(), *layout, (batch, heads, rows, width), kv_heads, v_width, parts, tile, precision)
    attend(q, k, v, sums, lse, peaks, totals, *strides, kv_heads, group, rows, keys, part, scale)
    if add_up:
        add_up(sums, peaks, totals, out, lse, parts)
    return out, lse


# The number of keys is not part of the plan: it grows with each step of decoding, while the cache that holds them stays.
@functools.lru_cache(maxsize=1024)
def _plan(
    on: Card, dtype: torch.dtype, boundaries: tuple[bool, ...], strides: tuple[tuple[int, ...], ...], q: tuple[int, ...],
    kv_heads: int, v_width: int, parts: int, tile: Decode, precision: str,
) -> tuple[Bound, Bound | None]:  # fmt: skip
    """Return the launch of the parts, and of the kernel that adds them up if there are several."""
    batch, heads, rows, width = q
    widths = {"V_WIDTH": v_width, "V_COLUMNS": padded(v_width)}
    sizes = {"WIDTH": width, "COLUMNS": padded(width), "M": padded(heads // kv_heads * rows), "N": tile.n, **widths}
    options = {"WHOLE": parts == 1, "PRECISION": precision, "num_warps": tile.warps, "num_stages": tile.stages, **tile.options}
    attend = Bound(attention_decode_kernel, (batch * kv_heads, parts), **sizes, **options)
    if parts == 1:
        return attend, None
    options = {"PARTS": triton.next_power_of_2(parts), "AT_ONCE": 16, **widths}
    return attend, Bound(attention_decode_sum_kernel, (batch * heads * rows,), **options, num_warps=4)
