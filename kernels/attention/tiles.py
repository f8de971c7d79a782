"""What the forward and the backward kernels share: programs by heads, tiles in and out of memory, and tensors as the kernels take them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.configs.attention import Tile

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def placed(tiles, heads, HEADS_FIRST: tl.constexpr):
    """(tile, batch, head) of this program, the last tile first: under a causal mask it has most to do, and the short ones fill the end.

    Programs that run at the same time share keys and values in cache where they are tiles of one head. `HEADS_FIRST` is for cards that deal
    programs out to caches in turn: then the tiles of a head are as far apart as there are heads, and meet in one cache.
    """
    program = tl.program_id(0)
    if HEADS_FIRST:
        every = tl.num_programs(0) // tiles
        tile, head = program // every, program % every
    else:
        tile, head = program % tiles, program // tiles
    return tiles - 1 - tile, head // heads, head % heads


@triton.jit
def load_tile(view, first, column, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TMA: tl.constexpr, INSIDE: tl.constexpr):
    """Rows `first` on, columns `column` on, of a head; zeros past its length and its width. `INSIDE`: no row is past the length.

    `view` is (tensor or its descriptor, strides, batch, head, length).
    """
    x, strides, batch, head, length = view
    if TMA:
        tile = x.load([batch, head, first, column]).reshape([ROWS, COLUMNS])
    else:
        # 64 bits to the corner of a tile, 32 within it: what the hardware's buffer loads take, and half the registers.
        at = x + tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1] + tl.full((), first, tl.int64) * strides[2]
        rows = tl.arange(0, ROWS)
        columns = tl.arange(0, COLUMNS)
        at += column + rows[:, None] * strides[2] + columns[None, :]
        if WIDTH < 16 or WIDTH & (WIDTH - 1) != 0:  # not as wide as tiles are
            tile = tl.load(at, mask=(rows < length - first)[:, None] & (columns < WIDTH - column)[None, :], other=0.0)
        elif INSIDE:
            tile = tl.load(at)
        else:
            tile = tl.load(at, mask=(rows < length - first)[:, None], other=0.0)
    return tile


@triton.jit
def store_tile(x, tile, index, first, length, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows `first` on of head number `index` in a dense tensor."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    at = x + (tl.cast(index, tl.int64) * length + first) * WIDTH
    inside = (rows < length - first)[:, None] & (columns < WIDTH)[None, :]
    tl.store(at + rows[:, None] * WIDTH + columns[None, :], tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def visible(first, start, keys, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr):
    """Which of N keys from `start` on each of M queries from `first` on sees. One comparison, for registers' sake."""
    last = tl.full((M,), keys - 1, tl.int32)
    if CAUSAL:
        last = tl.minimum(last, first + tl.arange(0, M))
    return (start + tl.arange(0, N))[None, :] <= last[:, None]


@triton.jit
def product(a, b, acc, PRECISION: tl.constexpr):
    """`a @ b + acc` with `a` rounded to the dtype of `b`. "widened" is for the interpreter, which multiplies the bits of bf16."""
    if PRECISION == "widened":
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    else:
        acc = tl.dot(a.to(b.dtype), b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def rows_by_rows(a_tile, a, a_first, b_tile, b, b_first, WIDTH: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr):
    """`a_tile @ b_tile.T`. With `PART`, both are loaded anew, so much of their width at a time.

    That is for cards whose registers do not hold them whole.
    """
    if PART:
        acc = tl.zeros((a_tile.shape[0], b_tile.shape[0]), tl.float32)
        # The width, but the compiler does not know: if it did, it would unroll the loop, and hold all parts at once after all.
        width = tl.minimum(WIDTH, WIDTH + a[4])
        for column in tl.range(0, width, PART):
            a_part = load_tile(a, a_first, column, WIDTH, a_tile.shape[0], PART, False, False)
            b_part = load_tile(b, b_first, column, WIDTH, b_tile.shape[0], PART, False, False)
            acc = product(a_part, b_part.T, acc, PRECISION)
    else:
        acc = product(a_tile, b_tile.T, None, PRECISION)
    return acc


@triton.jit
def exponential(scores, scale, offset, EXACT: tl.constexpr):
    """`exp(scale * scores - offset)`; exact, it takes a multiplication more and rounds the difference, not its terms."""
    return tl.exp(scores * scale - offset) if EXACT else tl.exp2(scores * (scale * LOG2_E) - offset * LOG2_E)


def padded(width: int) -> int:
    """The width that tiles have: a power of two that matrix instructions take."""
    return max(16, 1 << (width - 1).bit_length())


def readable(x: torch.Tensor) -> torch.Tensor:
    """`x` with rows that are dense, and so close that 32 bits reach across a tile: copied where they are not."""
    return x if (x.stride(-1) == 1 or x.shape[-1] == 1) and x.stride(-2) < 2**22 else x.contiguous()


def in_reach_of_tma(x: torch.Tensor) -> bool:
    """Whether a tensor descriptor can describe it: start and strides on 16 bytes, no dimension that is broadcast."""
    return x.data_ptr() % 16 == 0 and all(stride > 0 and stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])


def reachable(x: torch.Tensor) -> torch.Tensor:
    """`x`, which is `readable`, for tensor descriptors: a copy with longer rows where they cannot describe it.

    A copy is little beside the products of attention, and tiles that suit descriptors spill hundreds of registers to loads by pointer.
    """
    if in_reach_of_tma(x):
        return x
    unit = 16 // x.element_size()
    longer = torch.empty((*x.shape[:-1], -(-x.shape[-1] // unit) * unit), dtype=x.dtype, device=x.device)
    return longer[..., : x.shape[-1]].copy_(x)


def described(x: torch.Tensor, rows: int) -> Any:
    """A tensor descriptor of `x` that hands out tiles of so many rows of a head."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, padded(x.shape[-1])])


def options(tile: Tile, width: int, v_width: int) -> dict[str, Any]:
    """What a tile decides about a launch, and the widths."""
    shape = {"M": tile.m, "N": tile.n, "PART": min(tile.part, padded(width), padded(v_width)), "HEADS_FIRST": tile.heads_first}
    widths = {"WIDTH": width, "V_WIDTH": v_width, "COLUMNS": padded(width), "V_COLUMNS": padded(v_width)}
    return {**shape, **widths, "num_warps": tile.warps, "num_stages": tile.stages, **tile.options}
