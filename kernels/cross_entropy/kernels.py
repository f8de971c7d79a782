"""Shared by the kernels of cross entropy, and the gradient from the statistics that the forward kept.

A row of logits need not start or end on a 16-byte boundary. Masks at its true bounds would shrink every load to one element. So a row is
split into its *body*, from the first boundary to the last, with 16-byte accesses only, and its *edges*, fewer than 16 elements before and
after, with one small access. Rows that start and end on boundaries are all body (`EVEN`).
"""

import triton
import triton.language as tl

# exp(x) is exp2(x * LOG2E): the hardware only has exp2.
LOG2E = tl.constexpr(1.4426950408889634)
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
