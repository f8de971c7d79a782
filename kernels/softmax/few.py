"""Softmax of rows of a few columns that no 16 bytes divide, in steps of some lanes, as many as the row needs.

A tile of a power of two would leave up to half of its lanes without work, and spread a row over so many threads that exchanging a sum takes
longer than computing it. Here the steps are unrolled, and a thread has several columns of a row. Rows of 16-bit numbers of odd length go
in pairs: two rows start on four bytes, so numbers are read and written two at a time.
"""

import triton
import triton.language as tl

from kernels.softmax.rows import exp, gradient, shift


@triton.jit
def _place(n_rows, PAIR: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return a program's rows, of pairs the first ones, as a column; which of them exist; and the lanes of a step. `LAST`: the last row."""
    at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = at + n_rows - 1 if LAST else at * 2 if PAIR else at
    exists = row + 1 < n_rows if PAIR else row < n_rows
    return row[:, None], exists[:, None], tl.arange(0, LANES)[None, :]


@triton.jit
def _of_first(x, other: tl.constexpr, lane, START: tl.constexpr, N: tl.constexpr, LANES: tl.constexpr):
    """Return `x` where the step that starts with column `START` belongs to the first row of a pair, and `other` elsewhere."""
    return x if START + LANES <= N else tl.where(START + lane < N, x, other)


@triton.jit
def _of_second(x, other: tl.constexpr, lane, START: tl.constexpr, N: tl.constexpr, LANES: tl.constexpr):
    return x if START >= N else tl.where(START + lane >= N, x, other)


@triton.jit
def _by_row(first, second, lane, START: tl.constexpr, N: tl.constexpr, LANES: tl.constexpr):
    """Return, for each lane of a step, what its row has."""
    return first if START + LANES <= N else second if START >= N else tl.where(START + lane < N, first, second)


@triton.jit
def softmax_few_kernel(
    out_ptr, x_ptr,
    row_stride, n_rows,
    N: tl.constexpr, VECTOR: tl.constexpr, PAIR: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    LOG: tl.constexpr,
):  # fmt: skip
    width: tl.constexpr = 2 * N if PAIR else N
    steps: tl.constexpr = (width + LANES - 1) // LANES
    row, exists, lane = _place(n_rows, PAIR, LAST, ROWS, LANES)
    kind = out_ptr.dtype.element_ty
    # Rounding tells the compiler what divides the offsets.
    x_ptr += row * row_stride // VECTOR * VECTOR + lane
    out_ptr += row * N // VECTOR * VECTOR + lane

    first = tl.full((ROWS, LANES), -float("inf"), tl.float32)
    second = first
    columns = ()
    for step in tl.static_range(steps):
        x = tl.load(x_ptr + step * LANES, mask=exists & (step * LANES + lane < width), other=-float("inf"))
        # Round to the result's dtype first, as PyTorch does if the two differ.
        x = x.to(tl.float32).to(kind).to(tl.float32)
        columns = columns + (x,)
        if step * LANES < N:
            first = tl.maximum(first, _of_first(x, -float("inf"), lane, step * LANES, N, LANES))
        if step * LANES + LANES > N and PAIR:
            second = tl.maximum(second, _of_second(x, -float("inf"), lane, step * LANES, N, LANES))
    first_top = tl.max(first, 1)[:, None]
    second_top = tl.max(second, 1)[:, None]

    first = tl.zeros((ROWS, LANES), tl.float32)
    second = first
    powers = ()
    for step in tl.static_range(steps):
        power = exp(columns[step] - _by_row(shift(first_top), shift(second_top), lane, step * LANES, N, LANES))
        powers = powers + (power,)
        if step * LANES < N:
            first += _of_first(power, 0.0, lane, step * LANES, N, LANES)
        if step * LANES + LANES > N and PAIR:
            second += _of_second(power, 0.0, lane, step * LANES, N, LANES)
    first_total = tl.sum(first, 1)[:, None]
    second_total = tl.sum(second, 1)[:, None]

    for step in tl.static_range(steps):
        if LOG:
            y = columns[step] - _by_row(first_top, second_top, lane, step * LANES, N, LANES)
            y -= _by_row(tl.log(first_total), tl.log(second_total), lane, step * LANES, N, LANES)
        else:
            y = powers[step] * _by_row(1.0 / first_total, 1.0 / second_total, lane, step * LANES, N, LANES)
        tl.store(out_ptr + step * LANES, y.to(kind), mask=exists & (step * LANES + lane < width))


@triton.jit
def softmax_few_backward_kernel(
    dx_ptr, dy_ptr, y_ptr, n_rows,
    N: tl.constexpr, VECTOR: tl.constexpr, PAIR: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
    LOG: tl.constexpr,
):  # fmt: skip
    width: tl.constexpr = 2 * N if PAIR else N
    steps: tl.constexpr = (width + LANES - 1) // LANES
    row, exists, lane = _place(n_rows, PAIR, LAST, ROWS, LANES)
    at = row * N // VECTOR * VECTOR + lane

    first = tl.zeros((ROWS, LANES), tl.float32)
    second = first
    grads = ()
    ys = ()
    for step in tl.static_range(steps):
        inside = exists & (step * LANES + lane < width)
        dy = tl.load(dy_ptr + at + step * LANES, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at + step * LANES, mask=inside, other=0.0).to(tl.float32)
        grads = grads + (dy,)
        ys = ys + (y,)
        product = dy if LOG else dy * y
        if step * LANES < N:
            first += _of_first(product, 0.0, lane, step * LANES, N, LANES)
        if step * LANES + LANES > N and PAIR:
            second += _of_second(product, 0.0, lane, step * LANES, N, LANES)
    first_total = tl.sum(first, 1)[:, None]
    second_total = tl.sum(second, 1)[:, None]

    for step in tl.static_range(steps):
        total = _by_row(first_total, second_total, lane, step * LANES, N, LANES)
        dx = gradient(grads[step], ys[step], total, LOG).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + at + step * LANES, dx, mask=exists & (step * LANES + lane < width))
