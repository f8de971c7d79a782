"""The launch of the warp-specialized kernel: TMA descriptors, and shares of sums."""

from collections.abc import Callable
from dataclasses import replace

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.configs import Card
from kernels.configs.matmul import Specialized
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, descriptors
from kernels.matmul.kernels import sum_tiles_kernel
from kernels.matmul.layout import PLAIN, Epilogue, Launch, Layout
from kernels.matmul.split import shared
from kernels.matmul.warp_specialized import matmul_specialized_kernel

GLUON = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}
GLUON |= {torch.float8_e4m3fn: gl.float8e4nv, torch.float8_e5m2: gl.float8e5}

# Rows of a tile that a program adds up, and those of a warpgroup.
ROWS, ROWS_OF_WARPS = 8, 64


def product(tile: Specialized, on: Card, dtype: torch.dtype, a: Layout, b: Layout, epilogue: Epilogue = PLAIN, add: bool = False) -> Launch:
    """Return the launch for operands that TMA can reach. `add`: add to the output's content."""
    *batch, m, k = a.shape
    n, halves = b.shape[-1], tile.m // ROWS_OF_WARPS
    batches = batch[0] if batch else 1
    tiles = batches * cdiv(m, tile.m) * cdiv(n, tile.n)
    a_transposed, b_transposed = a.stride[-1] != 1, b.stride[-1] != 1
    # Rows of the output that start on no boundary are written by address, which takes registers. Their descriptor only tells the block.
    ragged, row = n % 8 > 0, cdiv(n, 8) * 8
    if ragged:
        tile = replace(tile, part_n=32)
    of_a = box(a, (tile.k, ROWS_OF_WARPS) if a_transposed else (ROWS_OF_WARPS, tile.k), dtype)
    of_b, *of_more = (box(b, (n, tile.k) if b_transposed else (tile.k, n), dtype) for n in tile.pieces)
    of_out = box(Layout((*batch, m, n), (*[m * row] * len(batch), row, 1)), (ROWS_OF_WARPS, tile.part_n), dtype)
    spread = _spread(tile, k, epilogue["ACTIVATION"])
    count = 1 if add or not spread else shared(tile, on, tiles, k, (a.fetching, b.fetching))[0]
    over = tiles % on.processors if count > 1 else 0
    bound = Bound(
        matmul_specialized_kernel, (min(on.processors, tiles - over + over * count),),
        BLOCK_N=tile.n, HALVES=halves, A_TRANSPOSED=a_transposed, B_TRANSPOSED=b_transposed, STAGES=tile.stages, GROUP_M=tile.group_m,
        **epilogue, ADD=add, SPREAD=spread, num_warps=4, maxnreg=168,
    )  # fmt: skip
    add_up = sums_of_shares(tile, on, over, count, epilogue, b_transposed)

    def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, saved: torch.Tensor, bias: torch.Tensor) -> None:
        out_desc = of_out(out)
        saved_desc = of_out(saved) if epilogue["SAVE"] else out_desc
        by_address = (out, saved) if ragged else (None, None)
        parts = torch.empty((over, count, tile.m, tile.n), dtype=torch.float32, device=out.device) if over else None
        bound(of_a(a), of_b(b), of_more[0](b) if of_more else None, out_desc, saved_desc, *by_address, bias, parts, batches, m, n, k, count)
        if over:
            add_up(out, saved, parts, bias, tiles - over, m, n)

    return launch


def sums_of_shares(tile: Specialized, on: Card, over: int, count: int, epilogue: Epilogue, within: bool) -> Bound:
    """Return the launch that adds up the shares of the last tiles, and finishes these. `within`: no tile has columns beyond the matrix."""
    options = {"SHARES": count, "BLOCK_M": tile.m, "BLOCK_N": tile.n, "GROUP_M": tile.group_m, "ROWS": ROWS, "WITHIN": within}
    return Bound(sum_tiles_kernel, (over * (tile.m // ROWS),), **options, **epilogue, **on.early)


def _spread(tile: Specialized, k: int, activation: str | None) -> int:
    """Return in how many steps a held-back part of the tile is finished; none if the sum is too short to hold anything back.

    A tile whose columns are in two pieces holds nothing back.
    """
    steps = 1 if activation in (None, "relu") else 2
    return steps if len(tile.pieces) == 1 and k >= steps * tile.k * tile.n // tile.part_n else 0


def box(x: Layout, block: tuple[int, int], dtype: torch.dtype) -> Callable[[torch.Tensor], TensorDescriptor]:
    """Return a function that makes descriptors for tensors of a layout, with the dense dimension last; a matrix is a batch of one."""
    *batch, rows, columns = x.shape
    *lead, step, unit = x.stride
    if unit != 1:
        rows, columns, step = columns, rows, unit
    sizes, strides, blocks = [*(batch or [1]), rows, columns], [*(lead or [rows * step]), step, 1], [1, *block]
    layout = gl.NVMMASharedLayout.get_default_for(blocks, GLUON[dtype])
    return descriptors(lambda x: TensorDescriptor(x, sizes, strides, blocks, layout))
