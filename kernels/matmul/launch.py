"""Choose the kernel and tile of a product, and launch it.

Everything that depends on shapes, strides and dtypes is decided once and cached: it takes the host longer than a small product takes the
GPU.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from kernels.configs import Card, card, choose
from kernels.configs.matmul import FEW, MATMUL, Config, Specialized, Tile
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, on_boundary
from kernels.launches.tape import refuse
from kernels.matmul.kernels import copy_rows_kernel, matmul_kernel, row_kernel
from kernels.matmul.layout import PLAIN, Epilogue, Launch, Layout
from kernels.matmul.split import for_few_rows, in_parts, shared

# The cost of fetching an element of a row or column of operands, in products of a row and a column.
FETCH = 32

# Rows or columns of the output from which copying an operand first is worth it, if its layout is slow to read.
WORTH_A_COPY = 256

# Bytes of a cache line; and the nanoseconds of an H200 that it takes to start a copy, and for each of its 16-bit elements.
LINE, _COPY, _COPIED = 128, 1200, 0.0009

# Where TMA cannot reach an operand as it is, a copy is worth it from so many products, and rows and columns, on: other kernels take five
# times as long.
IN_REACH, FEWEST_IN_REACH = 1 << 29, 256

# Length of the sum from which the widest tile can hide an activation. Without hiding, it runs out of registers.
HIDES_ACTIVATION = 512

# An fp32 sum of at least this length is computed in fp64 if there are fewer tiles than multiprocessors. A library splits such a sum between
# idle multiprocessors, and rounds less than one long sum does; the slope of an activation then amplifies the difference. On an H200, whose
# matrix units multiply fp64, this is also faster. A card with few fp64 units takes longer.
LONG = 256

# Elements of a large output: every multiprocessor gets several tiles.
LARGE = 1 << 24

# The longest sum of a row whose loads are all on their way at once, by registers; and the bytes of weights, more than caches hold, from
# which on it does not matter what a cache keeps of them.
LONGEST_ROW, PASSING = 16384, 1 << 28

AnyTile = TypeVar("AnyTile", Tile, Specialized)


def multiply(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None, save: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `activation(a @ b + bias)` and, with `save`, the activation's input; for matrices, or batches of them without a bias.

    Without `save`, the second is the first. With a matrix `b`, `a` is rows in any shape.
    """
    shape = (*a.shape[:-1], b.shape[-1])
    out = torch.empty(shape, dtype=a.dtype, device=a.device)
    saved = torch.empty(shape, dtype=a.dtype, device=a.device) if save else out
    if out.numel():
        a = rows(a) if b.dim() == 2 else a
        precision = None
        if a.dtype == torch.float32:
            refuse()  # torch's setting may change
            precision = "tf32" if choose(MATMUL).tf32 and torch.backends.cuda.matmul.allow_tf32 else "ieee"
            if choose(MATMUL).dense_fp32:  # copied if the kernel then reads them several times faster
                a = a.contiguous() if precision == "tf32" and b.shape[-1] >= WORTH_A_COPY else a
                if a.shape[-2] >= WORTH_A_COPY:
                    b = b.contiguous() if precision == "ieee" else b.mT.contiguous().mT
        a, b = _unit_stride(a), _unit_stride(b)
        large = min(a.shape[-2], b.shape[-1]) >= FEWEST_IN_REACH and out.numel() * a.shape[-1] >= IN_REACH
        if precision is None and choose(MATMUL).specialized and large:
            copied = _copied(card(), on_boundary(a, b), Layout.of(a), Layout.of(b))
            a, b = [_on_lines(x) if copy else x for x, copy in zip((a, b), copied, strict=True)]
        bias = bias if bias is None else bias.contiguous()
        boundaries = on_boundary(a, b, saved, bias)
        launch = _plan(card(), a.dtype, precision, boundaries, Layout.of(a), Layout.of(b), bias is not None, activation, save)
        launch(a, b, out, saved, out if bias is None else bias)
    return out, saved


