"""Attention forward for Hopper: warp-specialised, in Gluon (a lower level of Triton), following FlashAttention-3.

A program works on tiles of 128 queries. Its twelve warps have three roles:

    producer      one warp, 24 registers a thread       fetches Q, and K and V block by block, through the tensor memory accelerator (TMA)
    consumer 0/1  a warpgroup each, 240 registers       queries 0..63 and 64..127

The consumers never wait for each other, so the softmax of one overlaps with the matrix products of the other. Each also issues the scores
of the next block before the weighted sum of the current one, so that its softmax overlaps with its own product too.

Without a mask, the tiles that do not fill a last round of all programs are shared out (`SPLIT`), together with one more for each program.
Their blocks of keys are divided evenly, so a tile may be cut in two. The program that has its left part writes its sums to memory. The
program that has its right part reads them, adds its own blocks, and writes the output.

Of sequences of several lengths, one after the other in a tensor, `table` says where a tile is (`plain/sequences.py`).

Formula: Dao 2023 (arXiv 2307.08691), section 3.1. Schedule: Shah et al. 2024 (arXiv 2407.08608), sections 3.1 and 3.2.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from kernels.attention.hopper.tile_order import deal_out, index_of, place, place_in_sequence, stretch
from kernels.attention.hopper.tiles import ring
from kernels.hopper import async_load, async_store

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # the names of Triton 3.9 and 3.6
_ZERO = gl.constexpr("mov.u32 $0, 0;")
# What a flag holds once the sums are there. Who has taken them clears it, so a launch needs no zeros: memory that was last used for
# anything else holds this once in 2^64 times.
_SET = gl.constexpr(0x3D0A94C25E7B816F)
_ZERO_ONCE_SET = gl.constexpr("""{
    .reg .pred absent;
    .reg .b64 flag;
    again:
    ld.acquire.gpu.global.b64 flag, [$1];
    xor.b64 flag, flag, 0x3D0A94C25E7B816F;
    setp.ne.b64 absent, flag, 0;
    @absent bra again;
    cvt.u32.u64 $0, flag;
    }""")


@gluon.jit
def _scores(q, k, unset, REST: gl.constexpr):
    """Start the product of queries and keys; of the second half of their columns, only REST."""
    if REST:
        HALF: gl.constexpr = q.shape[1] // 2
        s = warpgroup_mma(q.slice(0, HALF, dim=1), k.slice(0, HALF, dim=1).permute((1, 0)), unset, use_acc=False, is_async=True)
        s = warpgroup_mma(q.slice(HALF, REST, dim=1), k.slice(HALF, REST, dim=1).permute((1, 0)), s, is_async=True)
    else:
        s = warpgroup_mma(q, k.permute((1, 0)), unset, use_acc=False, is_async=True)
    return s


@gluon.jit
def _blocks(row_tile, keys, CAUSAL: gl.constexpr, TILE: gl.constexpr, BLOCK: gl.constexpr):
    """Return how many blocks of keys a row tile sees."""
    if CAUSAL:
        keys = gl.minimum(keys, (row_tile + 1) * TILE)
    return gl.cdiv(keys, BLOCK)


@gluon.jit
def _part_of(tile, begin, end, blocks):
    """Return the last block of a tile that a stretch has, and how many. Stretches go through a tile from its last block to its first."""
    skipped = gl.maximum(begin - tile * blocks, 0)
    return blocks - 1 - skipped, gl.minimum(end - tile * blocks, blocks) - skipped


@gluon.jit
def _fetch(q_desc, k_desc, v_desc, smem, bars, at, step, turn, heads, group, ROWS: gl.constexpr, BLOCK: gl.constexpr):
    """Fetch the queries of a tile, and `count` blocks of keys and values, from `last` to the left. Return the step that follows."""
    head, row_tile, last, count, begin = at
    q_begin, k_begin = begin
    q_smem, k_ring, v_ring, _ = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    STAGES: gl.constexpr = k_ring.shape[0]
    batch, q_head = head // heads, head % heads
    for i in range(count):
        stage, phase = step % STAGES, step // STAGES & 1
        key = k_begin + (last - i) * BLOCK
        mbarrier.wait(k_empty.index(stage), phase ^ 1)  # waiting for the phase before the first succeeds on a new barrier
        mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
        async_load(k_desc, [batch, q_head // group, key, 0], k_full.index(stage), k_ring.index(stage))
        if i == 0:
            for half in gl.static_range(2):
                mbarrier.wait(q_empty.index(half), turn & 1 ^ 1)
                mbarrier.expect(q_full.index(half), q_desc.block_type.nbytes)
                async_load(q_desc, [batch, q_head, q_begin + (2 * row_tile + half) * ROWS, 0], q_full.index(half), q_smem.index(half))
        mbarrier.wait(v_empty.index(stage), phase ^ 1)
        mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
        async_load(v_desc, [batch, q_head // group, key, 0], v_full.index(stage), v_ring.index(stage))
        step += 1
    return step


@gluon.jit
def _produce(
    q_desc, k_desc, v_desc, table, smem, bars, sizes, CAUSAL: gl.constexpr, ROWS: gl.constexpr, BLOCK: gl.constexpr, SPLIT: gl.constexpr
):
    total, dealt, split, section, row_tiles, heads, group, _, keys = sizes
    step = 0
    deal = deal_out(total - split, dealt)
    for turn in range(deal[0]):
        index = index_of(turn, deal, dealt)
        if table is None:
            head, row_tile = place(index, section, row_tiles)
            blocks = _blocks(row_tile, keys, CAUSAL, 2 * ROWS, BLOCK)
            at = (head, row_tile, blocks - 1, blocks, (0, 0))
        else:
            head, row_tile, rows, keys, begin, _ = place_in_sequence(table, index, heads)
            blocks = gl.where(rows > 0, gl.maximum(_blocks(row_tile, keys, CAUSAL, 2 * ROWS, BLOCK), 1), 0)
            at = (head, row_tile, blocks - 1, blocks, begin)
        step = _fetch(q_desc, k_desc, v_desc, smem, bars, at, step, turn, heads, group, ROWS, BLOCK)
    if SPLIT:
        blocks = gl.cdiv(keys, BLOCK)
        _, begin, end = stretch(split * blocks)
        for tile in range(begin // blocks, gl.cdiv(end, blocks)):
            turn = deal[0] + tile - begin // blocks
            head, row_tile = place(total - split + tile, section, row_tiles)
            last, count = _part_of(tile, begin, end, blocks)
            step = _fetch(q_desc, k_desc, v_desc, smem, bars, (head, row_tile, last, count, (0, 0)), step, turn, heads, group, ROWS, BLOCK)


@gluon.jit
def _sums(parts, flag, ZERO: gl.constexpr, ROWS: gl.constexpr, DV: gl.constexpr, s_layout: gl.constexpr, o_layout: gl.constexpr):
    """Return where the peaks, the norms and the output of a part are. `ZERO` is assembly that returns zero, and may wait for the flag.

    The compiler does not know that it is zero. Else it would compute every address before the first tile, and keep them all.
    """
    zero = gl.inline_asm_elementwise(
        ZERO, "=r,l", [flag + gl.zeros([ROWS], gl.int32, gl.SliceLayout(1, o_layout))], dtype=gl.int32, is_pure=False, pack=1
    )
    row = gl.arange(0, ROWS, gl.SliceLayout(1, s_layout)) + gl.convert_layout(zero, gl.SliceLayout(1, s_layout))
    o_row = gl.arange(0, ROWS, gl.SliceLayout(1, o_layout)) + zero
    column = gl.arange(0, DV, gl.SliceLayout(0, o_layout))
    return parts + row, parts + ROWS + row, parts + 2 * ROWS + gl.expand_dims(o_row * DV, 1) + gl.expand_dims(column, 0)


@gluon.jit
def _clear_past(block, length):
    """Write zeros to the values past the sequence's end: their weights are zero, but zero times infinity is not."""
    STEP: gl.constexpr = 16
    ROWS: gl.constexpr = block.shape[0]
    DV: gl.constexpr = block.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DV, DV // 8], [4, 1], [1, 0])
    for first in gl.static_range(0, ROWS, STEP):
        if first + STEP > length:
            rows = block.slice(first, STEP, dim=0)
            row = gl.expand_dims(first + gl.arange(0, STEP, gl.SliceLayout(1, layout)), 1)
            values = rows.load(layout)
            rows.store(gl.where(row < length, values, gl.zeros_like(values)))
    fence_async_shared()
    barrier()


