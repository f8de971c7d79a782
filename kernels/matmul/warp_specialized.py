"""The product for GPUs with warpgroup instructions and a tensor memory accelerator (TMA), in Gluon.

One program a multiprocessor strides over the tiles of the output. One warp does nothing but fetch; two warpgroups multiply, each its half
of a tile's rows, from the same buffers. They wait for the fetching warp only, never for each other, so while one converts and stores
its half, the other keeps the tensor cores busy as far as the buffers reach ahead.
"""

from __future__ import annotations

import functools

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.configs import card
from kernels.configs.matmul import Specialized
from kernels.matmul.kernels import activate, grouped

# Triton's names for them changed.
_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_put = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
GLUON = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


@gluon.jit
def _fetch(a_desc, b_desc, buffers, barriers, shape, A_TRANSPOSED: gl.constexpr, B_TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr):
    batches, M, N, K = shape
    a_bufs, b_bufs = buffers
    ready, empty = barriers
    STAGES: gl.constexpr = ready.shape[0]
    BLOCK_K: gl.constexpr = b_desc.block_type.shape[2 if B_TRANSPOSED else 1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1 if B_TRANSPOSED else 2]
    HALF_M: gl.constexpr = a_desc.block_type.shape[2 if A_TRANSPOSED else 1]
    tiles_m = gl.cdiv(M, 2 * HALF_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    step = 0
    for tile in range(gl.program_id(0), batches * tiles_m * tiles_n, gl.num_programs(0)):
        batch = tile // (tiles_m * tiles_n)
        tile_m, tile_n = grouped(tile % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
        row = tile_m * (2 * HALF_M)
        column = tile_n * BLOCK_N
        for k in range(0, K, BLOCK_K):
            stage = step % STAGES
            arrived = ready.index(stage)
            # A barrier starts in phase 1 as if complete: the first round finds every stage empty.
            mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
            mbarrier.expect(arrived, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            for half in gl.static_range(2):
                into = a_bufs.index(2 * stage + half)
                if A_TRANSPOSED:
                    _load(a_desc, [batch, k, row + half * HALF_M], arrived, into)
                else:
                    _load(a_desc, [batch, row + half * HALF_M, k], arrived, into)
            if B_TRANSPOSED:
                _load(b_desc, [batch, column, k], arrived, b_bufs.index(stage))
            else:
                _load(b_desc, [batch, k, column], arrived, b_bufs.index(stage))
            step += 1


@gluon.jit
def _split(x, PARTS: gl.constexpr):
    """Columns of x in PARTS blocks, without moving a value to another thread."""
    parts = (x,)
    for _ in gl.static_range(PARTS.bit_length() - 1):
        halves = ()
        for i in gl.static_range(len(parts)):
            part = parts[i]
            halves += part.reshape((part.shape[0], 2, part.shape[1] // 2)).permute((0, 2, 1)).split()
        parts = halves
    return parts


@gluon.jit
def _store(desc, x, batch, row, column, staging, PENDING: gl.constexpr):
    # Of this warpgroup's two buffers the one in turn is free once the store before the previous one has read it.
    tma.store_wait(PENDING)
    staging.reshape(x.shape).store(x.to(desc.dtype))
    fence_async_shared()
    _put(desc, [batch, row, column], staging)


@gluon.jit
def _multiply(
    HALF: gl.constexpr,
    results,
    bias_ptr,
    buffers,
    staging,
    barriers,
    shape,
    A_TRANSPOSED: gl.constexpr,
    B_TRANSPOSED: gl.constexpr,
    GROUP_M: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SAVE: gl.constexpr,
):
    batches, M, N, K = shape
    a_bufs, b_bufs = buffers
    ready, empty = barriers
    out_desc, saved_desc = results
    STAGES: gl.constexpr = ready.shape[0]
    HALF_M: gl.constexpr = out_desc.block_type.shape[1]
    PART_N: gl.constexpr = out_desc.block_type.shape[2]
    BLOCK_K: gl.constexpr = b_bufs.shape[3 if B_TRANSPOSED else 2]
    BLOCK_N: gl.constexpr = b_bufs.shape[2 if B_TRANSPOSED else 3]
    PARTS: gl.constexpr = BLOCK_N // PART_N
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    tiles_m = gl.cdiv(M, 2 * HALF_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    step = 0
    # A head start for the first warpgroup: in step, both would compute a long activation at once, and leave the tensor cores idle.
    if HALF == 1 and ACTIVATION is not None and K > (STAGES - 1) * BLOCK_K:
        mbarrier.wait(ready.index(STAGES - 1), 0)
    for tile in range(gl.program_id(0), batches * tiles_m * tiles_n, gl.num_programs(0)):
        batch = tile // (tiles_m * tiles_n)
        tile_m, tile_n = grouped(tile % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP_M)
        columns = tile_n * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
        if BIAS:
            bias = gl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        acc = gl.zeros((HALF_M, BLOCK_N), gl.float32, layout)
        for k in range(0, K, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            a = a_bufs.index(2 * stage + HALF).reshape([BLOCK_K, HALF_M] if A_TRANSPOSED else [HALF_M, BLOCK_K])
            b = b_bufs.index(stage).reshape([BLOCK_N, BLOCK_K] if B_TRANSPOSED else [BLOCK_K, BLOCK_N])
            if A_TRANSPOSED:
                a = a.permute((1, 0))
            if B_TRANSPOSED:
                b = b.permute((1, 0))
            acc = warpgroup_mma(a, b, acc, use_acc=k > 0, is_async=True)
            # With one product in flight the one before it is done, and its stage may be overwritten.
            acc = warpgroup_mma_wait(1, (acc,))
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=k > 0)
            step += 1
        acc = warpgroup_mma_wait(0, (acc,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
        if BIAS:
            acc += bias.to(gl.float32)[None, :]
        row = tile_m * (2 * HALF_M) + HALF * HALF_M
        parts = _split(acc, PARTS)
        for i in gl.static_range(PARTS):
            x = parts[i]
            column = tile_n * BLOCK_N + i * PART_N
            if SAVE:
                _store(saved_desc, x, batch, row, column, staging.index(2 * HALF), 1)
                _store(out_desc, activate(x, ACTIVATION, False), batch, row, column, staging.index(2 * HALF + 1), 1)
            else:
                _store(out_desc, activate(x, ACTIVATION, False), batch, row, column, staging.index(2 * HALF + i % 2), 1 if PARTS > 1 else 0)
    tma.store_wait(0)


@gluon.jit
def _blocks(desc, COUNT: gl.constexpr):
    return gl.allocate_shared_memory(desc.dtype, [COUNT] + desc.block_type.shape, desc.layout)  # noqa: RUF005 (Gluon knows no star)


@gluon.jit
def matmul_specialized_kernel(
    a_desc,
    b_desc,
    out_desc,
    saved_desc,
    bias_ptr,
    batches,
    M,
    N,
    K,
    A_TRANSPOSED: gl.constexpr,
    B_TRANSPOSED: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    SAVE: gl.constexpr,
):
    a_bufs = _blocks(a_desc, 2 * STAGES)
    b_bufs = _blocks(b_desc, STAGES)
    staging = _blocks(out_desc, 4)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    buffers = (a_bufs, b_bufs)
    barriers = (ready, empty)
    results = (out_desc, saved_desc)
    shape = (batches, M, N, K)
    # 128 accumulators a thread and what surrounds them: 232 registers; a warp that fetches needs the fewest there are.
    gl.warp_specialize(
        [
            (
                _multiply,
                (0, results, bias_ptr, buffers, staging, barriers, shape, A_TRANSPOSED, B_TRANSPOSED, GROUP_M, BIAS, ACTIVATION, SAVE),
            ),
            (
                _multiply,
                (1, results, bias_ptr, buffers, staging, barriers, shape, A_TRANSPOSED, B_TRANSPOSED, GROUP_M, BIAS, ACTIVATION, SAVE),
            ),
            (_fetch, (a_desc, b_desc, buffers, barriers, shape, A_TRANSPOSED, B_TRANSPOSED, GROUP_M)),
        ],
        [4, 1],
        [232, 24],
    )


def launch(
    tile: Specialized,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    saved: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    save: bool,
) -> None:
    """`out = activation(a @ b + bias)` of operands that TMA can reach; `saved`, if wanted, is what went into the activation."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    batches = a.shape[0] if a.dim() == 3 else 1
    a_transposed, b_transposed = a.stride(-1) != 1, b.stride(-1) != 1
    half_m = tile.m // 2
    out_desc = _describe(out, half_m, tile.part_n)
    programs = min(card().processors, batches * -(-m // tile.m) * -(-n // tile.n))
    matmul_specialized_kernel[(programs,)](
        _describe(a.mT, tile.k, half_m) if a_transposed else _describe(a, half_m, tile.k),
        _describe(b.mT, tile.n, tile.k) if b_transposed else _describe(b, tile.k, tile.n),
        out_desc,
        _describe(saved, half_m, tile.part_n) if save else out_desc,
        out if bias is None else bias,
        batches,
        m,
        n,
        k,
        A_TRANSPOSED=a_transposed,
        B_TRANSPOSED=b_transposed,
        STAGES=tile.stages,
        GROUP_M=tile.group_m,
        BIAS=bias is not None,
        ACTIVATION=activation,
        SAVE=save,
        num_warps=4,
        maxnreg=168,
    )


def _describe(x: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A matrix is a batch of one."""
    batch, stride = (x.shape[0], x.stride(0)) if x.dim() == 3 else (1, x.shape[0] * x.stride(0))
    return TensorDescriptor(x, [batch, *x.shape[-2:]], [stride, x.stride(-2), 1], [1, rows, columns], _layout(rows, columns, x.dtype))


@functools.cache
def _layout(rows: int, columns: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """Kept, because making one takes the host longer than a small product takes the GPU."""
    return gl.NVMMASharedLayout.get_default_for([1, rows, columns], GLUON[dtype])
