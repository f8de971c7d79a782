"""dK and dV for Hopper, heads of more than 128 columns: warp-specialised, in Gluon, four matrix products per tile and none repeated.

A program owns 64 keys of one head of K and V. It walks over the tiles of 64 queries that see them, in every query head that shares this
pair. dK and dV of 64 keys and 256 columns are 128 registers a thread each, so each has a warpgroup:

    producer   one warp, 24 registers a thread   fetches K and V once, then Q, dO, the logsumexp and delta of each tile (TMA)
    values     a warpgroup, 240 registers        S = K Q^T, P = exp(scale * S - lse), dV += P dO
    keys       a warpgroup, 240 registers        dP = V dO^T, dS = P (dP - delta), dK += dS Q

P goes from one to the other through shared memory, in fp32. Both start the next tile's scores before the gradient of the current one, so
that the tensor cores have work during exponentials. dQ has a kernel of its own, `wide_queries.py`: added up here, it would be 64 KB of fp32
for each 64 KB of Q and dO.

Formula: Dao 2023 (arXiv 2307.08691), section 3.1, with delta = rowsum(dO * O).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma_wait

from kernels.attention.hopper.tile_order import next_tile
from kernels.attention.hopper.tiles import ring
from kernels.attention.hopper.wide import add_product, cleared, finished, scores, store_parts
from kernels.hopper import async_load, async_store, barriers


@gluon.jit
def _produce(descs, smem, bars, sizes, CAUSAL: gl.constexpr):
    q_desc, k_desc, v_desc, dout_desc, start_desc, delta_desc = descs
    k_smem, v_smem, q_ring, dout_ring, start_ring, delta_ring, _ = smem
    kv_full, q_full, q_empty, dout_full, dout_empty, _, _ = bars
    kv_heads, group, together, section, row_tiles = sizes
    STAGES: gl.constexpr = q_ring.shape[0]
    ROWS: gl.constexpr = q_ring.shape[3]
    pair, block = gl.program_id(2) * section + gl.program_id(0), gl.program_id(1)
    batch, kv_head = pair // kv_heads, pair % kv_heads
    mbarrier.expect(kv_full, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
    async_load(k_desc, [batch, kv_head, block * ROWS, 0], kv_full, k_smem.index(0))
    async_load(v_desc, [batch, kv_head, block * ROWS, 0], kv_full, v_smem.index(0))
    first = gl.minimum(block, row_tiles - 1) if CAUSAL else 0  # keys that no query sees have one tile, all masked
    head, tile, last_head = kv_head * group, row_tiles - 1, kv_head * group + together
    for step in range(group * (row_tiles - first)):
        stage, phase = step % STAGES, step // STAGES & 1
        here = ((batch * kv_heads * group + head) * row_tiles + tile) * ROWS
        mbarrier.wait(q_empty.index(stage), phase ^ 1)
        mbarrier.expect(q_full.index(stage), q_desc.block_type.nbytes + start_desc.block_type.nbytes)
        async_load(q_desc, [batch, head, tile * ROWS, 0], q_full.index(stage), q_ring.index(stage))
        async_load(start_desc, [here], q_full.index(stage), start_ring.index(stage))
        mbarrier.wait(dout_empty.index(stage), phase ^ 1)
        mbarrier.expect(dout_full.index(stage), dout_desc.block_type.nbytes + delta_desc.block_type.nbytes)
        async_load(dout_desc, [batch, head, tile * ROWS, 0], dout_full.index(stage), dout_ring.index(stage))
        async_load(delta_desc, [here], dout_full.index(stage), delta_ring.index(stage))
        head, tile, last_head = next_tile(head, tile, last_head, together, first, row_tiles)


@gluon.jit
def _probabilities(s, start_smem, scale_log2, tile, block, CAUSAL: gl.constexpr):
    """Return P of a tile. Only those on the diagonal have a mask; keys past the last one are in rows that nobody stores."""
    KEYS: gl.constexpr = s.shape[0]
    ROWS: gl.constexpr = s.shape[1]
    by_query: gl.constexpr = gl.SliceLayout(0, s.type.layout)
    p = gl.exp2(s * scale_log2 + gl.expand_dims(start_smem.load(by_query) * scale_log2, 0))
    if CAUSAL:  # noqa: SIM102 - the compiler knows this one, the GPU the next
        if tile <= block:
            query = tile * ROWS + gl.arange(0, ROWS, by_query)
            key = block * KEYS + gl.arange(0, KEYS, gl.SliceLayout(1, s.type.layout))
            p = gl.where(gl.expand_dims(key, 1) <= gl.expand_dims(query, 0), p, 0.0)
    return p


@gluon.jit
def _values(dv_desc, scale_log2, smem, bars, sizes, CAUSAL: gl.constexpr, REST: gl.constexpr, V_REST: gl.constexpr):
    k_smem, _, q_ring, dout_ring, start_ring, _, p_ring = smem
    kv_full, q_full, q_empty, dout_full, dout_empty, p_full, p_empty = bars
    _, group, together, _, row_tiles = sizes
    STAGES: gl.constexpr = q_ring.shape[0]
    P_STAGES: gl.constexpr = p_ring.shape[0]
    ROWS: gl.constexpr = q_ring.shape[3]
    D: gl.constexpr = q_ring.shape[4]
    DV: gl.constexpr = dout_ring.shape[4]
    dtype: gl.constexpr = q_ring.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]), 2)
    PENDING: gl.constexpr = 2 if V_REST else 1
    unset = gl.zeros([ROWS, ROWS], gl.float32, s_layout)
    block = gl.program_id(1)
    k = k_smem.index(0).reshape([ROWS, D])
    left, right = cleared(ROWS, V_REST)

    first = gl.minimum(block, row_tiles - 1) if CAUSAL else 0
    head = gl.program_id(0) * group
    tile, last_head = row_tiles - 1, head + together
    mbarrier.wait(kv_full, 0)
    mbarrier.wait(q_full.index(0), 0)
    s = scores(k, q_ring.index(0).reshape([ROWS, D]), unset, REST)
    s = warpgroup_mma_wait(0, deps=(s,))
    p = _probabilities(s, start_ring.index(0), scale_log2, tile, block, CAUSAL)
    fence_async_shared()  # the producer's copies come after these loads
    mbarrier.arrive(q_empty.index(0), count=1)
    p_ring.index(0).store(p)
    mbarrier.arrive(p_full.index(0), count=1)
    p_half = gl.convert_layout(p.to(dtype), operand)
    mbarrier.wait(dout_full.index(0), 0)
    steps = group * (row_tiles - first)
    for step in range(1, steps):
        head, tile, last_head = next_tile(head, tile, last_head, together, first, row_tiles)
        stage, phase, p_stage = step % STAGES, step // STAGES & 1, step % P_STAGES
        before = (step - 1) % STAGES
        k = k_smem.index(step * (step + 1) & 1).reshape([ROWS, D])  # always the first: see `wide_queries.py`
        mbarrier.wait(q_full.index(stage), phase)
        s = scores(k, q_ring.index(stage).reshape([ROWS, D]), unset, REST)
        left, right = add_product(p_half, dout_ring.index(before).reshape([ROWS, DV]), left, right, V_REST)
        s = warpgroup_mma_wait(PENDING, deps=(s,))
        p = _probabilities(s, start_ring.index(stage), scale_log2, tile, block, CAUSAL)
        fence_async_shared()
        mbarrier.arrive(q_empty.index(stage), count=1)
        mbarrier.wait(p_empty.index(p_stage), step // P_STAGES & 1 ^ 1)
        p_ring.index(p_stage).store(p)
        mbarrier.arrive(p_full.index(p_stage), count=1)
        # ptxas moves the wait for the product, below, up across arithmetic, but not across the branch of this one.
        mbarrier.wait(dout_full.index(stage), phase)
        left, right = finished(left, right, 0, V_REST)
        mbarrier.arrive(dout_empty.index(before), count=1)
        p_half = gl.convert_layout(p.to(dtype), operand)
    last = (steps - 1) % STAGES
    way_out = dout_ring.index(last)
    left, right = add_product(p_half, way_out.reshape([ROWS, DV]), left, right, V_REST)
    left, right = finished(left, right, 0, V_REST)
    mbarrier.wait(p_empty.index((steps - 1) % P_STAGES), (steps - 1) // P_STAGES & 1)  # the other warpgroup then has read this dO, too
    store_parts(way_out.reshape([ROWS, DV]), left, right, V_REST)
    fence_async_shared()
    async_store(dv_desc, [gl.program_id(2), gl.program_id(0), block * ROWS, 0], way_out)
    tma.store_wait(0)


@gluon.jit
def _keys(dk_desc, scale, smem, bars, sizes, CAUSAL: gl.constexpr, REST: gl.constexpr, V_REST: gl.constexpr):
    _, v_smem, q_ring, dout_ring, _, delta_ring, p_ring = smem
    kv_full, q_full, q_empty, dout_full, dout_empty, p_full, p_empty = bars
    _, group, _, _, row_tiles = sizes
    STAGES: gl.constexpr = q_ring.shape[0]
    P_STAGES: gl.constexpr = p_ring.shape[0]
    ROWS: gl.constexpr = q_ring.shape[3]
    D: gl.constexpr = q_ring.shape[4]
    DV: gl.constexpr = dout_ring.shape[4]
    dtype: gl.constexpr = q_ring.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    by_query: gl.constexpr = gl.SliceLayout(0, s_layout)
    operand: gl.constexpr = gl.DotOperandLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]), 2)
    PENDING: gl.constexpr = 2 if REST else 1
    unset = gl.zeros([ROWS, ROWS], gl.float32, s_layout)
    block = gl.program_id(1)
    v = v_smem.index(0).reshape([ROWS, DV])
    left, right = cleared(ROWS, REST)

    first = gl.minimum(block, row_tiles - 1) if CAUSAL else 0
    mbarrier.wait(kv_full, 0)
    mbarrier.wait(dout_full.index(0), 0)
    dp = scores(v, dout_ring.index(0).reshape([ROWS, DV]), unset, V_REST)
    dp = warpgroup_mma_wait(0, deps=(dp,))
    dp += gl.expand_dims(delta_ring.index(0).load(by_query), 0)
    fence_async_shared()  # as in `_values`
    mbarrier.arrive(dout_empty.index(0), count=1)
    mbarrier.wait(p_full.index(0), 0)
    ds = p_ring.index(0).load(s_layout) * dp
    mbarrier.arrive(p_empty.index(0), count=1)
    ds_half = gl.convert_layout(ds.to(dtype), operand)
    mbarrier.wait(q_full.index(0), 0)
    steps = group * (row_tiles - first)
    for step in range(1, steps):
        stage, phase, p_stage = step % STAGES, step // STAGES & 1, step % P_STAGES
        before = (step - 1) % STAGES
        v = v_smem.index(step * (step + 1) & 1).reshape([ROWS, DV])  # always the first: see `wide_queries.py`
        mbarrier.wait(dout_full.index(stage), phase)
        dp = scores(v, dout_ring.index(stage).reshape([ROWS, DV]), unset, V_REST)
        left, right = add_product(ds_half, q_ring.index(before).reshape([ROWS, D]), left, right, REST)
        dp = warpgroup_mma_wait(PENDING, deps=(dp,))
        dp += gl.expand_dims(delta_ring.index(stage).load(by_query), 0)
        fence_async_shared()
        mbarrier.arrive(dout_empty.index(stage), count=1)
        # Give the queries back before P comes, which takes longer. The branch of this wait keeps the next one below: see `_values`.
        mbarrier.wait(q_full.index(stage), phase)
        left, right = finished(left, right, 0, REST)
        mbarrier.arrive(q_empty.index(before), count=1)
        mbarrier.wait(p_full.index(p_stage), step // P_STAGES & 1)
        ds = p_ring.index(p_stage).load(s_layout) * dp
        mbarrier.arrive(p_empty.index(p_stage), count=1)
        ds_half = gl.convert_layout(ds.to(dtype), operand)
    way_out = q_ring.index((steps - 1) % STAGES)  # its scores are done: P came
    left, right = add_product(ds_half, way_out.reshape([ROWS, D]), left, right, REST)
    left, right = finished(left, right, 0, REST)
    store_parts(way_out.reshape([ROWS, D]), left * scale, right * scale, REST)
    fence_async_shared()
    async_store(dk_desc, [gl.program_id(2), gl.program_id(0), block * ROWS, 0], way_out)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["kv_heads", "group", "together", "section", "row_tiles"])
def attention_hopper_key_value_kernel(
    q_desc, k_desc, v_desc, dout_desc, start_desc, delta_desc, dk_desc, dv_desc,
    scale, kv_heads, group, together, section, row_tiles,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr, REST: gl.constexpr, V_REST: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    ROWS: gl.constexpr = q_desc.block_type.shape[2]
    D: gl.constexpr = q_desc.block_type.shape[3]
    DV: gl.constexpr = v_desc.block_type.shape[3]
    p_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
    k_smem = gl.allocate_shared_memory(dtype, [1, 1, 1, ROWS, D], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [1, 1, 1, ROWS, DV], v_desc.layout)
    q_ring = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, D], q_desc.layout)
    dout_ring = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DV], dout_desc.layout)
    start_ring = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], start_desc.layout)
    delta_ring = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], delta_desc.layout)
    p_ring = gl.allocate_shared_memory(gl.float32, [2, ROWS, ROWS], p_layout)
    kv_full = barriers(1, 1)
    q_full, q_empty = ring(STAGES, 1, 2)
    dout_full, dout_empty = ring(STAGES, 1, 2)
    p_full, p_empty = ring(2, 1, 1)
    fence_async_shared()

    smem = (k_smem, v_smem, q_ring, dout_ring, start_ring, delta_ring, p_ring)
    bars = (kv_full.index(0), q_full, q_empty, dout_full, dout_empty, p_full, p_empty)
    sizes = (kv_heads, group, together, section, row_tiles)
    fetched = (q_desc, k_desc, v_desc, dout_desc, start_desc, delta_desc)
    gl.warp_specialize(
        [
            (_values, (dv_desc, scale * 1.4426950408889634, smem, bars, sizes, CAUSAL, REST, V_REST)),
            (_keys, (dk_desc, scale, smem, bars, sizes, CAUSAL, REST, V_REST)),
            (_produce, (fetched, smem, bars, sizes, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )
