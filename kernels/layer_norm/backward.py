"""The backward kernels of layer_norm and rms_norm. RMS norm is layer norm around zero: with `mean_ptr` None, no mean is subtracted.

In every kernel, None instead of a pointer leaves out that part: a weight, or a gradient that is not needed.

With n = (x - mean) rstd and g = grad weight, the gradient of a row is dx = rstd (g - mean(g) - n mean(n g)), with the second term only if a
mean is subtracted. Those of weight and bias are sums over rows, dw = sum(grad n) and db = sum(grad).
"""

import triton
import triton.language as tl

from kernels.layer_norm.forward import body_of, edges_of, rows_of


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def add_up(total, lost, term, COMPENSATED: tl.constexpr):
    """Return `total + term` and what rounding lost (Kahan's sum, if compensated). A plain fp32 total is too coarse for many rows."""
    if COMPENSATED:
        term -= lost
        next_total = total + term
        lost = (next_total - total) - term
        total = next_total
    else:
        total += term
    return total, lost


@triton.jit
def _edges(grad_ptr, x_ptr, row_stride, rows, n_rows, n_columns, columns, inside):
    """Return the gradients and inputs of rows at their edges."""
    inside = (rows < n_rows)[:, None] & inside[None, :]
    grad = tl.load(grad_ptr + rows[:, None] * n_columns + columns[None, :], mask=inside, other=0.0)
    return grad, tl.load(x_ptr + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def backward_kernel(
    grad_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    row_stride, n_rows, n_columns,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, CHUNKS: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Walk over tiles of ROWS rows with sums over rows in registers; write them to row `program` of dweight and dbias.

    The columns are CHUNKS tensors of WIDTH columns, so that their number need not be a power of two; and with `VECTOR`, the edges, as in
    the forward. All rows of a program then start at the same place within 16 bytes: VECTOR divides the number of programs.
    """
    # Rounding to half precision loses more than fp32 sums do.
    COMPENSATED: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 32
    COUNT: tl.constexpr = CHUNKS + (VECTOR > 1)
    program, programs = tl.program_id(0), tl.num_programs(0)
    head, body = body_of(program, n_columns, VECTOR)
    lane = tl.arange(0, WIDTH)
    columns, inside = (), ()
    for i in tl.static_range(CHUNKS):
        columns += (head + lane + i * WIDTH,)
        inside += (lane + i * WIDTH < body,)
    if VECTOR > 1:
        # They are too small for copies to shared memory, so those of the next rows are loaded ahead.
        of_edges, in_edges = edges_of(head, body, n_columns, VECTOR)
        columns += (of_edges,)
        inside += (in_edges,)
        ahead_grad, ahead_x = _edges(grad_ptr, x_ptr, row_stride, rows_of(program, ROWS, VECTOR), n_rows, n_columns, of_edges, in_edges)
    weights, dweights, dbiases, lost_of_dweights, lost_of_dbiases = (), (), (), (), ()
    for i in tl.static_range(COUNT):
        if weight_ptr is not None:
            # Loaded as a vector: as a tile, it would have a layout of its own, and change it for each row.
            weights += (tl.load(weight_ptr + columns[i], mask=inside[i], other=0.0)[None, :],)
        zeros = tl.zeros((ROWS, columns[i].shape[0]), tl.float32)
        dweights += (zeros,)
        dbiases += (zeros,)
        lost_of_dweights += (zeros,)
        lost_of_dbiases += (zeros,)
    for group in tl.range(program, tl.cdiv(n_rows, ROWS * VECTOR) * VECTOR, programs, num_stages=STAGES):
        rows = rows_of(group, ROWS, VECTOR)
        in_rows = rows < n_rows
        rstd = tl.load(rstd_ptr + rows, mask=in_rows, other=0.0)[:, None]
        if mean_ptr is not None:
            mean = tl.load(mean_ptr + rows, mask=in_rows, other=0.0)[:, None]
        if VECTOR > 1:
            edge_grad, edge_x = ahead_grad, ahead_x
            ahead_grad, ahead_x = _edges(
                grad_ptr, x_ptr, row_stride, rows_of(group + programs, ROWS, VECTOR), n_rows, n_columns, of_edges, in_edges
            )
        # Rounding tells the compiler what divides the offsets.
        start = tl.cdiv(rows * n_columns, VECTOR)[:, None] * VECTOR
        x_start = tl.cdiv(rows * row_stride, VECTOR)[:, None] * VECTOR
        normals, grads, next_dweights, next_dbiases, next_lost_of_dweights, next_lost_of_dbiases = (), (), (), (), (), ()
        products = tl.zeros((ROWS, WIDTH), tl.float32)
        shifts = tl.zeros((ROWS, WIDTH), tl.float32)
        for i in tl.static_range(COUNT):
            if i < CHUNKS:
                mask = in_rows[:, None] & (lane + i * WIDTH < body)[None, :]
                grad = tl.load(grad_ptr + start + (lane + i * WIDTH)[None, :], mask=mask, other=0.0).to(tl.float32)
                x = tl.load(x_ptr + x_start + (lane + i * WIDTH)[None, :], mask=mask, other=0.0).to(tl.float32)
            else:
                grad, x = edge_grad.to(tl.float32), edge_x.to(tl.float32)
            if mean_ptr is not None:
                x -= mean
            normal = x * rstd
            dweight, lost_of_dweight, dbias, lost_of_dbias = dweights[i], lost_of_dweights[i], dbiases[i], lost_of_dbiases[i]
            if dweight_ptr is not None:
                dweight, lost_of_dweight = add_up(dweight, lost_of_dweight, grad * normal, COMPENSATED)
            if dbias_ptr is not None:
                dbias, lost_of_dbias = add_up(dbias, lost_of_dbias, grad, COMPENSATED)
            next_dweights += (dweight,)
            next_dbiases += (dbias,)
            next_lost_of_dweights += (lost_of_dweight,)
            next_lost_of_dbiases += (lost_of_dbias,)
            if weight_ptr is not None:
                grad *= weights[i].to(tl.float32)
            if i < CHUNKS:
                products += normal * grad
                if mean_ptr is not None:
                    shifts += grad
            normals += (normal,)
            grads += (grad,)
        dweights, dbiases = next_dweights, next_dbiases
        lost_of_dweights, lost_of_dbiases = next_lost_of_dweights, next_lost_of_dbiases
        if mean_ptr is not None:
            product, shift = tl.reduce((products, shifts), 1, add_both)
        else:
            product = tl.sum(products, 1)
        if VECTOR > 1:
            product += tl.sum(normals[CHUNKS] * grads[CHUNKS], 1)
            if mean_ptr is not None:
                shift += tl.sum(grads[CHUNKS], 1)
        for i in tl.static_range(COUNT):
            dx = grads[i] - normals[i] * (product / n_columns)[:, None]
            if mean_ptr is not None:
                dx -= (shift / n_columns)[:, None]
            at = start + (lane + i * WIDTH)[None, :] if i < CHUNKS else rows[:, None] * n_columns + of_edges[None, :]
            tl.store(dx_ptr + at, (dx * rstd).to(dx_ptr.dtype.element_ty), mask=in_rows[:, None] & inside[i][None, :])
    for i in tl.static_range(COUNT):
        own = program * n_columns + columns[i]
        if dweight_ptr is not None:
            tl.store(dweight_ptr + own, tl.sum(dweights[i], 0), mask=inside[i])
        if dbias_ptr is not None:
            tl.store(dbias_ptr + own, tl.sum(dbiases[i], 0), mask=inside[i])


@triton.jit
def backward_steps_kernel(grad_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, row_stride, n_columns, BLOCK: tl.constexpr):
    """Compute the gradient of one row per program, in steps of BLOCK columns. The second reads hit the cache if concurrent rows fit it."""
    row = tl.program_id(0).to(tl.int64)
    grad_ptr += row * n_columns
    x_ptr += row * row_stride
    dx_ptr += row * n_columns
    columns = tl.arange(0, BLOCK)
    rstd = tl.load(rstd_ptr + row)
    mean = 0.0
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + row)
    sums = tl.zeros((BLOCK,), tl.float32)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, n_columns, BLOCK):
        inside = start + columns < n_columns
        grad = tl.load(grad_ptr + start + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + start + columns, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        if weight_ptr is not None:
            grad *= tl.load(weight_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        sums += grad
        products += grad * ((x - mean) * rstd)
    product = tl.sum(products, 0) / n_columns
    shift = 0.0
    if mean_ptr is not None:
        shift = tl.sum(sums, 0) / n_columns
    for start in tl.range(0, n_columns, BLOCK):
        inside = start + columns < n_columns
        grad = tl.load(grad_ptr + start + columns, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + start + columns, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        if weight_ptr is not None:
            grad *= tl.load(weight_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        dx = (grad - shift - ((x - mean) * rstd) * product) * rstd
        tl.store(dx_ptr + start + columns, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def column_sums_kernel(
    grad_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr,
    row_stride, n_rows, n_columns,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add up long rows: BLOCK columns per program, over tiles of ROWS rows; write them to row `program` of dweight and dbias."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    in_columns = columns < n_columns
    dweight = tl.zeros((ROWS, BLOCK), tl.float32)
    dbias = tl.zeros((ROWS, BLOCK), tl.float32)
    one = tl.full((), 1, tl.int64)
    for tile in tl.range(tl.program_id(1), tl.cdiv(n_rows, ROWS), tl.num_programs(1), num_stages=STAGES):
        rows = tile * one * ROWS + tl.arange(0, ROWS)
        in_rows = rows < n_rows
        inside = in_rows[:, None] & in_columns[None, :]
        grad = tl.load(grad_ptr + rows[:, None] * n_columns + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        if dweight_ptr is not None:
            x = tl.load(x_ptr + rows[:, None] * row_stride + columns[None, :], mask=inside, other=0.0).to(tl.float32)
            if mean_ptr is not None:
                x -= tl.load(mean_ptr + rows, mask=in_rows, other=0.0)[:, None]
            dweight += grad * (x * tl.load(rstd_ptr + rows, mask=in_rows, other=0.0)[:, None])
        if dbias_ptr is not None:
            dbias += grad
    own = tl.program_id(1) * n_columns + columns
    if dweight_ptr is not None:
        tl.store(dweight_ptr + own, tl.sum(dweight, 0), mask=in_columns)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + own, tl.sum(dbias, 0), mask=in_columns)


@triton.jit
def _total(parts_ptr, out_ptr, n_parts, n_columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in tl.range(0, n_parts, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < n_parts)[:, None] & (columns < n_columns)[None, :]
        total += tl.load(parts_ptr + rows[:, None] * n_columns + columns[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + columns, tl.sum(total, 0).to(out_ptr.dtype.element_ty), mask=columns < n_columns)


@triton.jit(do_not_specialize_on_alignment=["n_parts"])
def totals_kernel(dweights_ptr, dbiases_ptr, dweight_ptr, dbias_ptr, n_parts, n_columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the sums of all backward programs in a fixed order, without atomics."""
    if tl.program_id(1) == 0:
        if dweight_ptr is not None:
            _total(dweights_ptr, dweight_ptr, n_parts, n_columns, ROWS, BLOCK)
    else:
        if dbias_ptr is not None:
            _total(dbiases_ptr, dbias_ptr, n_parts, n_columns, ROWS, BLOCK)
