"""The launch of the warp-specialized kernel: TMA descriptors, and split sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.configs import Card
from kernels.configs.matmul import Specialized
from kernels.launches.bound import Bound, descriptors
from kernels.matmul.layout import Launch, Layout
from kernels.matmul.split import in_parts
from kernels.matmul.warp_specialized import matmul_specialized_kernel

GLUON = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}

# A part of a split sum has at least this many products, to be worth a second kernel that adds the parts.
LONG = 1024


def specialized(tile: Specialized, on: Card, dtype: torch.dtype, a: Layout, b: Layout, epilogue: dict[str, Any]) -> Launch:
    """Return the launch for operands that TMA can reach. A long sum with few tiles is split into parts."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    programs = a.matrices * -(-m // tile.m) * -(-n // tile.n)
    splits = 1
    while len(a.shape) == 2 and 2 * splits * programs <= on.processors and k % (2 * splits * tile.k) == 0 and k >= 2 * splits * LONG:
        splits *= 2
    if splits == 1:
        return product(tile, on, (dtype, dtype), a, b, **epilogue)
    # With few tiles and a long sum, treat parts of the sum as a batch, so that every multiprocessor has work.
    narrow = replace(tile, part_n=32)
    return in_parts(splits, lambda a, b: product(narrow, on, (dtype, torch.float32), a, b), a, b, epilogue)


def product(
    tile: Specialized,
    on: Card,
    dtypes: tuple[torch.dtype, torch.dtype],
    a: Layout,
    b: Layout,
    bias: bool = False,
    activation: str | None = None,
    save: bool = False,
    add: bool = False,
) -> Launch:
    """Return the launch of one product. `dtypes` are those of the operands and the output, which may be fp32 without an activation.

    `add`: add to the output's content.
    """
    *batch, m, k = a.shape
    n, half_m = b.shape[-1], tile.m // 2
    batches = batch[0] if batch else 1
    programs = min(on.processors, batches * -(-m // tile.m) * -(-n // tile.n))
    a_transposed, b_transposed = a.stride[-1] != 1, b.stride[-1] != 1
    of_a = _box(a, (tile.k, half_m) if a_transposed else (half_m, tile.k), dtypes[0])
    of_b = _box(b, (tile.n, tile.k) if b_transposed else (tile.k, tile.n), dtypes[0])
    of_out = _box(Layout((*batch, m, n), (*[m * n] * len(batch), n, 1)), (half_m, tile.part_n), dtypes[1])
    options: dict[str, Any] = {
        "A_TRANSPOSED": a_transposed,
        "B_TRANSPOSED": b_transposed,
        "STAGES": tile.stages,
        "GROUP_M": tile.group_m,
        "BIAS": bias,
        "ACTIVATION": activation,
        "SAVE": save,
        "ADD": add,
        "SPREAD": _spread(tile, k, activation) if dtypes[0] == dtypes[1] else 0,
        "num_warps": 4,
        "maxnreg": 168,
    }

    bound = Bound(matmul_specialized_kernel, (programs,), options)

    def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, saved: torch.Tensor, bias: torch.Tensor | None) -> None:
        out_desc = of_out(out)
        saved_desc = of_out(saved) if save else out_desc
        bound(of_a(a), of_b(b), out_desc, saved_desc, out if bias is None else bias, batches, m, n, k)

    return launch


def _spread(tile: Specialized, k: int, activation: str | None) -> int:
    """Return in how many steps a held-back part of the tile is finished; none if the sum is too short to hold anything back."""
    steps = 1 if activation in (None, "relu") else 2
    return steps if k >= steps * tile.k * tile.n // tile.part_n else 0


def _box(x: Layout, block: tuple[int, int], dtype: torch.dtype) -> Callable[[torch.Tensor], TensorDescriptor]:
    """Return a function that makes descriptors for tensors of a layout, with the dense dimension last; a matrix is a batch of one."""
    *batch, rows, columns = x.shape
    *lead, step, unit = x.stride
    if unit != 1:
        rows, columns, step = columns, rows, unit
    sizes, strides, blocks = [*(batch or [1]), rows, columns], [*(lead or [rows * step]), step, 1], [1, *block]
    layout = gl.NVMMASharedLayout.get_default_for(blocks, GLUON[dtype])
    return descriptors(lambda x: TensorDescriptor(x, sizes, strides, blocks, layout))
