"""The fp8 product for GPUs with warpgroup instructions and a tensor memory accelerator (TMA), in Gluon.

As for bf16, one warp fetches and two warpgroups multiply. The matrix units add 128 products at most; a warpgroup adds such sums in fp32
while the other one's products are under way. Half of a tile's columns at a time: registers hold one short sum beside the tile.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from kernels.matmul.kernels import grouped, within
from kernels.matmul.warp_specialized import _blocks, _fetch, _put_part, _put_share, _ring, _split, _turn, _turns

# Columns of a short sum, and elements that share a scale.
WIDTH = gl.constexpr(128)


@gluon.jit
def _scales(scale_a_ptr, scale_b_ptr, rows, block, other, k, strides):
    """Return a step's scales by block: of each row, and of the columns' halves."""
    scale_b_ptr += k // WIDTH * strides[2] + block
    return gl.load(scale_a_ptr + k // WIDTH * strides[1] + rows), gl.load(scale_b_ptr), gl.load(scale_b_ptr + other)


@gluon.jit
def _multiply(HALF: gl.constexpr, staging, tensors, shape, strides, GROUP_M: gl.constexpr, BLOCKS: gl.constexpr, HALVES: gl.constexpr):
    _batches, M, N, K, shares = shape
    buffers, barriers, out_desc, scale_a_ptr, scale_b_ptr, shares_ptr = tensors
    a_bufs, b_bufs = buffers
    ready, empty = barriers
    STAGES: gl.constexpr = ready.shape[0]
    HALF_M: gl.constexpr = out_desc.block_type.shape[1]
    PARTS: gl.constexpr = WIDTH // out_desc.block_type.shape[2]
    BLOCK_N: gl.constexpr = b_bufs.shape[1]
    BLOCK_K: gl.constexpr = b_bufs.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, WIDTH, 32])
    tiles_m = gl.cdiv(M, 2 * HALF_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    lane = gl.arange(0, HALF_M, gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))
    step = 0
    # What is in it does not count: a product overwrites it.
    short = gl.zeros((HALF_M, WIDTH), gl.float32, layout)
    SHARED: gl.constexpr = shares_ptr is not None
    whole, turns = _turns(tiles_m * tiles_n, shares, SHARED)
    for turn in range(gl.program_id(0), turns, gl.num_programs(0)):
        tile, start, end = _turn(turn, whole, K, shares, BLOCK_K, SHARED)
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP_M)
        row = within((2 * tile_m + HALF) * HALF_M, HALF_M, M)
        column = within(tile_n * BLOCK_N, BLOCK_N, N, not BLOCKS)  # a block of scales is that of a tile
        rows = gl.minimum(row + lane, M - 1) * strides[0]
        acc = ()
        for _ in gl.static_range(HALVES):
            acc += (gl.zeros((HALF_M, WIDTH), gl.float32, layout),)
        block = column // WIDTH * strides[3]
        # Of the last tile's columns, one half may lie beyond the edge.
        other = strides[3] if column + WIDTH < N else 0
        if BLOCKS:
            by_row, by_block, by_other = _scales(scale_a_ptr, scale_b_ptr, rows, block, other, start, strides)
        for k in range(start, end, BLOCK_K):
            if BLOCKS:
                scales = (by_row * by_block, by_row * by_other)
                # The next step's scales arrive meanwhile.
                after = gl.minimum(k + BLOCK_K, K - 1)
                by_row, by_block, by_other = _scales(scale_a_ptr, scale_b_ptr, rows, block, other, after, strides)
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            sums = ()
            for half in gl.static_range(HALVES):
                b = b_bufs.index(stage).slice(half * WIDTH, WIDTH, 0)
                short = warpgroup_mma(a_bufs.index(2 * stage + HALF), b.permute((1, 0)), short, use_acc=False, is_async=True)
                if half:
                    # Ends the first half's sum here. Otherwise the compiler would hold both short sums, and spill.
                    short, done = warpgroup_mma_wait(0, (short, sums[0]))
                    sums = (done,)
                else:
                    short = warpgroup_mma_wait(0, (short,))
                if half == HALVES - 1:
                    mbarrier.arrive(empty.index(stage), count=1)
                if BLOCKS:
                    sums += (gl.fma(short, scales[half][:, None].broadcast_to(short.shape), acc[half]),)
                else:
                    sums += (acc[half] + short,)
            acc = sums
            step += 1
        for half in gl.static_range(HALVES):
            x = acc[half]
            if not BLOCKS:
                at = gl.minimum(column + half * WIDTH + columns, N - 1) * strides[3]
                x = x * gl.load(scale_a_ptr + rows)[:, None] * gl.load(scale_b_ptr + at)[None, :]
            parts = _split(x, PARTS)
            if SHARED:  # noqa: SIM102 (what is known at compile time has an `if` of its own)
                if turn >= whole:
                    # What follows writes the share itself, and the sum replaces it.
                    _put_share(parts, shares_ptr + (2 * (turn - whole) + HALF) * (HALF_M * BLOCK_N) + half * WIDTH, BLOCK_N)
            for i in gl.static_range(PARTS):
                _put_part((out_desc, None, M, N), parts[i], half * PARTS + i, (0, row, column), staging.index(i % 2), False)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "shares"])
def scaled_mm_specialized_kernel(
    a_desc,
    b_desc,
    out_desc,
    scale_a_ptr,
    scale_b_ptr,
    shares_ptr,
    M,
    N,
    K,
    shares,
    scale_a_stride_m,
    scale_a_stride_k,
    scale_b_stride_k,
    scale_b_stride_n,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    BLOCKS: gl.constexpr,
):
    a_bufs = _ring(a_desc, 2 * STAGES)
    b_bufs = _ring(b_desc, STAGES)
    first = _blocks(out_desc, 2)
    second = _blocks(out_desc, 2)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    HALVES: gl.constexpr = b_desc.block_type.shape[1] // WIDTH
    buffers = (a_bufs, b_bufs)
    barriers = (ready, empty)
    strides = (scale_a_stride_m, scale_a_stride_k, scale_b_stride_k, scale_b_stride_n)
    tensors = (buffers, barriers, out_desc, scale_a_ptr, scale_b_ptr, shares_ptr)
    shape = (1, M, N, K, shares)
    gl.warp_specialize(
        [
            (_multiply, (0, first, tensors, shape, strides, GROUP_M, BLOCKS, HALVES)),
            (_multiply, (1, second, tensors, shape, strides, GROUP_M, BLOCKS, HALVES)),
            (
                _fetch,
                (
                    a_desc,
                    (b_desc,),
                    (a_bufs, (b_bufs,)),
                    barriers,
                    shape,
                    BLOCK_N,
                    False,
                    True,
                    GROUP_M,
                    shares_ptr is not None,
                    True,
                    not BLOCKS,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )
