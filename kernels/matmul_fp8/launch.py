"""The tile of an fp8 product, and its launch, decided once for shapes, strides and dtypes."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from kernels.configs import Card, card, choose
from kernels.configs.matmul import FEW
from kernels.configs.matmul_fp8 import MATMUL_FP8
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, on_boundary
from kernels.matmul.launch import cheapest
from kernels.matmul.layout import PLAIN, Layout
from kernels.matmul.split import adding_up, for_few_rows
from kernels.matmul_fp8.kernels import scaled_mm_kernel

# Products from which warpgroups have enough to do. Below, more programs with smaller tiles take less time.
SMALL = 1 << 29

Launch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]


def multiply(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, blocks: bool, dtype: torch.dtype
) -> torch.Tensor:
    """Return the scaled product of checked operands; see `scaled_mm`."""
    out = torch.empty((a.shape[0], b.shape[1]), dtype=dtype, device=a.device)
    if out.numel():
        if not a.shape[1]:
            return out.zero_()
        a, b = _dense_along_k(a), _dense_along_k(b.t())
        layouts = [Layout.of(x) for x in (a, b, scale_a, scale_b)]
        launch = _plan(card(), (a.dtype, b.dtype, dtype), on_boundary(a, b, out, scale_a, scale_b), *layouts, blocks)
        launch(a, b, out, scale_a, scale_b)
    return out


def _dense_along_k(x: torch.Tensor) -> torch.Tensor:
    """Return rows that are dense: Hopper's matrix instructions read fp8 in no other order."""
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


@functools.lru_cache(maxsize=1024)
def _plan(
    on: Card, dtypes: tuple[torch.dtype, ...], boundaries: tuple[bool, ...],
    a: Layout, b: Layout, scale_a: Layout, scale_b: Layout, blocks: bool,
) -> Launch:  # fmt: skip
    config = choose(MATMUL_FP8, on)
    (m, k), n = a.shape, b.shape[0]
    strides = (*_strides(scale_a), *_strides(scale_b))
    in_reach = all(boundaries[:3]) and not (a.stride[0] | b.stride[0] | n * dtypes[2].itemsize) % 16 and a.stride[0] >= k <= b.stride[0]
    if config.specialized and in_reach and m > FEW and m * n * k >= SMALL:
        # Gluon is experimental, so it is only imported for a GPU with a configuration for it.
        from kernels.matmul_fp8.specialized import specialized

        return specialized(cheapest(config.specialized, on, (m, n), k), on, dtypes, a, b, strides, blocks)
    widen = any(dtype in config.widened for dtype in dtypes[:2])
    tiles = config.by_block if blocks and config.by_block else config.tiles
    few = for_few_rows(config.few, on, m, n, k, 1, blocks) if m <= FEW and not widen else None
    tile, parts = few or (cheapest(tiles[-1:] if widen else tiles, on, (m, n), k), 1)
    options: dict[str, Any] = {
        "EVEN_K": k % tile.k == 0,
        "WIDE": max(tile.m * max(a.stride[0], n), tile.n * b.stride[0]) >= 2**31,
        "BLOCKS": blocks,
        "WIDEN": widen,
        "PARTS": parts,
        "EARLY": parts > 1 and on.early["EARLY"],
        **tile.launched,
    }
    bound = Bound(scaled_mm_kernel, (cdiv(m, tile.m) * cdiv(n, tile.n), parts), **options)
    add_up = adding_up(parts, on, m * n, PLAIN)

    sizes = (m, n, k // parts, a.stride[0], b.stride[0], *strides)

    def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
        sums = torch.empty((parts, m, n), dtype=torch.float32, device=out.device) if parts > 1 else out
        bound(a, b, sums, scale_a, scale_b, *sizes)
        if parts > 1:
            add_up(out, out, sums, out, m * n, n)

    return launch


def _strides(scale: Layout) -> tuple[int, ...]:
    """Return the strides of a scale; 0 where one number serves all."""
    return tuple([0 if size == 1 else step for size, step in zip(scale.shape, scale.stride, strict=True)])
