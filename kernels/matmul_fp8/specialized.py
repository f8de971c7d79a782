"""The launch of the warp-specialized fp8 kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.configs import Card
from kernels.configs.matmul import Specialized
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound
from kernels.matmul.layout import Layout
from kernels.matmul.specialized import box, sums_of_shares
from kernels.matmul.split import shared
from kernels.matmul_fp8.warp_specialized import scaled_mm_specialized_kernel


def specialized(
    tile: Specialized,
    on: Card,
    dtypes: tuple[torch.dtype, ...],
    a: Layout,
    b: Layout,
    strides: tuple[int, ...],
    blocks: bool,
) -> Callable[..., None]:
    """Return the launch for operands that TMA can reach; `b` is (N, K)."""
    (m, k), n, half_m = a.shape, b.shape[0], tile.m // 2
    part_n = tile.part_n * 2 // dtypes[2].itemsize
    of_a, of_b = box(a, (half_m, tile.k), dtypes[0]), box(b, (tile.n, tile.k), dtypes[1])
    of_out = box(Layout((m, n), (n, 1)), (half_m, part_n), dtypes[2])
    options = {"STAGES": tile.stages, "GROUP_M": tile.group_m, "BLOCKS": blocks, "num_warps": 4, "maxnreg": 168}
    tiles = cdiv(m, tile.m) * cdiv(n, tile.n)
    count = shared(tile, on, tiles, k)[0]
    over = tiles % on.processors if count > 1 else 0
    bound = Bound(scaled_mm_specialized_kernel, (min(on.processors, tiles - over + over * count),), options)
    add_up = sums_of_shares(tile, on, over, count, {"BIAS": False, "ACTIVATION": None, "SAVE": False}, not blocks)

    def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
        parts = torch.empty((over, count, tile.m, tile.n), dtype=torch.float32, device=out.device) if over else None
        bound(of_a(a), of_b(b), of_out(out), scale_a, scale_b, parts, m, n, k, count, *strides)
        if over:
            add_up(out, out, parts, out, tiles - over, m, n)

    return launch
