"""dQ for Hopper, heads of more than 128 columns: warp-specialised, in Gluon, three matrix products per tile.

A program owns 128 queries of one head and walks over the blocks of 64 keys that they see. Its twelve warps have three roles:

    producer      one warp, 24 registers a thread   fetches Q and dO once, then K and V block by block (TMA)
    consumer 0/1  a warpgroup each, 240 registers   queries 0..63 and 64..127: S = Q K^T, P = exp(scale * S - lse), dP = dO V^T,
                                                    dS = P (dP - delta), dQ += dS K

The consumers never wait for each other, so one's exponentials overlap with the other's products. Nothing is added up across programs, so
results are bitwise reproducible. Formula: Dao 2023 (arXiv 2307.08691), section 3.1, with delta = rowsum(dO * O).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma_wait

from kernels.attention.hopper.tiles import ring
from kernels.attention.hopper.wide import add_product, cleared, finished, scores, store_parts
from kernels.hopper import async_load, async_store, barriers


@gluon.jit
def _place(section, pairs, CAUSAL: gl.constexpr, ROWS: gl.constexpr, KEYS: gl.constexpr, keys):
    """Return this program's head, tile of queries, and how many blocks of keys that sees. The last tiles come first: they see most."""
    tile = pairs - 1 - gl.program_id(1)
    if CAUSAL:
        keys = gl.minimum(keys, (tile + 1) * 2 * ROWS)
    return gl.program_id(2) * section + gl.program_id(0), tile, gl.cdiv(keys, KEYS)


