"""The matrix product for GPUs with warpgroup instructions and a tensor memory accelerator (TMA), in Gluon.

One program per multiprocessor walks over the tiles of the output. One warp only fetches; two warpgroups multiply, each half of a tile's
rows, from the same buffers; or, of a tile with few rows, each a block of its columns. They wait only for the fetching warp, never for each
other. A finished tile is kept in registers, rounded. Its activation and stores are done part by part while the tensor cores work on the
next tile.

Tiles that are left over when every program has had as many as the others would take as long as another tile for each. Their sums are split:
each program has a part of one, and writes it in fp32; `sum_tiles_kernel` adds the parts up.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from kernels.hopper import async_atomic_add, async_load, async_store, barriers
from kernels.matmul.kernels import activate, grouped, within


@gluon.jit
def _turns(tiles, shares, SHARED: gl.constexpr):
    """Return how many tiles have a program for all of their sum, and the number of turns of all programs: a tile, or a share of its sum."""
    whole = tiles
    if SHARED:
        whole -= tiles % gl.num_programs(0)
    return whole, whole + (tiles - whole) * shares


@gluon.jit
def _turn(turn, whole, K, shares, BLOCK_K: gl.constexpr, SHARED: gl.constexpr):
    """Return the tile of a turn, and where its sum starts and ends."""
    tile = turn
    start = 0
    end = K
    if SHARED:  # noqa: SIM102 (what is known at compile time has an `if` of its own)
        if turn >= whole:
            tile = whole + (turn - whole) // shares
            share = gl.cdiv(gl.cdiv(K, BLOCK_K), shares) * BLOCK_K
            start = (turn - whole) % shares * share
            end = gl.minimum(start + share, K)
    return tile, start, end


@gluon.jit
def _fetch(
    a_desc, b_descs, buffers, bars, shape,
    BLOCK_N: gl.constexpr, A_TRANSPOSED: gl.constexpr, B_TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr, SHARED: gl.constexpr,
    ROWS_WITHIN: gl.constexpr, COLUMNS_WITHIN: gl.constexpr,
):  # fmt: skip
    batches, M, N, K, shares = shape
    a_bufs, b_bufs = buffers
    ready, empty = bars
    STAGES: gl.constexpr = ready.shape[0]
    BLOCK_K: gl.constexpr = b_descs[0].block_type.shape[2 if B_TRANSPOSED else 1]
    FIRST_N: gl.constexpr = b_descs[0].block_type.shape[1 if B_TRANSPOSED else 2]
    ROWS: gl.constexpr = a_desc.block_type.shape[2 if A_TRANSPOSED else 1]
    HALVES: gl.constexpr = a_bufs.shape[0] // STAGES  # of the rows
    tiles_m = gl.cdiv(M, HALVES * ROWS)
    tiles_n = gl.cdiv(N, BLOCK_N)
    step = 0
    whole, turns = _turns(batches * tiles_m * tiles_n, shares, SHARED)
    for turn in range(gl.program_id(0), turns, gl.num_programs(0)):
        tile, start, end = _turn(turn, whole, K, shares, BLOCK_K, SHARED)
        batch = tile // (tiles_m * tiles_n)
        tile_m, tile_n = grouped(tile % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
        column = within(tile_n * BLOCK_N, BLOCK_N, N, COLUMNS_WITHIN)
        for k in range(start, end, BLOCK_K):
            stage = step % STAGES
            arrived = ready.index(stage)
            # A barrier starts as if phase 1 were complete, so the first round finds every stage empty.
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
            mbarrier.expect(arrived, HALVES * a_desc.block_type.nbytes + b_descs[0].block_type.nbytes * BLOCK_N // FIRST_N)
            for half in gl.static_range(HALVES):
                row = within((HALVES * tile_m + half) * ROWS, ROWS, M, ROWS_WITHIN)
                into = a_bufs.index(HALVES * stage + half).reshape(a_desc.block_type.shape)
                if A_TRANSPOSED:
                    async_load(a_desc, [batch, k, row], arrived, into)
                else:
                    async_load(a_desc, [batch, row, k], arrived, into)
            for i in gl.static_range(len(b_descs)):
                into = b_bufs[i].index(stage).reshape(b_descs[i].block_type.shape)
                if B_TRANSPOSED:
                    async_load(b_descs[i], [batch, column + i * FIRST_N, k], arrived, into)
                else:
                    async_load(b_descs[i], [batch, k, column + i * FIRST_N], arrived, into)
            step += 1


@gluon.jit
def _split(x, PARTS: gl.constexpr):
    """Split the columns of x into PARTS blocks, without moving values between threads."""
    parts = (x,)
    for _ in gl.static_range(PARTS.bit_length() - 1):
        halves = ()
        for i in gl.static_range(len(parts)):
            part = parts[i]
            halves += part.reshape((part.shape[0], 2, part.shape[1] // 2)).permute((0, 2, 1)).split()
        parts = halves
    return parts


@gluon.jit
def _pack(low, high, dtype: gl.constexpr):
    """Pack two rounded numbers into one register. The compiler alone would use a register for each."""
    NAME: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    return gl.inline_asm_elementwise("cvt.rn." + NAME + ".f32 $0, $2, $1;", "=r,f,f", [low, high], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def _hold(acc, PARTS: gl.constexpr, dtype: gl.constexpr):
    """Return a tile in rounded parts: the first ones in the low halves of registers, the others in the high halves."""
    parts = _split(acc, PARTS)
    held = ()
    for i in gl.static_range(PARTS // 2):
        held += (_pack(parts[i], parts[i + PARTS // 2], dtype),)
    return held


@gluon.jit
def _put_part(result, x, part, at, buffer, ADD: gl.constexpr):
    """Write a part of a tile. `result`: a descriptor, and memory of rows and columns, where rows start on no boundary; otherwise None."""
    desc, ptr, M, N = result
    # Two buffers alternate. This one is free once the store before the previous one has read it.
    tma.store_wait(1)
    block = buffer.reshape(x.shape)
    block.store(x.to(desc.dtype))
    batch, row, column = at
    column += part * desc.block_type.shape[2]
    if ptr is not None:
        layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
        rows = row + gl.arange(0, x.shape[0], gl.SliceLayout(1, layout))
        columns = column + gl.arange(0, x.shape[1], gl.SliceLayout(0, layout))
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        gl.store(ptr + (batch.to(gl.int64) * M + rows)[:, None] * N + columns[None, :], block.load(layout), mask=inside)
    else:
        fence_async_shared()
        if ADD:
            async_atomic_add(desc, [batch, row, column], buffer)
        else:
            async_store(desc, [batch, row, column], buffer)


@gluon.jit
def _after_odd(PARTS: gl.constexpr):
    """Wait for the stores of the tile before where its last part and this tile's first one have the same buffer."""
    if PARTS % 2:
        tma.store_wait(0)


