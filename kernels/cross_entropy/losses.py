"""The loss, with every logit read once: statistics of parts of rows, then of rows, then of all rows."""

import triton
import triton.language as tl

from kernels.cross_entropy.kernels import LOG2E, NEVER, edge_columns, finite, logit_at, row_body, row_weight, weighted

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def accumulate(x, peak, total):
    """Return the largest logit and the sum of exp(logit - largest) per lane, after one more tile, with one extra exp per lane and tile."""
    x = x.to(tl.float32)
    higher = tl.maximum(peak, tl.max(x, axis=0))
    base = finite(higher)
    total = total * tl.exp2((peak - base) * LOG2E) + tl.sum(tl.exp2((x - base[None, :]) * LOG2E), axis=0)
    return higher, total


@triton.jit
def walk_kernel(
    x_ptr, target_ptr, weight_ptr, peak_ptr, total_ptr, spread_ptr, logit_ptr,
    row_stride, n_columns, columns_a_part,
    N_PARTS: tl.constexpr, SMOOTHING: tl.constexpr, EVEN: tl.constexpr, WIDTH: tl.constexpr, TILE_DEPTH: tl.constexpr,
    TILE_WIDTH: tl.constexpr,
):  # fmt: skip
    """Process one part of a row per program, read once: its largest logit, its sum of exp(logit - largest), and the smoothing's sum."""
    TILE: tl.constexpr = TILE_DEPTH * TILE_WIDTH
    row = tl.program_id(0) // N_PARTS
    part = tl.program_id(0) % N_PARTS
    start, head, body = row_body(row, row_stride, n_columns, WIDTH, EVEN)
    offsets = tl.arange(0, TILE_DEPTH)[:, None] * TILE_WIDTH + tl.arange(0, TILE_WIDTH)[None, :]
    tiles = x_ptr + tl.multiple_of(start + head, WIDTH) + offsets
    peaks = tl.full((TILE_WIDTH,), NEVER, tl.float32)
    totals = tl.zeros((TILE_WIDTH,), tl.float32)
    spreads = tl.zeros((TILE_WIDTH,), tl.float32)
    first = part * columns_a_part
    end = tl.multiple_of(tl.minimum(body, first + columns_a_part), WIDTH)
    full = first + tl.maximum(end - first, 0) // TILE * TILE
    for at in tl.range(first, full, TILE):
        x = tl.load(tiles + at)
        peaks, totals = accumulate(x, peaks, totals)
        if SMOOTHING > 0.0:
            spreads += tl.sum(weighted(x, weight_ptr, head + at + offsets, offsets >= 0), axis=0)
    if full < end:
        inside = full + offsets < end
        x = tl.load(tiles + full, mask=inside, other=NEVER)
        peaks, totals = accumulate(x, peaks, totals)
        if SMOOTHING > 0.0:
            spreads += tl.sum(weighted(x, weight_ptr, head + full + offsets, inside), axis=0)
    peak = tl.max(peaks, axis=0)
    spread = tl.sum(spreads, axis=0)
    if not EVEN:
        columns = edge_columns(head, body, WIDTH)
        inside = columns < tl.where(part == 0, n_columns, 0)
        edges = tl.load(x_ptr + start + columns, mask=inside, other=NEVER).to(tl.float32)
        peak = tl.maximum(peak, tl.max(edges, axis=0))
        if SMOOTHING > 0.0:
            spread += tl.sum(weighted(edges, weight_ptr, columns, inside), axis=0)
    total = tl.sum(totals * tl.exp2((peaks - finite(peak)) * LOG2E), axis=0)
    if not EVEN:
        total += tl.sum(tl.exp2((edges - finite(peak)) * LOG2E), axis=0)
    tl.store(peak_ptr + tl.program_id(0), peak)
    tl.store(total_ptr + tl.program_id(0), total)
    if SMOOTHING > 0.0:
        tl.store(spread_ptr + tl.program_id(0), spread)
    if part == 0:
        target = tl.load(target_ptr + row).to(tl.int64)
        tl.store(logit_ptr + row, logit_at(x_ptr, start, target, n_columns, target == target))


@triton.jit(do_not_specialize_on_alignment=["n_rows", "n_columns"])
def rows_kernel(
    target_ptr, weight_ptr, class_weight_ptr, peak_ptr, total_ptr, spread_ptr, logit_ptr, statistics_ptr, out_ptr, divisor_ptr,
    n_rows, n_columns, ignore_index,
    N_PARTS: tl.constexpr, PADDED: tl.constexpr, SMOOTHING: tl.constexpr, REDUCTION: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Combine parts into rows: write the losses of rows, or their sum per program, and their largest logits and sums."""
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = rows < n_rows
    parts = rows.to(tl.int64)[:, None] * N_PARTS + tl.arange(0, PADDED)[None, :]
    held = inside[:, None] & (tl.arange(0, PADDED) < N_PARTS)[None, :]
    peaks = tl.load(peak_ptr + parts, mask=held, other=NEVER)
    totals = tl.load(total_ptr + parts, mask=held, other=0.0)
    target = tl.load(target_ptr + rows, mask=inside, other=0).to(tl.int64)
    logit = tl.load(logit_ptr + rows, mask=inside, other=0.0)
    weight = row_weight(target, weight_ptr, n_columns, ignore_index)
    peak = tl.max(peaks, axis=1)
    total = tl.sum(totals * tl.exp2((peaks - finite(peak)[:, None]) * LOG2E), axis=1)
    tl.store(statistics_ptr + rows, peak, mask=inside)
    tl.store(statistics_ptr + n_rows + rows, total, mask=inside)
    log_total = tl.log2(total) * LN2
    loss = weight * (peak - logit + log_total)
    if SMOOTHING > 0.0:
        spread = tl.sum(tl.load(spread_ptr + parts, mask=held, other=0.0), axis=1)
        all_classes = tl.load(class_weight_ptr) if class_weight_ptr is not None else n_columns
        # The largest logit apart: added to a logarithm first, a peak of 30000 would round a thousandth of it away.
        smooth = all_classes * log_total + (all_classes * peak - spread)
        loss = (1.0 - SMOOTHING) * loss + SMOOTHING / n_columns * smooth
    loss = tl.where((target == ignore_index) | (rows >= n_rows), 0.0, loss)
    if REDUCTION == "none":
        tl.store(out_ptr + rows, loss.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        reduce(loss, tl.where(inside, weight, 0.0), out_ptr, divisor_ptr, REDUCTION)


@triton.jit
def reduce(losses, weights, out_ptr, divisor_ptr, REDUCTION: tl.constexpr):
    """Reduce losses and weights to sums, or to the mean. If all rows are ignored, this is 0 / 0, the NaN of PyTorch."""
    loss = tl.sum(losses, axis=0)
    divisor = tl.sum(weights, axis=0)
    if REDUCTION == "mean":
        loss /= divisor
    if REDUCTION == "sum":
        divisor = 1.0
    tl.store(out_ptr + tl.program_id(0), loss.to(out_ptr.dtype.element_ty))
    tl.store(divisor_ptr + tl.program_id(0), divisor)


@triton.jit
def sum_kernel(loss_ptr, weight_ptr, out_ptr, divisor_ptr, n, REDUCTION: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Add up the losses of all programs, always in the same order, so that the result is bitwise reproducible."""
    losses = tl.zeros((BLOCK_SIZE,), tl.float32)
    weights = tl.zeros((BLOCK_SIZE,), tl.float32)
    for at in tl.range(0, n, BLOCK_SIZE):
        i = at + tl.arange(0, BLOCK_SIZE)
        losses += tl.load(loss_ptr + i, mask=i < n, other=0.0)
        weights += tl.load(weight_ptr + i, mask=i < n, other=0.0)
    reduce(losses, weights, out_ptr, divisor_ptr, REDUCTION)
