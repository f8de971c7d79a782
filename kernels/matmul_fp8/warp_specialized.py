"""The fp8 product for GPUs with warpgroup instructions and a tensor memory accelerator (TMA), in Gluon.

As for bf16, one warp fetches and two warpgroups multiply. The matrix units add 128 products at most; a warpgroup adds such sums in fp32
while the other one's products are under way. At most 128 of a tile's columns at a time: registers hold one short sum beside the tile. If
scales are by block, another warp fetches those of each step: from memory they take longer to arrive than a step does.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from kernels.hopper import barriers
from kernels.matmul.kernels import grouped, within
from kernels.matmul.warp_specialized import _after_odd, _blocks, _columns, _fetch, _put_part, _put_share, _ring, _split, _turn, _turns

# Triton has renamed it.
_load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared

# Columns of a short sum, and elements that share a scale.
WIDTH = gl.constexpr(128)


@gluon.jit
def _fetch_scales(tensors, shape, strides, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, BLOCKS: gl.constexpr):
    """Fetch the scales of each step by block: of each row, and of the two blocks of columns that a tile has at most."""
    if BLOCKS:
        _batches, M, N, K, shares = shape
        buffers, rings, bars, _out_desc, scale_a_ptr, scale_b_ptr, shares_ptr = tensors
        of_rows, of_blocks = rings
        ready, empty = bars
        STAGES: gl.constexpr = ready.shape[0]
        HALVES: gl.constexpr = of_rows.shape[0] // STAGES
        ROWS: gl.constexpr = of_rows.shape[1]
        BLOCK_K: gl.constexpr = buffers[0].shape[2]
        SHARED: gl.constexpr = shares_ptr is not None
        lane = gl.arange(0, ROWS, gl.BlockedLayout([ROWS // 32], [32], [1], [0]))
        one = gl.arange(0, 1, gl.BlockedLayout([1], [32], [1], [0]))
        tiles_m = gl.cdiv(M, HALVES * ROWS)
        tiles_n = gl.cdiv(N, BLOCK_N)
        step = 0
        whole, turns = _turns(tiles_m * tiles_n, shares, SHARED)
        for turn in range(gl.program_id(0), turns, gl.num_programs(0)):
            tile, start, end = _turn(turn, whole, K, shares, BLOCK_K, SHARED)
            tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP_M)
            for k in range(start, end, BLOCK_K):
                stage = step % STAGES
                mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                for half in gl.static_range(HALVES):
                    row = within((HALVES * tile_m + half) * ROWS, ROWS, M)
                    at = k // WIDTH * strides[1] + (row + lane) * strides[0]
                    _load(of_rows.index(HALVES * stage + half), scale_a_ptr + at)
                for i in gl.static_range(2):
                    block = gl.minimum(tile_n * BLOCK_N // WIDTH + i, (N - 1) // WIDTH)
                    _load(of_blocks.index(2 * stage + i), scale_b_ptr + (k // WIDTH * strides[2] + block * strides[3] + one))
                async_copy.mbarrier_arrive(ready.index(stage), increment_count=False)
                step += 1


@gluon.jit
def _zeros(ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLUMNS, 32])
    return gl.zeros((ROWS, COLUMNS), gl.float32, layout)


@gluon.jit
def _in_groups(x, GROUP: gl.constexpr):
    """Split the columns into groups that have one scale each."""
    return _split(x, (x.shape[1] + GROUP - 1) // GROUP)


@gluon.jit
def _room(x, COLUMNS: gl.constexpr):
    """Return as many columns of x as a product overwrites."""
    if x.shape[1] > COLUMNS:
        x = _split(x, x.shape[1] // COLUMNS)[0]
        x = gl.convert_layout(x, _zeros(x.shape[0], COLUMNS).type.layout)
    return x


@gluon.jit
def _of_rows(x, like):
    """Return a number for each row, for all columns of a group."""
    return gl.convert_layout(x, gl.SliceLayout(1, like.type.layout))[:, None].broadcast_to(like.shape)


@gluon.jit
def _multiply(
    HALF: gl.constexpr, staging, tensors, shape, strides,
    BLOCK_N: gl.constexpr, GROUP: gl.constexpr, GROUP_M: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    _batches, M, N, K, shares = shape
    buffers, rings, bars, out_desc, scale_a_ptr, scale_b_ptr, shares_ptr = tensors
    a_bufs, b_bufs = buffers
    ready, empty = bars
    STAGES: gl.constexpr = ready.shape[0]
    ROWS: gl.constexpr = out_desc.block_type.shape[1]
    PART_N: gl.constexpr = out_desc.block_type.shape[2]
    BLOCK_K: gl.constexpr = a_bufs.shape[2]
    HALVES: gl.constexpr = a_bufs.shape[0] // STAGES  # of the rows, one for each warpgroup; or all rows, and a piece of the columns
    BEFORE: gl.constexpr = 0 if HALVES == 2 else HALF * b_bufs[0].shape[1]
    if HALVES == 1:
        b_bufs = (b_bufs[HALF],)
    layout: gl.constexpr = _zeros(ROWS, b_bufs[0].shape[1]).type.layout
    tiles_m = gl.cdiv(M, HALVES * ROWS)
    tiles_n = gl.cdiv(N, BLOCK_N)
    lane = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    step = 0
    SHARED: gl.constexpr = shares_ptr is not None
    whole, turns = _turns(tiles_m * tiles_n, shares, SHARED)
    for turn in range(gl.program_id(0), turns, gl.num_programs(0)):
        tile, start, end = _turn(turn, whole, K, shares, BLOCK_K, SHARED)
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP_M)
        row = within((HALVES * tile_m + HALF % HALVES) * ROWS, ROWS, M)
        column = within(tile_n * BLOCK_N, BLOCK_N, N, not BLOCKS) + BEFORE  # blocks of scales are counted from the first column
        acc = ()
        for i in gl.static_range(len(b_bufs)):
            acc += _in_groups(_zeros(ROWS, b_bufs[i].shape[1]), GROUP)
        FIRST: gl.constexpr = acc[0].shape[1]
        if not BLOCKS:
            by_row = gl.load(scale_a_ptr + (row + lane) * strides[0])
            by_columns = ()
            for i in gl.static_range(len(b_bufs)):
                by_columns += (_columns(scale_b_ptr, column + i * FIRST, N, b_bufs[i].shape[1], strides[3]),)
        for _ in range(start, end, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            a = a_bufs.index(HALVES * stage + HALF % HALVES)
            sums = ()
            room = _zeros(ROWS, b_bufs[0].shape[1])
            for i in gl.static_range(len(b_bufs)):
                b = b_bufs[i].index(stage).permute((1, 0))
                room = _room(room, b.shape[1])
                short = warpgroup_mma(a, b, room, use_acc=False, is_async=True)
                if BLOCKS:  # noqa: SIM102
                    if i == 0:
                        of_rows, of_blocks = rings
                        by_row = of_rows.index(HALVES * stage + HALF % HALVES).load(gl.SliceLayout(1, layout))
                        by_block = of_blocks.index(2 * stage).load(gl.SliceLayout(1, layout))
                        by_next = of_blocks.index(2 * stage + 1).load(gl.SliceLayout(1, layout))
                # The sums of the piece before end here. Otherwise the compiler would hold both short sums, and spill.
                done = warpgroup_mma_wait(0, (short,) + sums)
                if i:
                    short = done[0]
                    sums = ()
                    for j in gl.static_range(len(done) - 1):
                        sums += (done[j + 1],)
                else:
                    short = done
                if i == len(b_bufs) - 1:
                    mbarrier.arrive(empty.index(stage), count=1)
                room = short
                parts = _in_groups(short, GROUP)
                for j in gl.static_range(len(parts)):
                    if BLOCKS:
                        within_first = (column + len(sums) * FIRST) // WIDTH == tile_n * BLOCK_N // WIDTH
                        scale = by_row * gl.where(within_first, by_block, by_next).broadcast_to(by_row.shape)
                        sums += (gl.fma(parts[j], _of_rows(scale, parts[j]), acc[len(sums)]),)
                    else:
                        sums += (acc[len(sums)] + parts[j],)
            acc = sums
            step += 1
        _after_odd((BLOCK_N if HALVES == 2 else b_bufs[0].shape[1]) // PART_N)
        for i in gl.static_range(len(acc)):
            x = acc[i]
            if not BLOCKS:
                by_column = gl.convert_layout(by_columns[i], gl.SliceLayout(0, x.type.layout))
                x = x * _of_rows(by_row, x) * by_column[None, :]
            parts = _split(x, x.shape[1] // PART_N)
            if SHARED:  # noqa: SIM102 (what is known at compile time has an `if` of its own)
                if turn >= whole:
                    # What follows writes the share itself, and the sum replaces it.
                    _put_share(parts, shares_ptr + (2 * (turn - whole) + HALF) * (ROWS * BLOCK_N) + i * FIRST, BLOCK_N)
            for j in gl.static_range(len(parts)):
                at = i * (FIRST // PART_N) + j
                _put_part((out_desc, None, M, N), parts[j], at, (0, row, column), staging.index(at % 2), False)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "shares"])
def scaled_mm_specialized_kernel(
    a_desc, b_desc, more_desc, out_desc, scale_a_ptr, scale_b_ptr, shares_ptr,
    M, N, K, shares, scale_a_stride_m, scale_a_stride_k, scale_b_stride_k, scale_b_stride_n,
    BLOCK_N: gl.constexpr, HALVES: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr, BLOCKS: gl.constexpr,
):  # fmt: skip
    a_bufs = _ring(a_desc, HALVES * STAGES)
    b_descs = (b_desc,)
    b_bufs = (_ring(b_desc, STAGES),)
    if more_desc is not None:
        b_descs += (more_desc,)
        b_bufs += (_ring(more_desc, STAGES),)
    first = _blocks(out_desc, 2)
    second = _blocks(out_desc, 2)
    # The operands' copies arrive as one, and those of the scales lane by lane.
    ready = barriers(STAGES, 33 if BLOCKS else 1)
    empty = barriers(STAGES, 2)
    fence_async_shared()
    rings = ()
    if BLOCKS:
        plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        of_rows = gl.allocate_shared_memory(gl.float32, [HALVES * STAGES, a_desc.block_type.shape[1]], plain)
        rings = (of_rows, gl.allocate_shared_memory(gl.float32, [2 * STAGES, 1], plain))
    buffers = (a_bufs, b_bufs)
    bars = (ready, empty)
    strides = (scale_a_stride_m, scale_a_stride_k, scale_b_stride_k, scale_b_stride_n)
    tensors = (buffers, rings, bars, out_desc, scale_a_ptr, scale_b_ptr, shares_ptr)
    shape = (1, M, N, K, shares)
    SHARED: gl.constexpr = shares_ptr is not None
    gl.warp_specialize(
        [
            (_multiply, (0, first, tensors, shape, strides, BLOCK_N, GROUP, GROUP_M, BLOCKS)),
            (_multiply, (1, second, tensors, shape, strides, BLOCK_N, GROUP, GROUP_M, BLOCKS)),
            (_fetch, (a_desc, b_descs, buffers, bars, shape, BLOCK_N, False, True, GROUP_M, SHARED, True, not BLOCKS)),
            (_fetch_scales, (tensors, shape, strides, BLOCK_N, GROUP_M, BLOCKS)),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )
