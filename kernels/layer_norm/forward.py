"""The forward kernels of layer_norm and rms_norm. RMS norm is layer norm around zero: with `mean_ptr` None, no mean is subtracted.

In every kernel, None instead of a pointer leaves out the weight or bias.
"""

import triton
import triton.language as tl

from kernels.exchange import again

# Each thread waits for its own word. With a Triton loop, some threads could see the words and others not.
UNTIL_THERE = tl.constexpr("""{
        .reg .pred absent;
        again:
        ld.relaxed.gpu.global.u64 $0, [$1];
        setp.eq.u64 absent, $0, 0;
        @absent bra again;
        }""")


@triton.jit
def mean_of(total, n_columns):
    # A plain division may be two units off. For a mean of 1000, that is as large as a deviation of 1e-4.
    return tl.div_rn(total, tl.cast(n_columns, tl.float32))


@triton.jit
def rstd_of(squares, n_columns, eps):
    """Return 1 / sqrt(mean + eps), correctly rounded: it is one number per row, and its error affects every column."""
    root = tl.sqrt_rn(mean_of(squares, n_columns) + eps)
    return tl.div_rn(tl.full(root.shape, 1.0, tl.float32), root)


@triton.jit
def _publish(words_ptr, first, second, exist):
    """Write two sums as one word, where zeros are: both arrive together, so no fence is needed. Minus zero stands for zero."""
    high = first.to(tl.int32, bitcast=True)
    high = tl.where(high == 0, -2147483648, high).to(tl.int64) << 32
    tl.atomic_xchg(words_ptr, high | (second.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF), mask=exist, sem="relaxed")


@triton.jit
def _wait(words_ptr):
    return tl.inline_asm_elementwise(UNTIL_THERE, "=l,l", [words_ptr], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def _collect(words_ptr, first_row, n_rows, n_parts, ROWS: tl.constexpr, SLOTS: tl.constexpr):
    """Return the sums of all parts of each row (ROWS, SLOTS), once they are published; unused slots are zero."""
    # Flat first, so that each thread waits for one word, not for several in sequence.
    flat = tl.arange(0, ROWS * SLOTS)
    rows = tl.minimum(first_row + flat // SLOTS, n_rows - 1)
    there = flat % SLOTS < n_parts
    words = _wait(words_ptr + rows.to(tl.int64) * n_parts + tl.where(there, flat % SLOTS, 0))
    words = tl.reshape(tl.where(there, words, 0), (ROWS, SLOTS))
    return (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), words.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _parameter(ptr, columns, inside):
    return tl.load(ptr + columns, mask=inside, other=0.0, eviction_policy="evict_last")


@triton.jit
def rows_of(group, ROWS: tl.constexpr, VECTOR: tl.constexpr):
    """Return the rows of a group: neighbours, or with `VECTOR`, every VECTOR-th. Such rows start at the same place within 16 bytes."""
    return (tl.cast(group // VECTOR, tl.int64) * ROWS + tl.arange(0, ROWS)) * VECTOR + group % VECTOR


@triton.jit
def body_of(group, n_columns, VECTOR: tl.constexpr):
    """Return the first column of the body of a group's rows, and its columns: from the first 16 bytes to the last whole ones."""
    if VECTOR == 1:
        return 0, n_columns
    head = tl.minimum((VECTOR - group % VECTOR * n_columns % VECTOR) % VECTOR, n_columns)
    return head, (n_columns - head) // VECTOR * VECTOR


@triton.jit
def edges_of(head, body, n_columns, VECTOR: tl.constexpr):
    """Return the columns before and after the body, fewer than `VECTOR` each, and which of the lanes have one."""
    lane = tl.arange(0, 2 * VECTOR)
    columns = tl.where(lane < VECTOR, lane, head + body + lane - VECTOR)
    return columns, tl.where(lane < VECTOR, lane < head, columns < n_columns)


@triton.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, words_ptr,
    row_stride, n_rows, n_columns, n_parts, eps,
    PACKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, CHUNKS: tl.constexpr, VECTOR: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Normalize ROWS rows per program, or a part of them, in registers: one read and one write.

    The columns are CHUNKS tensors of WIDTH columns. With a single tensor, the compiler would load all weights before it uses the first, in
    registers that other programs need. The programs of the same rows (at most SLOTS) are neighbours in the grid, and wait for each other's
    sums. GPUs start programs in the order of their numbers, so a program only waits for programs that run, or that will run once others
    end. Rows that start anywhere have VECTOR elements in 16 bytes: a body, which is read so many at a time, and edges, one chunk more.
    """
    group = tl.program_id(0) // n_parts
    part = tl.program_id(0) % n_parts
    rows = rows_of(group, ROWS, VECTOR)
    in_rows = rows < n_rows
    head, body = body_of(group, n_columns, VECTOR)
    COUNT: tl.constexpr = CHUNKS + (VECTOR > 1)
    columns, inside, chunks = (), (), ()
    if VECTOR > 1:
        # Loaded before the body: otherwise their layout would be that of all (see softmax).
        of_edges, in_edges = edges_of(head, body, n_columns, VECTOR)
        of_edges, in_edges = of_edges[None, :], in_edges[None, :]
        edges = tl.load(x_ptr + rows[:, None] * row_stride + of_edges, mask=in_rows[:, None] & in_edges, other=0.0)
    lane = part * CHUNKS * WIDTH + tl.arange(0, WIDTH)[None, :]
    # Rounding tells the compiler what divides the offsets.
    x_ptr += tl.cdiv(rows * row_stride, VECTOR)[:, None] * VECTOR + lane
    for i in tl.static_range(CHUNKS):
        columns += (head + lane + i * WIDTH,)
        inside += (lane + i * WIDTH < body,)
        # Results then leave the cache first: 3 % faster on an H200 for rows that are read only once.
        chunks += (tl.load(x_ptr + i * WIDTH, mask=in_rows[:, None] & inside[i], other=0.0, eviction_policy="evict_last"),)
    if VECTOR > 1:
        columns += (of_edges,)
        inside += (in_edges,)
        chunks += (edges,)
    # If rows share the parameters, load them while sums are computed. For a single row, this would take too many registers.
    EARLY: tl.constexpr = ROWS > 1 and COUNT == 1
    if EARLY:
        if weight_ptr is not None:
            weight = _parameter(weight_ptr, columns[0], inside[0])
        if bias_ptr is not None:
            bias = _parameter(bias_ptr, columns[0], inside[0])

    # In fp32, a mean of 1000 is accurate to 1e-4. The mean of the remaining deviations corrects it. Half precision does not need that.
    EXACT: tl.constexpr = mean_ptr is not None and x_ptr.dtype.element_ty.primitive_bitwidth == 32
    own_columns = tl.minimum(n_columns - part * CHUNKS * WIDTH, CHUNKS * WIDTH) if VECTOR == 1 else n_columns
    if mean_ptr is not None:
        sums = tl.zeros((ROWS, WIDTH), tl.float32)
        for i in tl.static_range(CHUNKS):
            sums += chunks[i].to(tl.float32)
        total = tl.sum(sums, 1)
        if VECTOR > 1:
            total += tl.sum(edges.to(tl.float32), 1)
        mean = mean_of(total, own_columns)
    squares = tl.zeros((ROWS, WIDTH), tl.float32)
    rests = tl.zeros((ROWS, WIDTH), tl.float32)
    square = tl.zeros((ROWS,), tl.float32)
    rest = tl.zeros((ROWS,), tl.float32)
    for i in tl.static_range(COUNT):
        if mean_ptr is not None:
            # Around the mean: E[x**2] - E[x]**2 would cancel.
            x = tl.where(inside[i], again(chunks[i], PACKED).to(tl.float32) - mean[:, None], 0.0)
        else:
            x = chunks[i].to(tl.float32)
        if i < CHUNKS:
            squares += x * x
            if EXACT:
                rests += x
        else:
            square += tl.sum(x * x, 1)
            if EXACT:
                rest += tl.sum(x, 1)
    square += tl.sum(squares, 1)
    if EXACT:
        mean += mean_of(rest + tl.sum(rests, 1), own_columns)
    if SLOTS > 1:
        _publish(words_ptr + rows * n_parts + part, square, mean if mean_ptr is not None else square, in_rows)
        squares, means = _collect(words_ptr, group * ROWS, n_rows, n_parts, ROWS, SLOTS)
        if mean_ptr is not None:
            # Chan's formula: combine squares around the mean of each part into squares around that of the row.
            counts = tl.minimum(tl.maximum(n_columns - tl.arange(0, SLOTS) * CHUNKS * WIDTH, 0), CHUNKS * WIDTH).to(tl.float32)[None, :]
            mean = mean_of(tl.sum(means * counts, 1), n_columns)
            if EXACT:
                mean += mean_of(tl.sum((means - mean[:, None]) * counts, 1), n_columns)
            shifts = means - mean[:, None]
            squares += counts * shifts * shifts
        square = tl.sum(squares, 1)

    rstd = rstd_of(square, n_columns, eps)
    one_of_them = rows < tl.where(part == 0, n_rows, 0)
    if mean_ptr is not None:
        tl.store(mean_ptr + rows, mean, mask=one_of_them)
    tl.store(rstd_ptr + rows, rstd, mask=one_of_them)
    for i in tl.static_range(COUNT):
        out = again(chunks[i], PACKED).to(tl.float32)
        if mean_ptr is not None:
            out -= mean[:, None]
        out *= rstd[:, None]
        if weight_ptr is not None:
            if not EARLY:
                weight = _parameter(weight_ptr, columns[i], inside[i])
            out *= weight.to(tl.float32)
        if bias_ptr is not None:
            if not EARLY:
                bias = _parameter(bias_ptr, columns[i], inside[i])
            out += bias.to(tl.float32)
        start = rows * n_columns
        of_body = tl.cdiv(start, VECTOR)[:, None] * VECTOR + lane
        at = out_ptr + of_body + i * WIDTH if i < CHUNKS else out_ptr + start[:, None] + columns[i]
        tl.store(at, out.to(out_ptr.dtype.element_ty), mask=in_rows[:, None] & inside[i])


@triton.jit
def forward_steps_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, row_stride, n_columns, eps, BLOCK: tl.constexpr, EVEN: tl.constexpr
):
    """Normalize one row per program in steps of BLOCK columns (EVEN if they divide the row). The second read hits a cache if it fits."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    out_ptr += row * n_columns
    columns = tl.arange(0, BLOCK)
    # Welford's recurrence: a mean per lane, and squares around it. Chan's formula combines the lanes after the loop.
    means = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    count = 0.0
    for start in tl.range(0, n_columns, BLOCK):
        inside = None if EVEN else start + columns < n_columns
        x = tl.load(x_ptr + start + columns, mask=inside, eviction_policy="evict_last").to(tl.float32)
        if mean_ptr is not None:
            count += 1.0
            distance = x - means
            next_means = means + distance * (1.0 / count)
            products = distance * (x - next_means)
            means = next_means if EVEN else tl.where(inside, next_means, means)
        else:
            products = x * x
        squares += products if EVEN else tl.where(inside, products, 0.0)
    mean = 0.0
    if mean_ptr is not None:
        counts = ((n_columns - columns + BLOCK - 1) // BLOCK).to(tl.float32)
        # In two steps: a sum of large means is less accurate than a sum of their differences.
        mean = mean_of(tl.sum(means * counts, 0), n_columns)
        mean += mean_of(tl.sum((means - mean) * counts, 0), n_columns)
        tl.store(mean_ptr + row, mean)
        squares += counts * (means - mean) * (means - mean)
    rstd = rstd_of(tl.sum(squares, 0), n_columns, eps)
    tl.store(rstd_ptr + row, rstd)
    for start in tl.range(0, n_columns, BLOCK):
        inside = None if EVEN else start + columns < n_columns
        x = tl.load(x_ptr + start + columns, mask=inside, eviction_policy="evict_first").to(tl.float32)
        out = (x - mean) * rstd
        if weight_ptr is not None:
            out *= tl.load(weight_ptr + start + columns, mask=inside, eviction_policy="evict_last").to(tl.float32)
        if bias_ptr is not None:
            out += tl.load(bias_ptr + start + columns, mask=inside, eviction_policy="evict_last").to(tl.float32)
        tl.store(out_ptr + start + columns, out.to(out_ptr.dtype.element_ty), mask=inside)
