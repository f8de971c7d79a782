"""Which kernel and which tile a product gets, and the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
import triton

from kernels.configs import card, choose
from kernels.configs.matmul import MATMUL, Specialized, Tile
from kernels.matmul.kernels import matmul_kernel

# What fetching an element of a row or a column of operands costs, in products of a row and a column.
FETCH = 32

# Rows or columns of the output for which an operand is read often enough to be copied first, where its layout is slow to read.
WORTH_A_COPY = 256

AnyTile = TypeVar("AnyTile", Tile, Specialized)


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    save: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`activation(a @ b + bias)` and, with `save`, what went into the activation; of matrices, or of a batch of them without a bias."""
    shape = (*a.shape[:-1], b.shape[-1])
    out = torch.empty(shape, dtype=a.dtype, device=a.device)
    saved = torch.empty(shape if save else (0,), dtype=a.dtype, device=a.device)
    if out.numel():
        a, b = _unit_stride(a), _unit_stride(b)
        bias = bias if bias is None else bias.contiguous()
        tiles = choose(MATMUL).specialized
        if tiles and all(_in_reach_of_tma(operand) for operand in (a, b, out)):
            # Gluon is experimental: it is imported only for a GPU that has a configuration for it.
            from kernels.matmul.warp_specialized import launch

            launch(_cheapest(tiles, *shape), a, b, out, saved, bias, activation, save)
        else:
            _launch(a, b, out, saved, bias, activation, save)
    return out, saved


def _launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    saved: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    save: bool,
) -> None:
    config = choose(MATMUL)
    (m, k), n = a.shape[-2:], b.shape[-1]
    batches = a.shape[0] if a.dim() == 3 else 1
    precision = "ieee"
    if a.dtype != torch.float32:
        even = k % 64 == 0 and all(stride % 16 == 0 for stride in (*a.stride(), *b.stride()) if stride != 1)
        tiles = config.narrow if even and not save else config.frugal
    elif config.tf32 and torch.backends.cuda.matmul.allow_tf32:
        precision, tiles = "tf32", config.tf32
        if config.tf32_dense_k:
            a, b = (a.contiguous() if n >= WORTH_A_COPY else a), (b.mT.contiguous().mT if m >= WORTH_A_COPY else b)
    else:
        tiles = config.ieee
        if config.ieee_dense_n and m >= WORTH_A_COPY:
            b = b.contiguous()
    tile = _cheapest(tiles, *out.shape)
    steps = (tile.m * max(a.stride(-2), n), tile.n * b.stride(-1), tile.k * max(a.stride(-1), b.stride(-2)))
    matmul_kernel[(batches * triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n),)](
        a,
        b,
        out,
        saved,
        out if bias is None else bias,
        m,
        n,
        k,
        *_strides(a),
        *_strides(b),
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        GROUP_M=tile.group_m,
        CHIPLETS=tile.chiplets,
        EVEN_K=k % tile.k == 0,
        WIDE=max(steps) >= 2**31,
        PRECISION=precision,
        SPLIT=a.dtype == torch.float32 and precision == "ieee",
        WIDEN=config.widen,
        BIAS=bias is not None,
        ACTIVATION=activation,
        SAVE=save,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **tile.options,
    )


def _cheapest(tiles: Sequence[AnyTile], *shape: int) -> AnyTile:
    """The tile that takes the fewest waves over the card's multiprocessors, each weighed by its products and by the operands it fetches."""
    *batch, m, n = shape
    processors = card().processors

    def cost(tile: AnyTile) -> int:
        # Plain divisions that round up: `triton.cdiv` costs the host microseconds.
        programs = (batch[0] if batch else 1) * -(-m // tile.m) * -(-n // tile.n)
        return -(-programs // processors) * (tile.m * tile.n + FETCH * (tile.m + tile.n))

    return min(tiles, key=cost)


def _unit_stride(x: torch.Tensor) -> torch.Tensor:
    """`x`, copied if neither of its last two dimensions is dense in memory."""
    return x if 1 in x.stride()[-2:] else x.contiguous()


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    return x.stride() if x.dim() == 3 else (0, *x.stride())


def _in_reach_of_tma(x: torch.Tensor) -> bool:
    """Whether a tensor descriptor can describe `x`: 16-bit elements, rows and start on 16 bytes, rows and matrices that do not overlap."""
    if x.element_size() != 2 or not x.numel() or x.data_ptr() % 16:
        return False
    *batch, outer, inner = x.shape if x.stride(-1) == 1 else x.mT.shape
    stride = x.stride(-2) if x.stride(-1) == 1 else x.stride(-1)
    strides = (stride, x.stride(0)) if batch else (stride,)
    return all(stride > 0 and stride % 8 == 0 for stride in strides) and (stride >= inner or outer == 1)