@gluon.jit
def _attend(
    out_desc, out, lse, parts, flags, scale_log2, smem, bars, sizes, at, step, turn,
    HALF: gl.constexpr, CAUSAL: gl.constexpr, ROWS: gl.constexpr, BLOCK: gl.constexpr, REST: gl.constexpr, SHARED: gl.constexpr,
    PART: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    """Attend to `count` blocks of keys, from `last` to the left. Return the step that follows.

    `PART`: where more blocks are to the left, another program has left their sums. Where more are to the right, leave the sums.
    `out`: the output's memory, if the last tile of a sequence must leave the rows of the next one alone. Else None.
    """
    head, row_tile, last, count, begin = at
    _, _, split, _, _, heads, _, rows, keys = sizes
    q_smem, k_ring, v_ring, out_smem = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    STAGES: gl.constexpr = k_ring.shape[0]
    D: gl.constexpr = k_ring.shape[4]
    DV: gl.constexpr = v_ring.shape[4]
    dtype: gl.constexpr = q_smem.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DV, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    by_row: gl.constexpr = gl.SliceLayout(1, o_layout)
    q = q_smem.index(HALF).reshape([ROWS, D])
    unset = gl.zeros([ROWS, BLOCK], gl.float32, s_layout)
    first_row = (2 * row_tile + HALF) * ROWS
    row = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))

    if CAUSAL and HALF == 0 and BLOCK == ROWS and count > _blocks(2 * row_tile, keys, CAUSAL, ROWS, BLOCK):
        # These queries do not see the last block of the tile.
        mbarrier.wait(k_full.index(step % STAGES), step // STAGES & 1)
        mbarrier.arrive(k_empty.index(step % STAGES), count=1)
        mbarrier.wait(v_full.index(step % STAGES), step // STAGES & 1)
        mbarrier.arrive(v_empty.index(step % STAGES), count=1)
        step += 1
        last -= 1
        count -= 1

    o = gl.zeros([ROWS, DV], gl.float32, o_layout)
    if PART:
        blocks = gl.cdiv(keys, BLOCK)
        number, _, _ = stretch(split * blocks)
        PART_SIZE: gl.constexpr = ROWS * (DV + 2)
        before = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
        norm_before = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, s_layout))
        if last >= count:
            index = 2 * number + 2 + HALF
            peaks, norms, outs = _sums(parts + index * PART_SIZE, flags + index, _ZERO_ONCE_SET, ROWS, DV, s_layout, o_layout)
            before, norm_before, o = gl.load(peaks), gl.load(norms), gl.load(outs)
            barrier()
            gl.store(flags + index, 0)

    # From the right: the only block with a diagonal or a ragged end comes first, so the loop needs no mask.
    mbarrier.wait(q_full.index(HALF), turn & 1)
    stage = step % STAGES
    mbarrier.wait(k_full.index(stage), step // STAGES & 1)
    s = _scores(q, k_ring.index(stage).reshape([BLOCK, D]), unset, REST)
    s = warpgroup_mma_wait(0, deps=(s,))
    mbarrier.arrive(k_empty.index(stage), count=1)
    if not SHARED and count == 1:
        mbarrier.arrive(q_empty.index(HALF), count=1)
    column = last * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, s_layout))
    seen = gl.full([ROWS], keys - 1, gl.int32, gl.SliceLayout(1, s_layout))
    if CAUSAL:
        seen = gl.minimum(seen, row)
    s = gl.where(gl.expand_dims(column, 0) <= gl.expand_dims(seen, 1), s, float("-inf"))
    peak = gl.max(s, 1) * scale_log2
    if PART:
        peak = gl.maximum(peak, before)
    if out is not None:  # there may be no key
        peak = gl.where(peak == float("-inf"), 0.0, peak)
    p = gl.exp2(s * scale_log2 - gl.expand_dims(peak, 1))
    norm = gl.sum(p, 1)
    if PART:
        shrink = gl.exp2(before - peak)
        norm += norm_before * shrink
        o = o * gl.expand_dims(gl.convert_layout(shrink, by_row), 1)
    p_half = gl.convert_layout(p.to(dtype), p_layout)
    mbarrier.wait(v_full.index(stage), step // STAGES & 1)
    if out is not None and (last + 1) * BLOCK > keys:
        _clear_past(v_ring.index(stage).reshape([BLOCK, DV]), keys - last * BLOCK)

    for i in range(count - 1):
        following, phase = (step + 1) % STAGES, (step + 1) // STAGES & 1
        mbarrier.wait(k_full.index(following), phase)
        s = _scores(q, k_ring.index(following).reshape([BLOCK, D]), unset, REST)
        o = warpgroup_mma(p_half, v_ring.index(stage).reshape([BLOCK, DV]), o, is_async=True)
        s = warpgroup_mma_wait(1, deps=(s,))
        mbarrier.arrive(k_empty.index(following), count=1)
        if not SHARED and i == count - 2:
            mbarrier.arrive(q_empty.index(HALF), count=1)
        new_peak = gl.maximum(peak, gl.max(s, 1) * scale_log2)
        p = gl.exp2(s * scale_log2 - gl.expand_dims(new_peak, 1))
        shrink = gl.exp2(peak - new_peak)
        peak = new_peak
        norm = norm * shrink + gl.sum(p, 1)
        # This wait for the next block's V is here because of its branch. ptxas moves the wait for the product, below, up across
        # arithmetic, but not across a branch. So the softmax still overlaps with the product.
        mbarrier.wait(v_full.index(following), phase)
        o = warpgroup_mma_wait(0, deps=(o,))
        mbarrier.arrive(v_empty.index(stage), count=1)
        o = o * gl.expand_dims(gl.convert_layout(shrink, by_row), 1)
        p_half = gl.convert_layout(p.to(dtype), p_layout)
        step += 1
        stage = following

    o = warpgroup_mma(p_half, v_ring.index(stage).reshape([BLOCK, DV]), o, is_async=True)
    if out is not None:
        logarithm = gl.where(norm > 0.0, (peak + gl.log2(norm)) * 0.6931471805599453, float("inf"))
        gl.store(lse + row, logarithm, mask=row < rows)
        norm = gl.where(norm > 0.0, norm, 1.0)
    elif not PART or last == gl.cdiv(keys, BLOCK) - 1:
        gl.store(lse + head.to(gl.int64) * rows + row, (peak + gl.log2(norm)) * 0.6931471805599453, mask=row < rows)
    o = warpgroup_mma_wait(0, deps=(o,))
    mbarrier.arrive(v_empty.index(stage), count=1)
    step += 1
    if PART and last < gl.cdiv(keys, BLOCK) - 1:
        index = 2 * number + HALF
        peaks, norms, outs = _sums(parts + index * PART_SIZE, flags, _ZERO, ROWS, DV, s_layout, o_layout)
        gl.store(peaks, peak)
        gl.store(norms, norm)
        gl.store(outs, o)
        barrier()
        gl.atomic_xchg(flags + index, _SET, sem="release")
    elif out is not None and first_row + ROWS > rows:
        o = o * gl.expand_dims(gl.convert_layout(1.0 / norm, by_row), 1)
        o_row = gl.expand_dims(first_row + gl.arange(0, ROWS, by_row), 1)
        o_column = gl.expand_dims(gl.arange(0, DV, gl.SliceLayout(0, o_layout)), 0)
        gl.store(out + (o_row * heads).to(gl.int64) * WIDTH + o_column, o.to(dtype), mask=(o_row < rows) & (o_column < WIDTH))
    else:
        o = o * gl.expand_dims(gl.convert_layout(1.0 / norm, by_row), 1)
        tma.store_wait(0)  # the previous tile's store: its buffer is written next
        out_smem.index(HALF).reshape([ROWS, DV]).store(o.to(dtype))
        fence_async_shared()
        async_store(out_desc, [head // heads, head % heads, begin[0] + first_row, 0], out_smem.index(HALF))
    if SHARED:
        tma.store_wait(0)
        mbarrier.arrive(q_empty.index(HALF), count=1)
    return step


@gluon.jit
def _consume(
    to, table, scale_log2, smem, bars, sizes,
    HALF: gl.constexpr, CAUSAL: gl.constexpr, ROWS: gl.constexpr, BLOCK: gl.constexpr, REST: gl.constexpr, SHARED: gl.constexpr,
    SPLIT: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    out_desc, out, lse, parts, flags = to
    total, dealt, split, section, row_tiles, heads, group, all_rows, keys = sizes
    given = (parts, flags, scale_log2, smem, bars)
    step = 0
    deal = deal_out(total - split, dealt)
    for turn in range(deal[0]):
        index = index_of(turn, deal, dealt)
        if table is None:
            head, row_tile = place(index, section, row_tiles)
            blocks = _blocks(row_tile, keys, CAUSAL, 2 * ROWS, BLOCK)
            at = (head, row_tile, blocks - 1, blocks, (0, 0))
            step = _attend(out_desc, None, lse, *given, sizes, at, step, turn, HALF, CAUSAL, ROWS, BLOCK, REST, SHARED, False, 0)
        else:
            head, row_tile, rows, keys, begin, _ = place_in_sequence(table, index, heads)
            blocks = gl.maximum(_blocks(row_tile, keys, CAUSAL, 2 * ROWS, BLOCK), 1)
            at = (head, row_tile, blocks - 1, blocks, begin)
            here = out + (begin[0].to(gl.int64) * heads + head) * WIDTH
            of_head = lse + (head.to(gl.int64) * all_rows + begin[0])
            of_sequence = (total, dealt, split, section, row_tiles, heads, group, rows, keys)
            if rows > 0:
                step = _attend(
                    out_desc, here, of_head, *given, of_sequence, at, step, turn, HALF, CAUSAL, ROWS, BLOCK, REST, SHARED, False, WIDTH
                )
    if SPLIT:
        blocks = gl.cdiv(keys, BLOCK)
        _, begin, end = stretch(split * blocks)
        for tile in range(begin // blocks, gl.cdiv(end, blocks)):
            turn = deal[0] + tile - begin // blocks
            head, row_tile = place(total - split + tile, section, row_tiles)
            last, count = _part_of(tile, begin, end, blocks)
            at = (head, row_tile, last, count, (0, 0))
            step = _attend(out_desc, None, lse, *given, sizes, at, step, turn, HALF, CAUSAL, ROWS, BLOCK, REST, SHARED, True, 0)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["total", "dealt", "split", "section", "row_tiles", "heads", "group", "rows", "keys"])
def attention_hopper_kernel(
    q_desc, k_desc, v_desc, out_desc,
    out, lse, parts, flags, table, scale_log2, total, dealt, split, section, row_tiles, heads, group, rows, keys,
    CAUSAL: gl.constexpr, ROWS: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, REST: gl.constexpr, SHARED: gl.constexpr,
    SPLIT: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    D: gl.constexpr = q_desc.block_type.shape[3]
    DV: gl.constexpr = v_desc.block_type.shape[3]
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, ROWS, D], q_desc.layout)
    if SHARED:  # noqa: SIM108 - the output leaves through the memory of its own queries
        out_smem = q_smem
    else:
        out_smem = gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, ROWS, DV], out_desc.layout)
    k_ring = gl.allocate_shared_memory(q_desc.dtype, [STAGES, 1, 1, BLOCK, D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(q_desc.dtype, [STAGES, 1, 1, BLOCK, DV], v_desc.layout)
    q_full, q_empty = ring(2, 1, 1)
    k_full, k_empty = ring(STAGES, 1, 2)
    v_full, v_empty = ring(STAGES, 1, 2)
    fence_async_shared()

    smem = (q_smem, k_ring, v_ring, out_smem)
    bars = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    sizes = (total, dealt, split, section, row_tiles, heads, group, rows, keys)
    to = (out_desc, out, lse, parts, flags)
    gl.warp_specialize(
        [
            (_consume, (to, table, scale_log2, smem, bars, sizes, 0, CAUSAL, ROWS, BLOCK, REST, SHARED, SPLIT, WIDTH)),
            (_consume, (to, table, scale_log2, smem, bars, sizes, 1, CAUSAL, ROWS, BLOCK, REST, SHARED, SPLIT, WIDTH)),
            (_produce, (q_desc, k_desc, v_desc, table, smem, bars, sizes, CAUSAL, ROWS, BLOCK, SPLIT)),
        ],
        [4, 1],
        [240, 24],
    )
