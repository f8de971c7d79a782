"""The kernels of cross entropy: statistics of parts of rows, of rows, and of all rows; and the gradient, from these or in the same launch.

A row of logits need not start or end on a 16-byte boundary. Masks at its true bounds would shrink every load to one element. So a row is
split into its *body*, from the first boundary to the last, with 16-byte accesses only, and its *edges*, fewer than 16 elements before and
after, with one small access. Rows that start and end on boundaries are all body (`EVEN`).
"""

import triton
import triton.language as tl

from kernels.exchange import again, collect, publish

# exp(x) is exp2(x * LOG2E): the hardware only has exp2.
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
NEVER = tl.constexpr(-float("inf"))


@triton.jit
def row_body(row, row_stride, n_columns, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    """Return where a row starts, the number of elements before its body, and the body's length: a multiple of WIDTH."""
    start = row.to(tl.int64) * row_stride
    if EVEN:
        head = 0
        body = tl.multiple_of(n_columns, WIDTH)
    else:
        head = tl.minimum(((WIDTH - start % WIDTH) % WIDTH).to(tl.int32), n_columns)
        body = tl.multiple_of((n_columns - head) // WIDTH * WIDTH, WIDTH)
    return start, head, body


@triton.jit
def edge_columns(head, body, WIDTH: tl.constexpr):
    """Return the columns outside of the body. Those past the last column do not exist."""
    i = tl.arange(0, 2 * WIDTH)
    return tl.where(i < head, i, i + body)


@triton.jit
def finite(peak):
    """Return the largest logit, or 0 if that is -inf, so that -inf minus it stays -inf."""
    return tl.where(peak == NEVER, 0.0, peak)


@triton.jit
def sum_of(x, SHORT: tl.constexpr):
    """Return the sum of a block; with `SHORT`, added in several short sums and not in one long one.

    A thread adds its numbers one after the other, up to 64 of a block in fp32. If an early one is 1 and the others are small, each of them
    loses what does not fit beside 1: the sum of a row that one logit dominates was off by several units in its last place. The quarters of
    a block have the same threads: nothing moves between them.
    """
    N: tl.constexpr = x.shape[0]
    if SHORT and N >= 1024:
        x = tl.sum(tl.reshape(x, (4, N // 4)), axis=0)
    return tl.sum(x, axis=0)


@triton.jit
def weighted(x, weight_ptr, columns, inside):
    """Return logits times the weights of their classes, the terms of label smoothing; 0 outside."""
    x = x.to(tl.float32)
    if weight_ptr is not None:
        x *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, x, 0.0)


@triton.jit
def row_weight(target, weight_ptr, n_columns, ignore_index):
    """Return the weights of rows: that of their target's class, 0 if ignored, NaN if it is no column. Never reads past the weights."""
    is_column = (target >= 0) & (target < n_columns)
    weight = tl.where(is_column, 1.0, float("nan"))
    if weight_ptr is not None:
        weight *= tl.load(weight_ptr + target, mask=is_column, other=0.0).to(tl.float32)
    return tl.where(target == ignore_index, 0.0, weight)


@triton.jit
def logit_at(x_ptr, start, target, n_columns, wanted):
    """Return the logit of a target, 0 if it is no column."""
    return tl.load(x_ptr + start + target, mask=wanted & (target >= 0) & (target < n_columns), other=0.0).to(tl.float32)


@triton.jit
def factor_of(scale, weight, class_weight_ptr, n_columns, SMOOTHING: tl.constexpr):
    """Return the factor of the softmax in the gradient: the sum of what its targets subtract from it."""
    if SMOOTHING > 0.0:
        class_weight = tl.load(class_weight_ptr) if class_weight_ptr is not None else n_columns
        weight = (1.0 - SMOOTHING) * weight + SMOOTHING / n_columns * class_weight
    return scale * weight


@triton.jit
def at_target(scale, weight, SMOOTHING: tl.constexpr):
    """Return what the gradient subtracts at the target."""
    return scale * weight * (1.0 - SMOOTHING)


@triton.jit
def spread_of(columns, scale, weight_ptr, inside, n_columns, SMOOTHING: tl.constexpr):
    """Return what label smoothing subtracts at each column."""
    spread = tl.full(columns.shape, scale * SMOOTHING / n_columns, tl.float32)
    if weight_ptr is not None:
        spread *= tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    return spread


@triton.jit
def write_edges(x_ptr, out_ptr, columns, base, factor, target, scale, weight, weight_ptr, n_columns, SMOOTHING: tl.constexpr):
    """Write the gradient of a row's edges, a few elements."""
    inside = columns < n_columns
    x = tl.load(x_ptr + columns, mask=inside, other=NEVER).to(tl.float32)
    gradient = tl.exp2((x - base) * LOG2E) * factor - tl.where(columns == target.to(tl.int32), at_target(scale, weight, SMOOTHING), 0.0)
    if SMOOTHING > 0.0:
        gradient -= spread_of(columns, scale, weight_ptr, inside, n_columns, SMOOTHING)
    tl.store(out_ptr + columns, gradient.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_of(upstream_ptr, upstream_stride, divisors_ptr, row, is_ignored, DIVISORS: tl.constexpr):
    """Return the factor of a row's loss: the incoming gradient over the mean's divisor, which is in parts."""
    scale = 1.0
    if divisors_ptr is not None:
        scale /= tl.sum(tl.load(divisors_ptr + tl.arange(0, DIVISORS)), axis=0)
    if upstream_ptr is not None:
        scale *= tl.load(upstream_ptr + row * upstream_stride).to(tl.float32)
    return tl.where(is_ignored, 0.0, scale)


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


@triton.jit(do_not_specialize_on_alignment=["n_rows", "n_parts"])
def gradient_kernel(
    x_ptr, out_ptr, target_ptr, weight_ptr, class_weight_ptr, upstream_ptr, divisors_ptr, statistics_ptr,
    row_stride, out_stride, upstream_stride, n_rows, n_columns, n_parts, ignore_index,
    SMOOTHING: tl.constexpr, EVEN: tl.constexpr, WIDTH: tl.constexpr, PART: tl.constexpr, DIVISORS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one part of a row per program, from what the forward kept. `out_ptr` may be `x_ptr`."""
    row = tl.program_id(0) // n_parts
    part = tl.program_id(0) % n_parts
    start, head, body = row_body(row, row_stride, n_columns, WIDTH, EVEN)
    offsets = part * PART + tl.arange(0, PART)
    inside = offsets < body
    x = tl.load(x_ptr + tl.multiple_of(start + head, WIDTH) + offsets, mask=inside, other=NEVER)
    target = tl.load(target_ptr + row).to(tl.int64)
    weight = row_weight(target, weight_ptr, n_columns, ignore_index)
    scale = scale_of(upstream_ptr, upstream_stride, divisors_ptr, row, target == ignore_index, DIVISORS)
    peak = tl.load(statistics_ptr + row)
    factor = factor_of(scale, weight, class_weight_ptr, n_columns, SMOOTHING) / tl.load(statistics_ptr + n_rows + row)
    p = tl.exp2((x.to(tl.float32) - peak) * LOG2E) * factor
    gradient = p - tl.where(head + offsets == target.to(tl.int32), at_target(scale, weight, SMOOTHING), 0.0)
    if SMOOTHING > 0.0:
        gradient -= spread_of(head + offsets, scale, weight_ptr, inside, n_columns, SMOOTHING)
    # The two strides differ by a multiple of WIDTH, so the bodies of both rows have the same columns.
    out_start = row.to(tl.int64) * out_stride
    out = out_ptr + tl.multiple_of(out_start + head, WIDTH) + offsets
    tl.store(out, gradient.to(out_ptr.dtype.element_ty), mask=inside, cache_modifier=".cs")
    if not EVEN:
        columns = edge_columns(head, body, WIDTH)
        if part == 0:
            write_edges(x_ptr + start, out_ptr + out_start, columns, peak, factor, target, scale, weight, weight_ptr, n_columns, SMOOTHING)


@triton.jit(do_not_specialize_on_alignment=["n_tiles", "tiles_a_row"])
def scale_kernel(x_ptr, upstream_ptr, upstream_stride, row_stride, n_columns, n_tiles, tiles_a_row, BLOCK_SIZE: tl.constexpr):
    """Multiply rows by the incoming gradient. If it is 1, nothing is read or written, and the host need not know."""
    # Add and cast, because an argument of 1 is a constant and not a tensor.
    end = tl.full((), 0, tl.int32) + n_tiles
    if upstream_stride == 0:
        end = tl.where(tl.load(upstream_ptr) == 1.0, 0, end)
    for tile in tl.range(tl.program_id(0), end, tl.num_programs(0)):
        row = tile // tiles_a_row
        upstream = tl.load(upstream_ptr + row * upstream_stride).to(tl.float32)
        columns = tile % tiles_a_row * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        inside = columns < n_columns
        x = x_ptr + row * tl.cast(row_stride, tl.int64) + columns
        tl.store(x, (tl.load(x, mask=inside).to(tl.float32) * upstream).to(x_ptr.dtype.element_ty), mask=inside)


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
    """Process one part of a row per program: compute what `walk_kernel` does, and overwrite the logits with the gradient.

    Every logit is read once: the part stays in registers. Each program publishes the largest logit and the sum of its part as one word,
    which is zero before that, and waits for the words of the row's other parts. Programs start in the order of their numbers, so the
    awaited ones are running, or will start next.
    """
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