def rows(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the matrix of its rows."""
    return x.flatten(0, -2) if x.dim() > 1 else x[None]


def multiply_into(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, add: bool = False) -> None:
    """Compute `out = a @ b` or `out += a @ b` for a large output, with whichever is faster: this package's kernel or a library's.

    The kernel adds in memory: the product is rounded to `out`'s dtype, and then the sum. The library rounds once.
    """
    aligned = (a.data_ptr() | b.data_ptr() | out.data_ptr()) % 16 == 0 and out.is_contiguous()
    launch = _plan_into(card(), a.dtype, aligned, add, Layout.of(a), Layout.of(b))
    if launch:
        launch(a, b, out, out, out)
    elif add:
        torch.addmm(out, a, b, out=out)
    else:
        torch.mm(a, b, out=out)


@functools.lru_cache(maxsize=1024)
def _plan_into(on: Card, dtype: torch.dtype, aligned: bool, add: bool, a: Layout, b: Layout) -> Launch | None:
    config = choose(MATMUL, on)
    shape = (*a.shape[:-1], b.shape[-1])
    if not _takes_tma(config, dtype, aligned, a, b) or shape[1] % 8 or shape[0] * shape[1] < LARGE:
        return None
    from kernels.matmul.specialized import product

    return product(cheapest(config.specialized, on, shape, a.shape[-1]), on, dtype, a, b, add=add)


@functools.lru_cache(maxsize=4096)
def _plan(
    on: Card, dtype: torch.dtype, precision: str | None, boundaries: tuple[bool, ...], a: Layout, b: Layout,
    bias: bool, activation: str | None, save: bool,
) -> Launch:  # fmt: skip
    config, aligned = choose(MATMUL, on), all(boundaries[:2])
    shape = (*a.shape[:-1], b.shape[-1])
    epilogue = {"BIAS": bias, "ACTIVATION": activation, "SAVE": save}
    (m, k), n = a.shape[-2:], b.shape[-1]
    dense = a.stride[-1] == b.stride[-2] == 1 and k % 16 == b.stride[-1] % 16 == 0  # steps that Triton takes for those of vectors
    if config.row and not precision and aligned and len(shape) == 2 and m <= config.row.m and dense and k <= LONGEST_ROW:
        return _row(config.row, a, b, epilogue)
    few = for_few_rows(config.few, on, m, n, k) if not precision and aligned and len(shape) == 2 and m <= FEW else None
    if few and a.in_reach_of_tma() and b.in_reach_of_tma():  # rows that start on 16 bytes
        tile, parts = few
        if parts == 1:
            return _pointers(tile, on, precision, config.widen, a, b, epilogue)
        return in_parts(parts, lambda a, b: _pointers(tile, on, precision, config.widen, a, b, PLAIN, True), on, a, b, epilogue)
    if _takes_tma(config, dtype, aligned, a, b):
        narrow = activation and a.shape[-1] < HIDES_ACTIVATION
        # Gluon is experimental, so it is only imported for a GPU with a configuration for it.
        from kernels.matmul.specialized import product

        tile = cheapest(config.specialized[1 if narrow else 0 :], on, shape, k, (a.fetching, b.fetching))
        return product(tile, on, dtype, a, b, epilogue)
    tiles = config.narrow
    if precision:
        tiles = getattr(config, precision)
    elif save or a.shape[-1] % 64 or any(step % 16 for step in (*a.stride, *b.stride) if step != 1):
        tiles = config.frugal
    return _pointers(cheapest(tiles, on, shape, k), on, precision, config.widen, a, b, epilogue)


def _takes_tma(config: Config, dtype: torch.dtype, aligned: bool, a: Layout, b: Layout) -> bool:
    return bool(config.specialized) and dtype != torch.float32 and aligned and a.in_reach_of_tma() and b.in_reach_of_tma()


def _pointers(
    tile: Tile, on: Card, precision: str | None, widen: bool, a: Layout, b: Layout, epilogue: Epilogue, early: bool = False
) -> Launch:
    (m, k), n = a.shape[-2:], b.shape[-1]
    programs = a.matrices * -(-m // tile.m) * -(-n // tile.n)
    steps = (tile.m * max(a.stride[-2], n), tile.n * b.stride[-1], tile.k * max(a.stride[-1], b.stride[-2]))
    strides = [step for x in (a, b) for step in (x.stride if len(x.shape) == 3 else (0, *x.stride))]
    options: dict[str, Any] = {
        "EVEN_K": k % tile.k == 0,
        "WIDE": max(steps) >= 2**31,
        "PRECISION": precision or "ieee",
        "SPLIT": precision == "ieee",
        "DOUBLE": precision == "ieee" and programs < on.processors and k >= LONG,
        "WIDEN": widen,
        "EARLY": early and on.early["EARLY"],
    }
    bound = Bound(matmul_kernel, (programs,), **options, **epilogue, **tile.launched)
    return lambda *tensors: bound(*tensors, m, n, k, *strides)


def _row(tile: Tile, a: Layout, b: Layout, epilogue: Epilogue) -> Launch:
    (m, k), n = a.shape, b.shape[1]
    block = tile.k * 2 if k > tile.k * 2 and k % (tile.k * 2) == 0 else tile.k
    eviction = "evict_first" if n * k * 2 < PASSING else ""
    shape = {"M": m, "STEPS": cdiv(k, block), "BLOCK_N": tile.n, "BLOCK_K": block}
    bound = Bound(row_kernel, (cdiv(n, tile.n),), **shape, EVICTION=eviction, **epilogue, num_warps=tile.warps)
    return lambda *tensors: bound(*tensors, n, k, a.stride[0], b.stride[1])


def cheapest(tiles: Sequence[AnyTile], on: Card, shape: tuple[int, ...], k: int, fetching: tuple[int, int] = (1, 1)) -> AnyTile:
    """Return the tile that takes the least time. `fetching`: how many times as long each operand takes to fetch, by a `Layout`."""
    return min(tiles, key=lambda tile: _cost(tile, on, shape, k, fetching))


def _cost(tile: Tile | Specialized, on: Card, shape: tuple[int, ...], k: int, fetching: tuple[int, int]) -> float:
    """Return the nanoseconds of a specialized tile; of another, its waves over the multiprocessors, weighted by products and fetches."""
    *batch, m, n = shape
    tiles = (batch[0] if batch else 1) * cdiv(m, tile.m) * cdiv(n, tile.n)
    if isinstance(tile, Specialized):
        return shared(tile, on, tiles, k, fetching)[1]
    return cdiv(tiles, on.processors) * (tile.m * tile.n + FETCH * (tile.m + tile.n))


@functools.lru_cache(maxsize=4096)
def _copied(on: Card, boundaries: tuple[bool, ...], a: Layout, b: Layout) -> tuple[bool, ...]:
    """Return which operands are copied first, so that their rows start on lines: those that TMA cannot reach, or where that is faster."""
    operands, shape, tiles = (a, b), (*a.shape[:-1], b.shape[-1]), choose(MATMUL, on).specialized

    def cost(copied: tuple[bool, ...]) -> float:
        of_a, of_b = [1 if copy else x.fetching for x, copy in zip(operands, copied, strict=True)]
        copies = sum(_COPY + _COPIED * math.prod(x.shape) for x, copy in zip(operands, copied, strict=True) if copy)
        return copies + min(_cost(tile, on, shape, a.shape[-1], (of_a, of_b)) for tile in tiles)

    reached = [boundary and x.in_reach_of_tma() for x, boundary in zip(operands, boundaries, strict=True)]
    choices = itertools.product(*[(False, True) if reach else (True,) for reach in reached])
    return min(choices, key=cost)


def _on_lines(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of a 16-bit operand whose rows start on lines."""
    if x.stride(-1) != 1:
        return _on_lines(x.mT).mT
    *batch, rows, columns = x.shape
    out = torch.empty((*batch, rows, cdiv(columns * 2, LINE) * LINE // 2), dtype=x.dtype, device=x.device)[..., :columns]
    if batch:
        return out.copy_(x)
    _copy_rows(card(), x.dtype, Layout.of(x), out.stride(0), x.data_ptr() % 16 == 0)(out, x)
    return out


@functools.lru_cache(maxsize=1024)
def _copy_rows(on: Card, dtype: torch.dtype, x: Layout, step: int, boundary: bool) -> Callable[[torch.Tensor, torch.Tensor], None]:
    (rows, columns), block = x.shape, 2048
    chunks, vector = cdiv(columns, block), math.gcd(8, columns, x.stride[0]) if boundary else 1
    bound = Bound(copy_rows_kernel, (rows * chunks,), VECTOR=vector, BLOCK_SIZE=block)
    return lambda out, x: bound(out, x, columns, chunks, step, x.stride(0))


def _unit_stride(x: torch.Tensor) -> torch.Tensor:
    """Return `x`, copied if neither of its last two dimensions is dense in memory."""
    return x if 1 in x.stride()[-2:] else x.contiguous()
