"""The fp8 matrix product, for every GPU."""

import triton
import triton.language as tl
from triton.language.extra import cuda

from kernels.matmul.kernels import chiplet_of, grouped

# Elements that share a scale: along K, and columns of the second operand.
BLOCK = tl.constexpr(128)


@triton.jit
def scaled_mm_kernel(
    a_ptr, b_ptr, out_ptr, scale_a_ptr, scale_b_ptr,
    M, N, K, a_stride, b_stride, scale_a_stride_m, scale_a_stride_k, scale_b_stride_k, scale_b_stride_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, CHIPLETS: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE: tl.constexpr, BLOCKS: tl.constexpr, WIDEN: tl.constexpr, PARTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute a tile of the output per program. Both operands are dense along K.

    `PARTS`: programs that share a sum, a row of the grid each. A part has `K` products, a multiple of `BLOCK_K`, and an output of its own.

    Every `BLOCK_K` products are a sum of their own, and these are added in fp32: Hopper's matrix units keep about 14 bits of a sum of fp8
    products, whatever its length.
    """
    if EARLY:
        cuda.gdc_launch_dependents()
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    if CHIPLETS > 1:
        pid = chiplet_of(pid, tl.num_programs(0), CHIPLETS)
    tile_m, tile_n = grouped(pid, tiles_m, tiles_n, GROUP_M)
    # 64-bit offsets to the corner of a tile, 32-bit offsets within. Rows beyond the edge read the last row.
    first_m = tile_m.to(tl.int64) * BLOCK_M
    first_n = tile_n.to(tl.int64) * BLOCK_N
    rows = tl.minimum(tl.arange(0, BLOCK_M), (M - 1 - first_m).to(tl.int32))
    columns = tl.minimum(tl.arange(0, BLOCK_N), (N - 1 - first_n).to(tl.int32))
    depth = tl.arange(0, BLOCK_K)
    if WIDE:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    a_ptrs = a_ptr + first_m * a_stride + (rows[:, None] * a_stride + depth[None, :])
    b_ptrs = b_ptr + first_n * b_stride + (depth[:, None] + columns[None, :] * b_stride)
    scale_a_ptrs = scale_a_ptr + first_m * scale_a_stride_m + rows * scale_a_stride_m
    scale_b_ptr += (first_n // BLOCK if BLOCKS else first_n) * scale_b_stride_n
    start = 0
    if PARTS > 1:
        start = tl.program_id(1) * K
        a_ptrs += start
        b_ptrs += start
        out_ptr += tl.program_id(1).to(tl.int64) * M * N
    end = start + K

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BLOCKS:
        by_row = tl.load(scale_a_ptrs + start // BLOCK * scale_a_stride_k)
        by_block = tl.load(scale_b_ptr + start // BLOCK * scale_b_stride_k)
    for k in range(start, end, BLOCK_K):
        if BLOCKS:
            # Those of the next step: a program that waits for its scales in each step takes twice as long.
            following = tl.minimum(k + BLOCK_K, end - 1) // BLOCK
            next_by_row = tl.load(scale_a_ptrs + following * scale_a_stride_k)
            next_by_block = tl.load(scale_b_ptr + following * scale_b_stride_k)
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=(depth < end - k)[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=(depth < end - k)[:, None], other=0.0)
        if WIDEN:
            a, b = a.to(tl.float16), b.to(tl.float16)
        short = tl.dot(a, b)
        # The compiler would fold a sum of products into the product. It does not fold a multiplication and an addition.
        acc = tl.fma(short, by_row[:, None] * by_block if BLOCKS else 1.0, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
        if BLOCKS:
            by_row, by_block = next_by_row, next_by_block

    if not BLOCKS:
        acc *= tl.load(scale_a_ptrs)[:, None]
        acc *= tl.load(scale_b_ptr + columns * scale_b_stride_n)[None, :]
    row = tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_N)
    offsets = (row.to(tl.int64) if WIDE else row)[:, None] * N + column[None, :]
    inside = (row < M - first_m)[:, None] & (column < N - first_n)[None, :]
    tl.store(out_ptr + first_m * N + first_n + offsets, acc.to(out_ptr.dtype.element_ty), mask=inside)