@gluon.jit
def _produce(descs, smem, bars, sizes, CAUSAL: gl.constexpr):
    q_desc, k_desc, v_desc, dout_desc = descs
    q_smem, dout_smem, k_ring, v_ring = smem
    q_full, k_full, k_empty, v_full, v_empty = bars
    heads, group, section, row_tiles, keys = sizes
    STAGES: gl.constexpr = k_ring.shape[0]
    V_STAGES: gl.constexpr = v_ring.shape[0]
    ROWS: gl.constexpr = q_smem.shape[3]
    KEYS: gl.constexpr = k_ring.shape[3]
    pair, tile, blocks = _place(section, gl.cdiv(row_tiles, 2), CAUSAL, ROWS, KEYS, keys)
    batch, head = pair // heads, pair % heads
    mbarrier.expect(q_full, 2 * q_desc.block_type.nbytes + 2 * dout_desc.block_type.nbytes)
    for half in gl.static_range(2):
        async_load(q_desc, [batch, head, (2 * tile + half) * ROWS, 0], q_full, q_smem.index(half))
        async_load(dout_desc, [batch, head, (2 * tile + half) * ROWS, 0], q_full, dout_smem.index(half))
    for step in range(blocks):
        at = (blocks - 1 - step) * KEYS
        stage = step % STAGES
        mbarrier.wait(k_empty.index(stage), step // STAGES & 1 ^ 1)
        mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
        async_load(k_desc, [batch, head // group, at, 0], k_full.index(stage), k_ring.index(stage))
        stage = step % V_STAGES
        mbarrier.wait(v_empty.index(stage), step // V_STAGES & 1 ^ 1)
        mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
        async_load(v_desc, [batch, head // group, at, 0], v_full.index(stage), v_ring.index(stage))


@gluon.jit
def _probabilities(s, offset, first_row, first_key, keys, scale_log2, CAUSAL: gl.constexpr):
    """Return P of a block. Only blocks on the diagonal and at the ragged end have a mask.

    It comes after the exponentials because of its branch. ptxas moves the waits for products, which follow, up across arithmetic, but not
    across a branch. So exponentials still overlap with these products.
    """
    ROWS: gl.constexpr = s.shape[0]
    KEYS: gl.constexpr = s.shape[1]
    by_row: gl.constexpr = gl.SliceLayout(1, s.type.layout)
    p = gl.exp2(s * scale_log2 + gl.expand_dims(offset, 1))
    end = first_key + KEYS
    masked = end > keys
    if CAUSAL:
        masked = masked | (end > first_row)
    if masked:
        last = gl.full([ROWS], keys - 1, gl.int32, by_row)
        if CAUSAL:
            last = gl.minimum(last, first_row + gl.arange(0, ROWS, by_row))
        key = first_key + gl.arange(0, KEYS, gl.SliceLayout(0, s.type.layout))
        p = gl.where(gl.expand_dims(key, 0) <= gl.expand_dims(last, 1), p, 0.0)
    return p


@gluon.jit
def _consume(
    dq_desc, start, delta, scale, smem, bars, sizes, HALF: gl.constexpr, CAUSAL: gl.constexpr, REST: gl.constexpr, V_REST: gl.constexpr
):
    q_smem, dout_smem, k_ring, v_ring = smem
    q_full, k_full, k_empty, v_full, v_empty = bars
    _, _, section, row_tiles, keys = sizes
    STAGES: gl.constexpr = k_ring.shape[0]
    V_STAGES: gl.constexpr = v_ring.shape[0]
    ROWS: gl.constexpr = q_smem.shape[3]
    D: gl.constexpr = q_smem.shape[4]
    DV: gl.constexpr = dout_smem.shape[4]
    KEYS: gl.constexpr = k_ring.shape[3]
    dtype: gl.constexpr = q_smem.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    by_row: gl.constexpr = gl.SliceLayout(1, s_layout)
    operand: gl.constexpr = gl.DotOperandLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]), 2)
    D_GROUPS: gl.constexpr = 2 if REST else 1
    V_GROUPS: gl.constexpr = 2 if V_REST else 1
    unset = gl.zeros([ROWS, KEYS], gl.float32, s_layout)
    scale_log2 = scale * 1.4426950408889634
    pair, tile, blocks = _place(section, gl.cdiv(row_tiles, 2), CAUSAL, ROWS, KEYS, keys)
    first_row = (2 * tile + HALF) * ROWS
    # Past the last tile of 64 queries there is no number to load: take those of the last tile, the results are not stored.
    at = (pair * row_tiles + gl.minimum(2 * tile + HALF, row_tiles - 1)) * ROWS + gl.arange(0, ROWS, by_row)
    offset = gl.load(start + at) * scale_log2
    minus_delta = gl.load(delta + at)
    q = q_smem.index(HALF).reshape([ROWS, D])
    dout = dout_smem.index(HALF).reshape([ROWS, DV])
    left, right = cleared(ROWS, REST)

    mbarrier.wait(q_full, 0)
    mbarrier.wait(k_full.index(0), 0)
    s = scores(q, k_ring.index(0).reshape([KEYS, D]), unset, REST)
    mbarrier.wait(v_full.index(0), 0)
    dp = scores(dout, v_ring.index(0).reshape([KEYS, DV]), unset, V_REST)
    s = warpgroup_mma_wait(V_GROUPS, deps=(s,))
    p = _probabilities(s, offset, first_row, (blocks - 1) * KEYS, keys, scale_log2, CAUSAL)
    dp = warpgroup_mma_wait(0, deps=(dp,))
    mbarrier.arrive(v_empty.index(0), count=1)
    ds_half = gl.convert_layout((p * (dp + gl.expand_dims(minus_delta, 1))).to(dtype), operand)
    for step in range(1, blocks):
        stage, before, v_stage = step % STAGES, (step - 1) % STAGES, step % V_STAGES
        # Always zero, but the compiler must not know. It would keep the addresses of all parts of Q, dO and V in registers, and spill.
        zero = step * (step + 1) & 1
        q = q_smem.index(HALF + zero).reshape([ROWS, D])
        mbarrier.wait(k_full.index(stage), step // STAGES & 1)
        s = scores(q, k_ring.index(stage).reshape([KEYS, D]), unset, REST)
        left, right = add_product(ds_half, k_ring.index(before).reshape([KEYS, D]), left, right, REST)
        mbarrier.wait(v_full.index(v_stage), step // V_STAGES & 1)
        dp = scores(dout, v_ring.index(v_stage + zero).reshape([KEYS, DV]), unset, V_REST)
        s = warpgroup_mma_wait(D_GROUPS + V_GROUPS, deps=(s,))
        p = _probabilities(s, offset, first_row, (blocks - 1 - step) * KEYS, keys, scale_log2, CAUSAL)
        left, right = finished(left, right, V_GROUPS, REST)
        mbarrier.arrive(k_empty.index(before), count=1)
        dp = warpgroup_mma_wait(0, deps=(dp,))
        mbarrier.arrive(v_empty.index(v_stage), count=1)
        ds_half = gl.convert_layout((p * (dp + gl.expand_dims(minus_delta, 1))).to(dtype), operand)
    left, right = add_product(ds_half, k_ring.index((blocks - 1) % STAGES).reshape([KEYS, D]), left, right, REST)
    left, right = finished(left, right, 0, REST)
    store_parts(q_smem.index(HALF).reshape([ROWS, D]), left * scale, right * scale, REST)
    fence_async_shared()
    async_store(dq_desc, [gl.program_id(2), gl.program_id(0), first_row, 0], q_smem.index(HALF))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["heads", "group", "section", "row_tiles", "keys"])
def attention_hopper_query_kernel(
    q_desc, k_desc, v_desc, dout_desc, dq_desc,
    start, delta, scale, heads, group, section, row_tiles, keys,
    CAUSAL: gl.constexpr, REST: gl.constexpr, V_REST: gl.constexpr, V_STAGES: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    ROWS: gl.constexpr = q_desc.block_type.shape[2]
    KEYS: gl.constexpr = k_desc.block_type.shape[2]
    D: gl.constexpr = q_desc.block_type.shape[3]
    DV: gl.constexpr = v_desc.block_type.shape[3]
    q_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, D], q_desc.layout)
    dout_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, DV], dout_desc.layout)
    k_ring = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(dtype, [V_STAGES, 1, 1, KEYS, DV], v_desc.layout)
    q_full = barriers(1, 1)
    k_full, k_empty = ring(2, 1, 2)
    v_full, v_empty = ring(V_STAGES, 1, 2)
    fence_async_shared()

    smem = (q_smem, dout_smem, k_ring, v_ring)
    bars = (q_full.index(0), k_full, k_empty, v_full, v_empty)
    sizes = (heads, group, section, row_tiles, keys)
    gl.warp_specialize(
        [
            (_consume, (dq_desc, start, delta, scale, smem, bars, sizes, 0, CAUSAL, REST, V_REST)),
            (_consume, (dq_desc, start, delta, scale, smem, bars, sizes, 1, CAUSAL, REST, V_REST)),
            (_produce, ((q_desc, k_desc, v_desc, dout_desc), smem, bars, sizes, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )
