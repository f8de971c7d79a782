"""The launch of the warp-specialized fp8 kernel."""

import math
from collections.abc import Callable

import torch

from kernels.configs import Card
from kernels.configs.matmul import Specialized
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound
from kernels.matmul.layout import PLAIN, Layout
from kernels.matmul.specialized import ROWS_OF_WARPS, box, sums_of_shares
from kernels.matmul.split import shared
from kernels.matmul_fp8.scaled_mm import BLOCK
from kernels.matmul_fp8.warp_specialized import scaled_mm_specialized_kernel


def specialized(
    tile: Specialized, on: Card, dtypes: tuple[torch.dtype, ...], a: Layout, b: Layout, strides: tuple[int, ...], blocks: bool
) -> Callable[..., None]:
    """Return the launch for operands that TMA can reach, of 64 rows or more; `b` is (N, K)."""
    (m, k), n = a.shape, b.shape[0]
    part_n = tile.part_n * 2 // dtypes[2].itemsize
    # Registers hold one short sum beside the tile, so a piece of the columns has 128 at most.
    pieces = (BLOCK, BLOCK) if tile.n == 2 * BLOCK else tile.pieces
    of_a = box(a, (ROWS_OF_WARPS, tile.k), dtypes[0])
    of_b, *of_more = (box(b, (piece, tile.k), dtypes[1]) for piece in pieces)
    of_out = box(Layout((m, n), (n, 1)), (ROWS_OF_WARPS, part_n), dtypes[2])
    tiles = cdiv(m, tile.m) * cdiv(n, tile.n)
    count = shared(tile, on, tiles, k)[0]
    over = tiles % on.processors if count > 1 else 0
    group = math.gcd(tile.n, BLOCK) if blocks else BLOCK
    bound = Bound(
        scaled_mm_specialized_kernel, (min(on.processors, tiles - over + over * count),),
        BLOCK_N=tile.n, HALVES=tile.m // ROWS_OF_WARPS, GROUP=group, STAGES=tile.stages, GROUP_M=tile.group_m, BLOCKS=blocks,
        num_warps=4, maxnreg=168,
    )  # fmt: skip
    add_up = sums_of_shares(tile, on, over, count, PLAIN, not blocks)

    def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
        parts = torch.empty((over, count, tile.m, tile.n), dtype=torch.float32, device=out.device) if over else None
        bound(of_a(a), of_b(b), of_more[0](b) if of_more else None, of_out(out), scale_a, scale_b, parts, m, n, k, count, *strides)
        if over:
            add_up(out, out, parts, out, tiles - over, m, n)

    return launch