@gluon.jit
def _finish(x, part, at, results, buffers, ACTIVATION: gl.constexpr, SAVE: gl.constexpr, ADD: gl.constexpr):
    """Apply the activation to a part of a tile and write it to memory."""
    out, saved = results
    turn = part % 2
    if SAVE:
        _put_part(saved, x, part, at, buffers.index(0), False)
        turn = 1
    _put_part(out, activate(x.to(gl.float32), ACTIVATION, False), part, at, buffers.index(turn), ADD)


@gluon.jit
def _finish_held(held, part, at, results, buffers, ACTIVATION: gl.constexpr, SAVE: gl.constexpr, ADD: gl.constexpr):
    """Finish the first of the held parts, and return the rest, next one first. Used in a loop, because instruction caches are small."""
    x = held[0].to(gl.int16).to(results[0][0].dtype, bitcast=True)
    _finish(x, part, at, results, buffers, ACTIVATION, SAVE, ADD)
    rest = ()
    for i in gl.static_range(len(held) - 1):
        rest += (held[i + 1],)
    return rest + (held[0] >> 16,)


@gluon.jit
def _put_share(parts, ptr, BLOCK_N: gl.constexpr):
    """Write parts of half a tile in fp32, one after the other, because addresses need registers."""
    layout: gl.constexpr = parts[0].type.layout
    rows = gl.arange(0, parts[0].shape[0], gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, parts[0].shape[1], gl.SliceLayout(0, layout))[None, :]
    for i in gl.static_range(len(parts)):
        gl.store(ptr + i * parts[0].shape[1] + (rows * BLOCK_N + columns), parts[i])


@gluon.jit
def _zeros(ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, COLUMNS, 16])
    return gl.zeros((ROWS, COLUMNS), gl.float32, layout)


