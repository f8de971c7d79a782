"""Attention backward for Hopper: warp-specialised, in Gluon, with five matrix products per tile and none repeated.

A program owns 128 keys of one head of K and V. It walks over the tiles of 64 queries that see them, in every query head that shares this
pair, or in one of these. Its twelve warps have three roles:

    producer      one warp, 24 registers a thread   fetches K and V once, then Q, dO, the logsumexp and delta of each tile (TMA)
    consumer 0/1  a warpgroup each, 240 registers   keys 0..63 and 64..127: S = K Q^T, P = exp(scale * S - lse), dP = V dO^T,
                                                    dS = P (dP - delta), dV += P dO, dK += dS Q; then half of the columns of dQ = dS^T K

Scores are transposed, keys by queries, so that P and dS are left operands of the next products and stay in registers. Only dQ, which sums
over keys, needs the other consumer's dS, through shared memory. The TMA adds dQ over all programs in fp32, and so it does dK and dV
if a program has one of several heads. The order of these additions varies between runs, and so do the last bits of the sums.

Of sequences of several lengths, one after the other in a tensor, `table` says which keys a program owns (`plain/sequences.py`). Rows past
the end of a sequence are the next one's; their P is zero, and so is what is added there.

Formula: Dao 2023 (arXiv 2307.08691), section 3.1, with delta = rowsum(dO * O).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from kernels.attention.hopper.tile_order import place_in_sequence, tile_before
from kernels.attention.hopper.tiles import ring
from kernels.hopper import async_atomic_add, async_load, async_store, barriers


@gluon.jit
def _placed(table, sizes, ROWS: gl.constexpr, KEYS: gl.constexpr):
    """Return (batch, first head, tile of keys) of this program, the tiles of queries, the keys, and where they are in memory.

    Those places: the first query and key, and among the vectors of numbers a query, the tiles of each head and the first tile.
    """
    heads, _, shared, section, row_tiles, keys, all_tiles = sizes
    if table is None:
        head = (gl.program_id(2) * section + gl.program_id(0)) * shared
        placed = (head // heads, head % heads, gl.program_id(1), row_tiles, keys, (0, 0, row_tiles, 0))
    else:
        unit, tile, rows, keys, begin, number = place_in_sequence(table, gl.program_id(0), heads // shared)
        head = unit * shared
        block = gl.maximum(gl.cdiv(keys, 2 * KEYS) - 1 - tile, 0)
        first_tile = (begin[0] + number * ROWS) // ROWS
        placed = (0, head, block, gl.cdiv(rows, ROWS), keys, (begin[0], begin[1], all_tiles, first_tile))
    return placed


@gluon.jit
def _produce(descs, table, smem, bars, sizes, CAUSAL: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr):
    q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc = descs
    k_smem, v_smem, q_ring, dout_ring, start_ring, _, _ = smem
    kv_full, full, empty, _, _ = bars
    heads, group, shared, _, _, _, _ = sizes
    batch, head, block, row_tiles, _, begin = _placed(table, sizes, ROWS, KEYS)
    q_begin, k_begin, all_tiles, first_tile = begin
    STAGES: gl.constexpr = q_ring.shape[0]
    kv_head = head // group
    mbarrier.expect(kv_full, 2 * k_desc.block_type.nbytes + 2 * v_desc.block_type.nbytes)
    for half in gl.static_range(2):
        async_load(k_desc, [batch, kv_head, k_begin + (2 * block + half) * KEYS, 0], kv_full, k_smem.index(half))
        async_load(v_desc, [batch, kv_head, k_begin + (2 * block + half) * KEYS, 0], kv_full, v_smem.index(half))
    first = 2 * block * KEYS // ROWS if CAUSAL else 0
    tile = row_tiles - 1
    for step in range(shared * (row_tiles - first)):
        stage, phase = step % STAGES, step // STAGES & 1
        mbarrier.wait(empty.index(stage), phase ^ 1)
        mbarrier.expect(full.index(stage), 2 * q_desc.block_type.nbytes + 2 * lse_desc.block_type.nbytes)
        async_load(q_desc, [batch, head, q_begin + tile * ROWS, 0], full.index(stage), q_ring.index(stage))
        async_load(dout_desc, [batch, head, q_begin + tile * ROWS, 0], full.index(stage), dout_ring.index(stage))
        async_load(lse_desc, [((batch * heads + head) * all_tiles + first_tile + tile) * ROWS], full.index(stage), start_ring.index(stage))
        async_load(
            delta_desc,
            [((batch * heads + head) * all_tiles + first_tile + tile) * ROWS],
            full.index(stage),
            start_ring.index(STAGES + stage),
        )
        head, tile = tile_before(head, tile, first, row_tiles)


@gluon.jit
def _step(
    dk, dv, dq_desc, dq_at, first_row, first_key, keys, masked, scale_log2, smem, bars, step, HALF: gl.constexpr, CAUSAL: gl.constexpr
):
    """Process the `step`-th tile of queries: add to `dk` and `dv`, and send its dQ off, to row `dq_at` of three dimensions."""
    k_smem, v_smem, q_ring, dout_ring, start_ring, ds_ring, dq_smem = smem
    _, full, empty, ds_full, ds_empty = bars
    STAGES: gl.constexpr = q_ring.shape[0]
    ROWS: gl.constexpr = q_ring.shape[3]
    KEYS: gl.constexpr = k_smem.shape[3]
    D: gl.constexpr = q_ring.shape[4]
    dtype: gl.constexpr = q_ring.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D // 2, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, dk.type.layout, 2)
    by_query: gl.constexpr = gl.SliceLayout(0, s_layout)
    unset = gl.zeros([KEYS, ROWS], gl.float32, s_layout)
    stage, phase = step % STAGES, step // STAGES & 1
    k = k_smem.index(HALF).reshape([KEYS, D])
    v = v_smem.index(HALF).reshape([KEYS, D])
    q = q_ring.index(stage).reshape([ROWS, D])
    dout = dout_ring.index(stage).reshape([ROWS, D])

    # The accumulators start from -lse / scale and -delta. If these were subtracted later, they would occupy 32 registers during the
    # exponentials. Masked entries start from -inf, which costs tiles without a mask no more than a branch.
    mbarrier.wait(full.index(stage), phase)
    start, _ = gl.broadcast(gl.expand_dims(start_ring.index(stage).load(by_query), 0), unset)
    if masked:
        last = gl.full([ROWS], keys - 1, gl.int32, by_query)
        if CAUSAL:
            last = gl.minimum(last, first_row + gl.arange(0, ROWS, by_query))
        key = first_key + gl.arange(0, KEYS, gl.SliceLayout(1, s_layout))
        start = gl.where(gl.expand_dims(key, 1) <= gl.expand_dims(last, 0), start, float("-inf"))
    dp_start, _ = gl.broadcast(gl.expand_dims(start_ring.index(STAGES + stage).load(by_query), 0), unset)
    # A move that LLVM cannot delay. If it moved past the fence before the product, ptxas would wait for the product of S there.
    dp_start = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [dp_start], dtype=gl.float32, is_pure=False, pack=1)
    s = warpgroup_mma(k, q.permute((1, 0)), start, is_async=True)
    dp = warpgroup_mma(v, dout.permute((1, 0)), dp_start, is_async=True)
    s = warpgroup_mma_wait(1, deps=(s,))
    p = gl.exp2(s * scale_log2)
    dv = warpgroup_mma(gl.convert_layout(p.to(dtype), left), dout, dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=(dp,))
    ds = (p * dp).to(dtype)
    mbarrier.wait(ds_empty.index(stage), phase ^ 1)
    ds_ring.index(2 * stage + HALF).store(ds)
    fence_async_shared()
    mbarrier.arrive(ds_full.index(stage), count=1)
    dk = warpgroup_mma(gl.convert_layout(ds, left), q, dk, is_async=True)

    mbarrier.wait(ds_full.index(stage), phase)  # wait for the other consumer's dS while dK's product runs
    dq = gl.zeros([ROWS, D // 2], gl.float32, dq_layout)
    for half in gl.static_range(2):
        columns = k_smem.index(half).reshape([KEYS, D]).slice(HALF * (D // 2), D // 2, dim=1)
        dq = warpgroup_mma(ds_ring.index(2 * stage + half).permute((1, 0)), columns, dq, use_acc=half > 0, is_async=True)
    dk, dv = warpgroup_mma_wait(2, deps=(dk, dv))
    mbarrier.arrive(empty.index(stage), count=1)
    dq = warpgroup_mma_wait(0, deps=(dq,))
    mbarrier.arrive(ds_empty.index(stage), count=1)
    tma.store_wait(0)  # the previous tile's store: its buffer is written next
    dq_smem.index(HALF).reshape([ROWS, D // 2]).store(dq)
    fence_async_shared()
    async_atomic_add(dq_desc, [dq_at[0], dq_at[1], dq_at[2], HALF * (D // 2)], dq_smem.index(HALF))
    return dk, dv


@gluon.jit
def _consume(
    dq_desc, dk_desc, dv_desc, dk_out, dv_out, table, scale_log2, smem, bars, sizes,
    HALF: gl.constexpr, CAUSAL: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    k_smem, v_smem, q_ring, _, _, _, dq_smem = smem
    kv_full, _, _, _, _ = bars
    heads, group, shared, _, _, _, _ = sizes
    ROWS: gl.constexpr = q_ring.shape[3]
    KEYS: gl.constexpr = k_smem.shape[3]
    batch, first_head, block, row_tiles, keys, begin = _placed(table, sizes, ROWS, KEYS)
    D: gl.constexpr = q_ring.shape[4]
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    first_key = (2 * block + HALF) * KEYS
    dk = gl.zeros([KEYS, D], gl.float32, d_layout)
    dv = gl.zeros([KEYS, D], gl.float32, d_layout)

    first = 2 * block * KEYS // ROWS if CAUSAL else 0
    end = (block + 1) * 2 * KEYS
    mbarrier.wait(kv_full, 0)
    ADDS: gl.constexpr = dk_desc.dtype == gl.float32
    if ADDS:
        shared = 1
    # dQ is by sections of heads, or, of sequences, by heads.
    head = gl.program_id(0) * shared if table is None else first_head
    part = gl.program_id(2) if table is None else 0
    tile = row_tiles - 1
    for step in range(shared * (row_tiles - first)):
        masked = end > keys  # if the keys end inside this block, every tile needs a mask, otherwise only those on the diagonal
        if CAUSAL:
            masked = masked | (tile * ROWS < end)
        dq_at = (part, head, begin[0] + tile * ROWS)
        dk, dv = _step(dk, dv, dq_desc, dq_at, tile * ROWS, first_key, keys, masked, scale_log2, smem, bars, step, HALF, CAUSAL)
        if ADDS:
            tile -= 1
        else:
            head, tile = tile_before(head, tile, first, row_tiles)

    pair = (batch * heads + first_head) // group
    scale = scale_log2 * 0.6931471805599453
    if ADDS:
        _add(dv_desc, dv, pair, begin[1] + first_key, dq_smem.index(HALF))
        _add(dk_desc, dk * scale, pair, begin[1] + first_key, dq_smem.index(HALF))
    elif table is not None and first_key + KEYS > keys:
        # The keys after these are another sequence's.
        key = gl.expand_dims(first_key + gl.arange(0, KEYS, gl.SliceLayout(1, d_layout)), 1)
        column = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, d_layout)), 0)
        at = ((begin[1] + key).to(gl.int64) * (heads // group) + pair) * WIDTH + column
        inside = (key < keys) & (column < WIDTH)
        gl.store(dv_out + at, dv.to(q_ring.dtype), mask=inside)
        gl.store(dk_out + at, (dk * scale).to(q_ring.dtype), mask=inside)
    else:
        # Only this consumer reads this half of V.
        _store(dv_desc, dv, pair, begin[1] + first_key, v_smem.index(HALF))
        _store(dk_desc, dk * scale, pair, begin[1] + first_key, v_smem.index(HALF))


@gluon.jit
def _store(desc, x, pair, first_key, buffer):
    tma.store_wait(0)
    buffer.reshape(x.shape).store(x.to(buffer.dtype))
    fence_async_shared()
    async_store(desc, [0, pair, first_key, 0], buffer)
    tma.store_wait(0)


@gluon.jit
def _add(desc, x, pair, first_key, buffer):
    """Add to what the other heads of these keys have added, half of the columns at a time."""
    KEYS: gl.constexpr = x.shape[0]
    COLUMNS: gl.constexpr = x.shape[1] // 2
    halves = x.reshape((KEYS, 2, COLUMNS)).permute((0, 2, 1)).split()
    for half in gl.static_range(2):
        tma.store_wait(0)
        buffer.reshape([KEYS, COLUMNS]).store(halves[half])
        fence_async_shared()
        async_atomic_add(desc, [0, pair, first_key, half * COLUMNS], buffer)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["heads", "group", "shared", "section", "row_tiles", "keys", "all_tiles"])
def attention_hopper_backward_kernel(
    q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc, dq_desc, dk_desc, dv_desc, dk_out, dv_out, table,
    scale_log2, heads, group, shared, section, row_tiles, keys, all_tiles,
    CAUSAL: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, STAGES: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    D: gl.constexpr = q_desc.block_type.shape[3]
    ds_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    k_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, D], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, D], v_desc.layout)
    q_ring = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, D], q_desc.layout)
    dout_ring = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, D], dout_desc.layout)
    start_ring = gl.allocate_shared_memory(gl.float32, [2 * STAGES, ROWS], lse_desc.layout)
    ds_ring = gl.allocate_shared_memory(dtype, [2 * STAGES, KEYS, ROWS], ds_layout)
    dq_smem = gl.allocate_shared_memory(gl.float32, [2, 1, 1, ROWS, D // 2], dq_desc.layout)
    kv_full = barriers(1, 1)
    full, empty = ring(STAGES, 1, 2)
    ds_full, ds_empty = ring(STAGES, 2, 2)
    fence_async_shared()

    smem = (k_smem, v_smem, q_ring, dout_ring, start_ring, ds_ring, dq_smem)
    bars = (kv_full.index(0), full, empty, ds_full, ds_empty)
    sizes = (heads, group, shared, section, row_tiles, keys, all_tiles)
    fetched = (q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc)
    gl.warp_specialize(
        [
            (_consume, (dq_desc, dk_desc, dv_desc, dk_out, dv_out, table, scale_log2, smem, bars, sizes, 0, CAUSAL, WIDTH)),
            (_consume, (dq_desc, dk_desc, dv_desc, dk_out, dv_out, table, scale_log2, smem, bars, sizes, 1, CAUSAL, WIDTH)),
            (_produce, (fetched, table, smem, bars, sizes, CAUSAL, ROWS, KEYS)),
        ],
        [4, 1],
        [240, 24],
    )
