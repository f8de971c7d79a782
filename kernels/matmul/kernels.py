"""The matrix product in plain Triton, for every GPU, and the activations of its result."""

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def grouped(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Return row and column of a tile, `GROUP_M` rows of tiles at a time, so that concurrent tiles share operands in the L2 cache."""
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    rest = tile % in_group
    return first + rest % rows, rest // rows


@triton.jit
def within(start, length, size, WITHIN: tl.constexpr = True):
    """Return `start`, moved so that a block of this length ends where the matrix does: TMA takes longer for what lies beyond.

    Some rows or columns then have two blocks, with the same numbers.
    """
    if WITHIN:
        start = tl.maximum(tl.minimum(start, size - length), 0)
    return start


@triton.jit
def chiplet_of(pid, programs, CHIPLETS: tl.constexpr):
    """Renumber programs so that those of one chiplet get neighbouring work, if the hardware assigns programs to chiplets round robin."""
    most = tl.cdiv(programs, CHIPLETS)
    full = programs - (most - 1) * CHIPLETS  # chiplets that have `most` programs
    chiplet = pid % CHIPLETS
    return chiplet * most - tl.maximum(chiplet - full, 0) + pid // CHIPLETS


@triton.jit
def _inverse(x, EXACT: tl.constexpr):
    if EXACT:
        inverse = tl.div_rn(1.0, x)
    else:
        root = tl.rsqrt(x)  # one instruction, while a division takes six
        inverse = root * root
    return inverse


@triton.jit
def _tanh_exponent(x):
    # (1 + tanh u) / 2 = 1 / (1 + 2**this), u = sqrt(2 / pi) (x + 0.044715 x**3); the factors include -2 sqrt(2 / pi) log2(e).
    return x * (-2.302208198144325 - 0.1029432395800235 * x * x)


@triton.jit
def activate(x, ACTIVATION: tl.constexpr, EXACT: tl.constexpr):
    """Return the activation of fp32 numbers: accurate to fp32 if `EXACT`, otherwise beyond fp16."""
    if ACTIVATION == "gelu":
        # max(x, 0) - t Phi(-t), t = |x|, with a polynomial for -log2 Phi(-t): minimax for the product's error on [0, 9], exact at 0,
        # increasing beyond; at 16, the product is 0. A library's erf branches per element, and its code overflows the instruction cache.
        t = tl.minimum(tl.abs(x), 16.0)
        if EXACT:  # within 2e-7
            bits = 9.739115967022371e-07 * t - 4.525576878222637e-05
            bits = bits * t + 0.0008194562396965921
            bits = bits * t - 0.008163398131728172
            bits = bits * t + 0.05344759672880173
            bits = bits * t + 0.4588085412979126
            bits = bits * t + 1.1511660814285278
        else:  # within 4e-6: each multiplication saved is a percent of the time
            bits = 0.00031243343255482614 * t - 0.006119112018495798
            bits = bits * t + 0.04989565163850784
            bits = bits * t + 0.4614458680152893
            bits = bits * t + 1.1505094766616821
        bits = bits * t + 1.0
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - t * tl.exp2(-bits)
    elif ACTIVATION == "gelu_tanh":
        x = x * _inverse(1.0 + tl.exp2(_tanh_exponent(x)), EXACT)
    elif ACTIVATION == "relu":
        x = tl.where(x < 0.0, 0.0, x)  # keeps NaN
    elif ACTIVATION == "silu":
        x = x * _inverse(1.0 + tl.exp2(-1.4426950408889634 * x), EXACT)
    return x


@triton.jit
def _slope(x, ACTIVATION: tl.constexpr, EXACT: tl.constexpr):
    """Return the derivative of `activate`.

    It is gate + x gate'. Far from 0 the gate alone is the derivative, while the other term becomes infinity times 0. Nearer, the powers are
    at most 2**126, so that the power times the gate is 1 - gate without cancellation.
    """
    if ACTIVATION == "gelu":
        gate = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        density = 0.3989422804014327 * tl.exp2(-0.7213475204444817 * x * x)  # log2(e) / 2
        slope = tl.where(tl.abs(x) > 16.0, gate, gate + x * density)
    elif ACTIVATION == "gelu_tanh":
        power = tl.exp2(_tanh_exponent(x))
        gate = _inverse(1.0 + power, EXACT)
        near = gate + x * gate * (power * gate) * 1.5957691216057308 * (1.0 + 0.134145 * x * x)
        slope = tl.where(tl.abs(x) > 10.0, gate, near)
    elif ACTIVATION == "relu":
        slope = tl.where(x <= 0.0, 0.0, 1.0)
    else:
        power = tl.exp2(-1.4426950408889634 * x)
        gate = _inverse(1.0 + power, EXACT)
        slope = tl.where(tl.abs(x) > 87.0, gate, gate * (1.0 + x * (power * gate)))
    return slope


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, out_ptr, saved_ptr, bias_ptr,
    M, N, K, a_stride_batch, a_stride_m, a_stride_k, b_stride_batch, b_stride_k, b_stride_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, CHIPLETS: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr, SPLIT: tl.constexpr, DOUBLE: tl.constexpr, WIDEN: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        cuda.gdc_launch_dependents()
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    if CHIPLETS > 1:
        pid = chiplet_of(pid, tl.num_programs(0), CHIPLETS)
    batch = (pid // (tiles_m * tiles_n)).to(tl.int64)
    tile_m, tile_n = grouped(pid % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
    # 64-bit offsets to the corner of a tile, 32-bit offsets within: hardware buffer loads need that, and it takes half the registers.
    first_m = tile_m.to(tl.int64) * BLOCK_M
    first_n = tile_n.to(tl.int64) * BLOCK_N
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    in_m = (rows < M - first_m)[:, None]
    in_n = (columns < N - first_n)[None, :]
    row_steps, column_steps, depth_steps = rows, columns, depth
    if not EVEN_K:
        # Rows beyond the edge read the last row, so that only K needs a mask: where loads are not vectors, registers are short.
        row_steps = tl.minimum(rows, (M - 1 - first_m).to(tl.int32))
        column_steps = tl.minimum(columns, (N - 1 - first_n).to(tl.int32))
    if WIDE:
        row_steps, column_steps, depth_steps = row_steps.to(tl.int64), column_steps.to(tl.int64), depth.to(tl.int64)
    a_ptr += batch * a_stride_batch + first_m * a_stride_m
    b_ptr += batch * b_stride_batch + first_n * b_stride_n
    a_offsets = row_steps[:, None] * a_stride_m + depth_steps[None, :] * a_stride_k
    b_offsets = depth_steps[:, None] * b_stride_k + column_steps[None, :] * b_stride_n
    depth_step = tl.full((), BLOCK_K, tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64 if DOUBLE else tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptr + a_offsets, mask=in_m, other=0.0)
            b = tl.load(b_ptr + b_offsets, mask=in_n, other=0.0)
        else:
            a = tl.load(a_ptr + a_offsets, mask=(depth < K - k)[None, :], other=0.0)
            b = tl.load(b_ptr + b_offsets, mask=(depth < K - k)[:, None], other=0.0)
        if WIDEN:
            a, b = a.to(tl.float32), b.to(tl.float32)
        if DOUBLE:
            acc = tl.dot(a.to(tl.float64), b.to(tl.float64), acc, out_dtype=tl.float64)
        else:
            # Sum short sums: as accurate as a library that splits K. (The compiler folds `acc += tl.dot(...)` into one long sum.)
            short = tl.dot(a, b, None if SPLIT else acc, input_precision=PRECISION)
            acc = tl.fma(short, 1.0, acc) if SPLIT else short
        a_ptr += depth_step * a_stride_k
        b_ptr += depth_step * b_stride_k

    acc = acc.to(tl.float32)
    corner = (batch * M + first_m) * N + first_n
    inside = in_m & in_n
    offsets = (rows.to(tl.int64) if WIDE else rows)[:, None] * N + columns[None, :]
    if BIAS:
        acc += tl.load(bias_ptr + first_n + columns, mask=columns < N - first_n, other=0.0).to(tl.float32)[None, :]
    if SAVE:
        tl.store(saved_ptr + corner + offsets, acc.to(saved_ptr.dtype.element_ty), mask=inside)
    value = activate(acc, ACTIVATION, out_ptr.dtype.element_ty == tl.float32)
    tl.store(out_ptr + corner + offsets, value.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def row_kernel(
    a_ptr, b_ptr, out_ptr, saved_ptr, bias_ptr, N, K, a_stride_m, b_stride_n,
    M: tl.constexpr, STEPS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVICTION: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Multiply one or two rows by BLOCK_N columns, without matrix units: those would idle, and what counts is to read `b` once.

    `b` is dense along K. All of its loads are on their way at once. Each thread sums its own elements; these sums are added at the end.
    """
    row = tl.arange(0, M)[:, None, None]
    column = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :, None]
    acc = tl.zeros((M, BLOCK_N, BLOCK_K), tl.float32)
    for step in tl.static_range(STEPS):
        depth = step * BLOCK_K + tl.arange(0, BLOCK_K)[None, None, :]
        b = tl.load(b_ptr + column * b_stride_n + depth, mask=(column < N) & (depth < K), other=0.0, eviction_policy=EVICTION)
        a = tl.load(a_ptr + row * a_stride_m + depth, mask=depth < K, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
    x = tl.sum(acc, 2)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = column < N
    if BIAS:
        x += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    at = tl.arange(0, M)[:, None] * N + column
    if SAVE:
        tl.store(saved_ptr + at, x.to(saved_ptr.dtype.element_ty), mask=inside)
    tl.store(out_ptr + at, activate(x, ACTIVATION, False).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def sum_kernel(
    out_ptr, saved_ptr, parts_ptr, bias_ptr, n_elements, N,
    SPLITS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr, BLOCK_SIZE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Add up the parts of a product, with bias and activation."""
    if EARLY:
        cuda.gdc_wait()
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    x = tl.load(parts_ptr + offsets, mask=inside)
    for _ in tl.static_range(1, SPLITS):
        parts_ptr += n_elements
        x += tl.load(parts_ptr + offsets, mask=inside)
    if BIAS:
        x += tl.load(bias_ptr + offsets % N, mask=inside).to(tl.float32)
    if SAVE:
        tl.store(saved_ptr + offsets, x.to(saved_ptr.dtype.element_ty), mask=inside)
    tl.store(out_ptr + offsets, activate(x, ACTIVATION, False).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def copy_rows_kernel(out_ptr, x_ptr, columns, chunks, out_stride, x_stride, VECTOR: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Copy a part of a row of 16-bit numbers per program. `VECTOR`: a power of two up to 8 that divides columns and strides."""
    row = (tl.program_id(0) // chunks).to(tl.int64)
    lane = tl.arange(0, BLOCK_SIZE)
    if VECTOR < 8:
        # A thread has eight numbers. Neighbours in memory go to neighbouring threads.
        unit = lane // VECTOR
        lane = (unit // (8 // VECTOR) + unit % (8 // VECTOR) * (BLOCK_SIZE // 8)) * VECTOR + lane % VECTOR
    at = tl.program_id(0) % chunks * BLOCK_SIZE + lane
    inside = at < columns // VECTOR * VECTOR
    x = tl.load(x_ptr + row * (x_stride // VECTOR * VECTOR) + at, mask=inside)
    tl.store(out_ptr + row * (out_stride // VECTOR * VECTOR) + at, x, mask=inside)


@triton.jit
def sum_tiles_kernel(
    out_ptr, saved_ptr, shares_ptr, bias_ptr, whole, M, N,
    SHARES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, ROWS: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr, WITHIN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Add up the shares of tiles from the one with number `whole` on, with bias and activation: some rows of a tile per program."""
    if EARLY:
        cuda.gdc_wait()
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    at = tl.program_id(0) // (BLOCK_M // ROWS)
    first = tl.program_id(0) % (BLOCK_M // ROWS) * ROWS
    batch = ((whole + at) // (tiles_m * tiles_n)).to(tl.int64)
    tile_m, tile_n = grouped((whole + at) % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
    rows = tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK_N)
    shares_ptr += at * (SHARES * BLOCK_M * BLOCK_N) + (first + rows)[:, None] * BLOCK_N + lanes[None, :]
    x = tl.load(shares_ptr)
    for _ in tl.static_range(1, SHARES):
        shares_ptr += BLOCK_M * BLOCK_N
        x += tl.load(shares_ptr)
    HALF_M: tl.constexpr = BLOCK_M // 2
    rows += within(tile_m * BLOCK_M + first // HALF_M * HALF_M, HALF_M, M) + first % HALF_M
    columns = within(tile_n * BLOCK_N, BLOCK_N, N, WITHIN) + lanes
    if BIAS:
        x += tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    offsets = (batch * M + rows)[:, None] * N + columns[None, :]
    if SAVE:
        tl.store(saved_ptr + offsets, x.to(saved_ptr.dtype.element_ty), mask=inside)
    tl.store(out_ptr + offsets, activate(x, ACTIVATION, False).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def activation_backward_kernel(out_ptr, grad_ptr, x_ptr, n_elements, ACTIVATION: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    grad = tl.load(grad_ptr + offsets, mask=inside).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(
        out_ptr + offsets, (grad * _slope(x, ACTIVATION, out_ptr.dtype.element_ty == tl.float32)).to(out_ptr.dtype.element_ty), mask=inside
    )