@gluon.jit
def _columns(ptr, column, N, COLUMNS: gl.constexpr, stride=1):
    """Load a number for each column, in a layout that takes few registers."""
    dense: gl.constexpr = gl.BlockedLayout([max(1, COLUMNS // 128)], [32], [4], [0])
    columns = column + gl.arange(0, COLUMNS, dense)
    return gl.load(ptr + columns * stride, mask=columns < N, other=0.0)


@gluon.jit
def _product(accs, k, step, HALF: gl.constexpr, buffers, ready, A_TRANSPOSED: gl.constexpr, B_TRANSPOSED: gl.constexpr):
    """Start adding the products of this step's stage."""
    a_bufs, b_bufs = buffers
    STAGES: gl.constexpr = ready.shape[0]
    HALVES: gl.constexpr = a_bufs.shape[0] // STAGES
    stage = step % STAGES
    mbarrier.wait(ready.index(stage), step // STAGES & 1)
    a = a_bufs.index(HALVES * stage + HALF % HALVES)
    if A_TRANSPOSED:
        a = a.permute((1, 0))
    sums = ()
    for i in gl.static_range(len(b_bufs)):
        b = b_bufs[i].index(stage)
        if B_TRANSPOSED:
            sums += (warpgroup_mma(a, b.permute((1, 0)), accs[i], use_acc=k > 0, is_async=True),)
        else:
            sums += (warpgroup_mma(a, b, accs[i], use_acc=k > 0, is_async=True),)
    return sums


@gluon.jit
def _one_before(accs, step, empty, PENDING: gl.constexpr, pred=True):
    """Wait until only the products of PENDING steps are in flight. The step before is then done, and its stage may be overwritten."""
    STAGES: gl.constexpr = empty.shape[0]
    done = warpgroup_mma_wait(PENDING * len(accs), accs)
    mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=pred)
    if len(accs) == 1:
        done = (done,)
    return done


@gluon.jit
def _multiply(
    HALF: gl.constexpr, staging, tensors, shape,
    BLOCK_N: gl.constexpr, A_TRANSPOSED: gl.constexpr, B_TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr,
    BIAS: gl.constexpr, ACTIVATION: gl.constexpr, SAVE: gl.constexpr, ADD: gl.constexpr, SPREAD: gl.constexpr,
):  # fmt: skip
    batches, M, N, K, shares = shape
    buffers, bars, results, bias_ptr, shares_ptr = tensors
    SHARED: gl.constexpr = shares_ptr is not None
    ready, empty = bars
    out_desc = results[0][0]
    a_bufs, b_bufs = buffers
    ROWS: gl.constexpr = out_desc.block_type.shape[1]
    PART_N: gl.constexpr = out_desc.block_type.shape[2]
    AXIS: gl.constexpr = 1 if B_TRANSPOSED else 2  # of the columns
    BLOCK_K: gl.constexpr = b_bufs[0].shape[3 - AXIS]
    FIRST_N: gl.constexpr = b_bufs[0].shape[AXIS]
    HALVES: gl.constexpr = a_bufs.shape[0] // ready.shape[0]  # of the rows, one for each warpgroup; or all rows, and a block of columns
    BEFORE: gl.constexpr = 0 if HALVES == 2 else HALF * FIRST_N
    PARTS: gl.constexpr = (BLOCK_N if HALVES == 2 else b_bufs[HALF].shape[AXIS]) // PART_N
    if HALVES == 1:
        b_bufs = (b_bufs[HALF],)
        buffers = (a_bufs, b_bufs)
    tiles_m = gl.cdiv(M, HALVES * ROWS)
    tiles_n = gl.cdiv(N, BLOCK_N)
    step = 0
    first = gl.program_id(0)
    at = (0, 0, 0)
    if SPREAD:
        held = _hold(_zeros(ROWS, BLOCK_N), PARTS, out_desc.dtype)
    whole, turns = _turns(batches * tiles_m * tiles_n, shares, SHARED)
    for turn in range(first, turns, gl.num_programs(0)):
        tile, start, end = _turn(turn, whole, K, shares, BLOCK_K, SHARED)
        batch = tile // (tiles_m * tiles_n)
        tile_m, tile_n = grouped(tile % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
        hiding = PARTS if SPREAD and turn > first else 0
        column = within(tile_n * BLOCK_N, BLOCK_N, N, B_TRANSPOSED and not ADD) + BEFORE
        accs = ()
        biases = ()
        for i in gl.static_range(len(b_bufs)):
            accs += (_zeros(ROWS, b_bufs[i].shape[AXIS]),)
            if BIAS:
                biases += (_columns(bias_ptr, column + i * FIRST_N, N, b_bufs[i].shape[AXIS]),)
        if SPREAD:
            for i in range(hiding):
                for j in gl.static_range(SPREAD):
                    accs = _product(accs, i + j, step, HALF, buffers, ready, A_TRANSPOSED, B_TRANSPOSED)
                    if j == SPREAD - 1:
                        held = _finish_held(held, i, at, results, staging, ACTIVATION, SAVE, ADD)
                    accs = _one_before(accs, step, empty, 1, i + j > 0)
                    step += 1
        for k in range(start + hiding * SPREAD * BLOCK_K, end, BLOCK_K):
            accs = _product(accs, k - start, step, HALF, buffers, ready, A_TRANSPOSED, B_TRANSPOSED)
            accs = _one_before(accs, step, empty, 1, k > start)
            step += 1
        accs = _one_before(accs, step, empty, 0)
        if SHARED:  # noqa: SIM102
            if turn >= whole:
                # What follows is of no use for a share, and does no harm.
                _put_share(_split(accs[0], 4 * PARTS), shares_ptr + (2 * (turn - whole) + HALF) * (ROWS * BLOCK_N), BLOCK_N)
        if BIAS:
            sums = ()
            for i in gl.static_range(len(accs)):
                sums += (accs[i] + gl.convert_layout(biases[i].to(gl.float32), gl.SliceLayout(0, accs[i].type.layout))[None, :],)
            accs = sums
        at = (batch, within((HALVES * tile_m + HALF % HALVES) * ROWS, ROWS, M, not ADD), column)
        if SPREAD:
            held = _hold(accs[0], PARTS, out_desc.dtype)
        else:
            parts = ()
            for i in gl.static_range(len(accs)):
                parts += _split(accs[i], accs[i].shape[1] // PART_N)
            _after_odd(PARTS)
            for i in gl.static_range(PARTS):
                _finish(parts[i], i, at, results, staging, ACTIVATION, SAVE, ADD)
    if SPREAD:
        # A share's turn is a program's last. It has finished the tile before.
        for i in range(PARTS if first >= turns - whole else 0):
            held = _finish_held(held, i, at, results, staging, ACTIVATION, SAVE, ADD)
    tma.store_wait(0)


@gluon.jit
def _blocks(desc, COUNT: gl.constexpr):
    return gl.allocate_shared_memory(desc.dtype, [COUNT] + desc.block_type.shape, desc.layout)


@gluon.jit
def _ring(desc, COUNT: gl.constexpr):
    """Allocate blocks as a product takes them, without the batch dimension."""
    BLOCK: gl.constexpr = desc.block_type.shape[1:]
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(BLOCK, desc.dtype)
    return gl.allocate_shared_memory(desc.dtype, [COUNT] + BLOCK, LAYOUT)


@gluon.jit(do_not_specialize=["batches", "shares"])
def matmul_specialized_kernel(
    a_desc, b_desc, more_desc, out_desc, saved_desc, out_ptr, saved_ptr, bias_ptr, shares_ptr,
    batches, M, N, K, shares,
    BLOCK_N: gl.constexpr, HALVES: gl.constexpr, A_TRANSPOSED: gl.constexpr, B_TRANSPOSED: gl.constexpr,
    STAGES: gl.constexpr, GROUP_M: gl.constexpr,
    BIAS: gl.constexpr, ACTIVATION: gl.constexpr, SAVE: gl.constexpr, ADD: gl.constexpr, SPREAD: gl.constexpr,
):  # fmt: skip
    a_bufs = _ring(a_desc, HALVES * STAGES)
    b_descs = (b_desc,)
    b_bufs = (_ring(b_desc, STAGES),)
    if more_desc is not None:
        b_descs += (more_desc,)
        b_bufs += (_ring(more_desc, STAGES),)
    first = _blocks(out_desc, 2)
    second = _blocks(out_desc, 2)
    ready = barriers(STAGES, 1)
    empty = barriers(STAGES, 2)
    fence_async_shared()
    buffers = (a_bufs, b_bufs)
    bars = (ready, empty)
    shape = (batches, M, N, K, shares)
    SHARED: gl.constexpr = shares_ptr is not None
    WITHIN: gl.constexpr = B_TRANSPOSED and not ADD
    # 128 accumulators per thread, 64 for held parts, and the rest; the fetching warp needs the minimum number of registers.
    results = ((out_desc, out_ptr, M, N), (saved_desc, saved_ptr, M, N))
    tensors = (buffers, bars, results, bias_ptr, shares_ptr)
    gl.warp_specialize(
        [
            (_multiply, (0, first, tensors, shape, BLOCK_N, A_TRANSPOSED, B_TRANSPOSED, GROUP_M, BIAS, ACTIVATION, SAVE, ADD, SPREAD)),
            (_multiply, (1, second, tensors, shape, BLOCK_N, A_TRANSPOSED, B_TRANSPOSED, GROUP_M, BIAS, ACTIVATION, SAVE, ADD, SPREAD)),
            (_fetch, (a_desc, b_descs, buffers, bars, shape, BLOCK_N, A_TRANSPOSED, B_TRANSPOSED, GROUP_M, SHARED, not ADD, WITHIN)),
        ],
        [4, 1],
        [240, 24],
    )
