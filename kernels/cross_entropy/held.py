"""Losses and gradient with every logit read once and overwritten: a program per part holds its part of the row in registers.

Each program publishes the largest logit and the sum of its part as one 64-bit word, which is zero before that, and waits for the words of
the row's other parts. The row itself stays in registers. Programs start in the order of their numbers, so the awaited ones are running, or
will start next.
"""

import triton
import triton.language as tl

from kernels.cross_entropy.kernels import (
    LOG2E,
    NEVER,
    at_target,
    edge_columns,
    factor_of,
    finite,
    logit_at,
    row_body,
    row_weight,
    scale_of,
    spread_of,
    sum_of,
    weighted,
    write_edges,
)
from kernels.exchange import again, collect, publish


@triton.jit(do_not_specialize_on_alignment=["n_rows", "n_columns", "n_words"])
def prepare_kernel(target_ptr, weight_ptr, divisors_ptr, words_ptr, n_rows, n_columns, n_words, ignore_index, BLOCK_SIZE: tl.constexpr):
    """Compute the mean's divisor (the weights of all rows) in as many parts as there are programs, and clear the words."""
    step = tl.num_programs(0) * BLOCK_SIZE
    first = tl.program_id(0) * BLOCK_SIZE
    weights = tl.zeros((BLOCK_SIZE,), tl.float32)
    for at in tl.range(first, n_rows, step):
        rows = at + tl.arange(0, BLOCK_SIZE)
        target = tl.load(target_ptr + rows, mask=rows < n_rows, other=0).to(tl.int64)
        weights += tl.where(rows < n_rows, row_weight(target, weight_ptr, n_columns, ignore_index), 0.0)
    tl.store(divisors_ptr + tl.program_id(0), tl.sum(weights, axis=0))
    for at in tl.range(first, n_words, step):
        words = at + tl.arange(0, BLOCK_SIZE)
        tl.store(words_ptr + words, tl.zeros((BLOCK_SIZE,), tl.int64), mask=words < n_words)


@triton.jit
def held_kernel(
    x_ptr, target_ptr, weight_ptr, class_weight_ptr, upstream_ptr, divisors_ptr, words_ptr, peak_ptr, total_ptr, spread_ptr, logit_ptr,
    row_stride, n_columns, segment, ignore_index,
    SMOOTHING: tl.constexpr, EVEN: tl.constexpr, WIDTH: tl.constexpr, PART: tl.constexpr, N_PARTS: tl.constexpr, PADDED: tl.constexpr,
    DIVISORS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Process one part of a row per program: compute what `walk_kernel` does, and overwrite the logits with the gradient."""
    # In half precision the result's rounding hides a long sum's. A lane has up to 128 numbers there, and short sums took 13 to 21 % longer.
    SHORT: tl.constexpr = x_ptr.dtype.element_ty == tl.float32
    row = tl.program_id(0) // N_PARTS
    part = tl.program_id(0) % N_PARTS
    start, head, body = row_body(row, row_stride, n_columns, WIDTH, EVEN)
    first = tl.multiple_of(part * segment, WIDTH)
    length = tl.multiple_of(tl.minimum(segment, body - first), WIDTH)
    lanes = tl.arange(0, PART)
    inside = lanes < length
    columns = head + first + lanes
    tile = x_ptr + tl.multiple_of(start + head, WIDTH) + first + lanes
    logits = tl.load(tile, mask=inside, other=NEVER, eviction_policy="evict_last")
    peak = tl.max(logits.to(tl.float32), axis=0)
    # The first part handles the edges. Their few elements are read three times, at no cost for the other parts.
    has_edges = (part == 0) & (body < n_columns)
    edge = edge_columns(head, body, WIDTH)
    if has_edges:
        edges = tl.load(x_ptr + start + edge, mask=edge < n_columns, other=NEVER).to(tl.float32)
        peak = tl.maximum(peak, tl.max(edges, axis=0))
    base = finite(peak)
    total = sum_of(tl.exp2((again(logits, PACKED).to(tl.float32) - base) * LOG2E), SHORT)
    if has_edges:
        edges = tl.load(x_ptr + start + edge, mask=edge < n_columns, other=NEVER).to(tl.float32)
        total += tl.sum(tl.exp2((edges - base) * LOG2E), axis=0)
    words_ptr += row.to(tl.int64) * N_PARTS
    if N_PARTS > 1:
        publish(words_ptr + part, peak, total)

    # Everything that needs no other part is done before waiting for them.
    tl.store(peak_ptr + tl.program_id(0), peak)
    tl.store(total_ptr + tl.program_id(0), total)
    target = tl.load(target_ptr + row).to(tl.int64)
    # The program that overwrites the target's logit reads it first.
    in_part = (target >= head + first) & (target < head + first + length)
    in_edges = (target < head) | (target >= head + body)
    is_owner = tl.where(part == 0, in_part | in_edges, in_part)
    logit = logit_at(x_ptr, start, target, n_columns, is_owner)
    if is_owner:
        tl.store(logit_ptr + row, logit)
    weight = row_weight(target, weight_ptr, n_columns, ignore_index)
    scale = scale_of(upstream_ptr, 1, divisors_ptr, row, target == ignore_index, DIVISORS)
    factor = factor_of(scale, weight, class_weight_ptr, n_columns, SMOOTHING)
    if SMOOTHING > 0.0:
        spread = sum_of(weighted(again(logits, PACKED), weight_ptr, columns, inside), SHORT)
        if has_edges:
            edges = tl.load(x_ptr + start + edge, mask=edge < n_columns, other=NEVER).to(tl.float32)
            spread += tl.sum(weighted(edges, weight_ptr, edge, edge < n_columns), axis=0)
        tl.store(spread_ptr + tl.program_id(0), spread)
    if N_PARTS > 1:
        peaks, totals = collect(words_ptr, N_PARTS, PADDED)
        highest = tl.max(peaks, axis=0)
        row_total = tl.sum(totals * tl.exp2((peaks - finite(highest)) * LOG2E), axis=0)
        factor *= tl.exp2((peak - highest) * LOG2E) / row_total
    else:
        # A row of only -inf gives NaN, as in PyTorch.
        factor *= tl.exp2((peak - peak) * LOG2E) / total
    tl.debug_barrier()  # no warp writes before all have read
    gradient = tl.exp2((again(logits, PACKED).to(tl.float32) - base) * LOG2E) * factor
    if SMOOTHING > 0.0:
        gradient -= spread_of(columns, scale, weight_ptr, inside, n_columns, SMOOTHING)
    tl.store(tile, gradient.to(x_ptr.dtype.element_ty), mask=inside)
    if has_edges:
        write_edges(x_ptr + start, x_ptr + start, edge, base, factor, target, scale, weight, weight_ptr, n_columns, SMOOTHING)
    if in_part:
        # Handle the target's column separately: comparing it with every column would take registers and time.
        tl.debug_barrier()
        taken = at_target(scale, weight, SMOOTHING) + scale * weight * (SMOOTHING / n_columns)
        tl.store(x_ptr + start + target, (tl.exp2((logit - base) * LOG2E) * factor - taken).to(x_ptr.dtype.element_ty))
