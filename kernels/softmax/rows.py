"""Softmax of rows with adjacent elements: each element is read once, kept in registers, and written once.

Short rows share a program. A long row is split between several programs, which exchange the maximum and the sum of their parts.
"""

import triton
import triton.language as tl

from kernels.exchange import again, collect, publish


@triton.jit
def exp(x):
    # The hardware's exponential has base 2.
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def careful_exp(x):
    # Rounding x log2(e) would cause an error proportional to x. So the whole powers of 2 are split off first, in two pieces (Cody and
    # Waite). The bound turns -inf into 0, and passes NaN.
    x = tl.where(x < -110.0, -110.0, x)
    whole = tl.floor(x * 1.4426950408889634 + 0.5)
    return exp((x - whole * 0.693359375) + whole * 2.12194440e-4) * tl.exp2(whole)


@triton.jit
def _place(program, n_rows, split, ROWS: tl.constexpr):
    """Return the rows of a program, which of them exist, and which part of them it processes."""
    rows = (program // split).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return rows, rows < n_rows, tl.full((ROWS,), program % split, tl.int64)


@triton.jit
def _body(rows, part, row_stride, n_columns, segment, VECTOR: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr):
    """Return the offsets of a chunk's elements in this part of each row's body, their lanes, and how many elements the part has.

    Rows of odd length start anywhere. Their body starts at the next 16 bytes and ends with the last whole 16 bytes; with any other bound,
    each element would be loaded separately. Without `EDGES`, the body is the row, and rounding tells the compiler about divisibility.
    """
    start = rows * row_stride
    first = (tl.cdiv(start, VECTOR) if EDGES else start // VECTOR) * VECTOR
    head = tl.minimum(first - start, n_columns).to(tl.int32)
    length = (n_columns - head) // VECTOR * VECTOR
    segment = segment // VECTOR * VECTOR
    begin = part * segment
    lane = tl.arange(0, WIDTH)[None, :]
    return (first + begin)[:, None] + lane, lane, segment, (length - begin)[:, None]


@triton.jit
def _inside(exists, lane, segment, left):
    # Three conditions, and not one bound: the compiler would not know what divides it, and mask each element.
    return exists[:, None] & (lane < segment) & (lane < left)


@triton.jit
def _edges(rows, exists, part, n_columns, VECTOR: tl.constexpr, EDGES: tl.constexpr):
    """Return the offsets of the elements before and after each row's body (fewer than `VECTOR` each), and which exist.

    The first part handles them. `EDGES` lanes, at least twice `VECTOR`, share them.
    """
    start = rows * n_columns
    head = tl.minimum(tl.cdiv(start, VECTOR) * VECTOR - start, n_columns)[:, None]
    tail = head + (n_columns - head) // VECTOR * VECTOR
    lane = tl.arange(0, EDGES)[None, :]
    columns = tl.where(lane < VECTOR, lane, tail + lane - VECTOR)
    inside = (lane < head) | ((lane >= VECTOR) & (columns < n_columns))
    return start[:, None] + columns, inside & exists[:, None] & (part == 0)[:, None]


@triton.jit
def _load(ptr, inside, other: tl.constexpr):
    # Results then leave the cache first: 3 % faster on an H200 for rows that are read only once.
    return tl.load(ptr, mask=inside, other=other, eviction_policy="evict_last")


@triton.jit
def _rounded(x, kind: tl.constexpr):
    # To the result's dtype first, as PyTorch does if the two differ.
    return x.to(tl.float32).to(kind).to(tl.float32)


@triton.jit
def shift(top):
    # The value to subtract: -inf minus -inf would be NaN.
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def _sum_of(x, SHORT: tl.constexpr):
    # A thread adds its numbers one after the other. If an early one is 1, each small one loses what does not fit beside it: a row that one
    # element dominates was off by 14 to 31 eps on an H200. The quarters of a row have the same threads: nothing moves between them.
    if SHORT:
        x = tl.sum(tl.reshape(x, (x.shape[0], 4, x.shape[1] // 4)), axis=1)
    return tl.sum(x, axis=1)


@triton.jit(do_not_specialize_on_alignment=["split"])
def softmax_kernel(
    out_ptr, x_ptr, slots_ptr,
    row_stride, n_rows, n_columns, split, segment,
    LOG: tl.constexpr, PHASE: tl.constexpr, PACKED: tl.constexpr, VECTOR: tl.constexpr, EDGES: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, CHUNKS: tl.constexpr, SLOTS: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    rows, exists, part = _place(program, n_rows, split, ROWS)
    x_at, lane, segment, left = _body(rows, part, row_stride, n_columns, segment, VECTOR, EDGES, WIDTH)
    out_at, _, _, _ = _body(rows, part, n_columns, n_columns, segment, VECTOR, EDGES, WIDTH)
    kind = out_ptr.dtype.element_ty
    if EDGES:
        # Loaded before the body and used after it. Loaded after it, they would give their layout to the whole row, which then passes
        # through shared memory: 333 columns took 1.4 times as long, on two H200s.
        edge_at, at_edge = _edges(rows, exists, part, n_columns, VECTOR, EDGES)
        edge = tl.load(x_ptr + edge_at, mask=at_edge, other=-float("inf"))
    chunks, inside = (), ()
    for i in tl.static_range(CHUNKS):
        inside += (_inside(exists, lane + i * WIDTH, segment, left),)
        chunks += (_load(x_ptr + x_at + i * WIDTH, inside[i], -float("inf")),)
    tops = _rounded(chunks[0], kind)
    for i in tl.static_range(1, CHUNKS):
        tops = tl.maximum(tops, _rounded(chunks[i], kind))
    top = tl.max(tops, axis=1)
    if EDGES:
        edge = _rounded(edge, kind)
        top = tl.maximum(top, tl.max(edge, axis=1))

    # Padding is -inf and adds nothing. A row of only -inf has a total of 0 and becomes NaN, as in PyTorch.
    totals = exp(_rounded(again(chunks[0], PACKED), kind) - shift(top)[:, None])
    for i in tl.static_range(1, CHUNKS):
        totals += exp(_rounded(again(chunks[i], PACKED), kind) - shift(top)[:, None])
    total = _sum_of(totals, SHORT)
    if EDGES:
        total += tl.sum(exp(edge - shift(top)[:, None]), axis=1)
    if PHASE != "whole":
        slots_ptr += rows * split
        if PHASE != "finish":
            publish(slots_ptr + part, top, total)
        if PHASE == "publish":
            return
        tops, totals = collect(slots_ptr, split, SLOTS)
        top = tl.maximum(top, tl.max(tops, axis=0))
        total = tl.full((ROWS,), tl.sum(totals * exp(tops - shift(tl.max(tops, axis=0))), axis=0), tl.float32)

    for i in tl.static_range(CHUNKS):
        x = _rounded(again(chunks[i], PACKED), kind)
        tl.store(out_ptr + out_at + i * WIDTH, _result(x, top, total, LOG).to(kind), mask=inside[i])
    if EDGES:
        tl.store(out_ptr + edge_at, _result(edge, top, total, LOG).to(kind), mask=at_edge)


@triton.jit
def _result(x, top, total, LOG: tl.constexpr):
    if LOG:
        return x - top[:, None] - tl.log(total)[:, None]
    return exp(x - shift(top)[:, None]) * (1.0 / total)[:, None]


@triton.jit
def _term(dy, y, LOG: tl.constexpr):
    return dy.to(tl.float32) if LOG else dy.to(tl.float32) * y.to(tl.float32)


@triton.jit
def gradient(dy, y, total, LOG: tl.constexpr):
    return dy - careful_exp(y) * total if LOG else y * (dy - total)


@triton.jit(do_not_specialize_on_alignment=["split"])
def softmax_backward_kernel(
    dx_ptr, dy_ptr, y_ptr, slots_ptr,
    n_rows, n_columns, split, segment,
    LOG: tl.constexpr, PHASE: tl.constexpr, PACKED: tl.constexpr, VECTOR: tl.constexpr, EDGES: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, CHUNKS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    rows, exists, part = _place(program, n_rows, split, ROWS)
    at, lane, segment, left = _body(rows, part, n_columns, n_columns, segment, VECTOR, EDGES, WIDTH)
    kind = dx_ptr.dtype.element_ty
    grads = ()
    ys = ()
    for i in tl.static_range(CHUNKS):
        inside = _inside(exists, lane + i * WIDTH, segment, left)
        grads += (_load(dy_ptr + at + i * WIDTH, inside, 0.0),)
        ys += (_load(y_ptr + at + i * WIDTH, inside, 0.0),)
    totals = _term(grads[0], ys[0], LOG)
    for i in tl.static_range(1, CHUNKS):
        totals += _term(grads[i], ys[i], LOG)
    total = tl.sum(totals, axis=1)
    if EDGES:
        edge_at, at_edge = _edges(rows, exists, part, n_columns, VECTOR, EDGES)
        edge_dy = tl.load(dy_ptr + edge_at, mask=at_edge, other=0.0).to(tl.float32)
        edge_y = tl.load(y_ptr + edge_at, mask=at_edge, other=0.0).to(tl.float32)
        total += tl.sum(_term(edge_dy, edge_y, LOG), axis=1)
    if PHASE != "whole":
        slots_ptr += rows * split
        if PHASE != "finish":
            publish(slots_ptr + part, tl.full((ROWS,), 1.0, tl.float32), total)
        if PHASE == "publish":
            return
        _, totals = collect(slots_ptr, split, SLOTS)
        total = tl.full((ROWS,), tl.sum(totals, axis=0), tl.float32)

    for i in tl.static_range(CHUNKS):
        dx = gradient(again(grads[i], PACKED).to(tl.float32), again(ys[i], PACKED).to(tl.float32), total[:, None], LOG)
        tl.store(dx_ptr + at + i * WIDTH, dx.to(kind), mask=_inside(exists, lane + i * WIDTH, segment, left))
    if EDGES:
        tl.store(dx_ptr + edge_at, gradient(edge_dy, edge_y, total[:, None], LOG).to(kind), mask=at_edge)
