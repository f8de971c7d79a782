"""Shared by the forward and backward kernels: programs by heads, loads and stores of tiles, and kernel arguments."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.configs.attention import Tile

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def placed(tiles, heads, HEADS_FIRST: tl.constexpr):
    """Return (tile, batch, head) of this program, last tile first: under a causal mask it is the longest, and short ones fill the end.

    Concurrent programs share keys and values in cache if they work on tiles of one head. `HEADS_FIRST` is for cards that assign programs to
    caches round robin: then the tiles of a head are as far apart as there are heads, and meet in one cache.
    """
    program = tl.program_id(0)
    if HEADS_FIRST:
        every = tl.num_programs(0) // tiles
        tile, head = program // every, program % every
    else:
        tile, head = program % tiles, program // tiles
    return tiles - 1 - tile, head // heads, head % heads


@triton.jit
def placed_in_sequence(table, heads):
    """Return (tile, head) of this program, and where its sequence begins and how long it is, of queries and of keys.

    `table` is from `sequences.py`. A tile past the last one is in a sequence without rows. The last tile comes first, and the tiles of a
    head one after the other.
    """
    row = table + tl.program_id(0) // heads * 8
    start, tiles = tl.load(row), tl.load(row + 1)
    within = tl.program_id(0) - start * heads
    return tiles - 1 - within % tiles, within // tiles, tl.load(row + 2), tl.load(row + 3), tl.load(row + 4), tl.load(row + 5)


@triton.jit
def load_tile(view, first, column, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TMA: tl.constexpr, INSIDE: tl.constexpr):
    """Load rows from `first` and columns from `column` of a head, zeros past its length and width. `INSIDE`: no row is past the length.

    `view` is (tensor or its descriptor, strides, batch, head, length, the row that is the first one's).
    """
    x, strides, batch, head, length, begin = view
    if TMA:
        tile = x.load([batch, head, begin + first, column]).reshape([ROWS, COLUMNS])
    else:
        # 64-bit offsets to the corner of a tile, 32-bit offsets within: hardware buffer loads need that, and it takes half the registers.
        at = (
            x
            + tl.cast(batch, tl.int64) * strides[0]
            + tl.cast(head, tl.int64) * strides[1]
            + tl.full((), begin + first, tl.int64) * strides[2]
        )
        rows = tl.arange(0, ROWS)
        columns = tl.arange(0, COLUMNS)
        at += column + rows[:, None] * strides[2] + columns[None, :]
        if WIDTH < 16 or WIDTH & (WIDTH - 1) != 0:  # narrower than a tile
            tile = tl.load(at, mask=(rows < length - first)[:, None] & (columns < WIDTH - column)[None, :], other=0.0)
        elif INSIDE:
            tile = tl.load(at)
        else:
            tile = tl.load(at, mask=(rows < length - first)[:, None], other=0.0)
    return tile


@triton.jit
def store_tile(x, tile, at, step, first, length, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Store rows from `first` of a head that begins at row `at` of `x`, whose rows are `step` apart."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    at = x + (tl.cast(at, tl.int64) + first * step) * WIDTH
    inside = (rows < length - first)[:, None] & (columns < WIDTH)[None, :]
    tl.store(at + rows[:, None] * (step * WIDTH) + columns[None, :], tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def visible(first, start, keys, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr):
    """Return which of N keys from `start` each of M queries from `first` sees. A single comparison, to save registers."""
    last = tl.full((M,), keys - 1, tl.int32)
    if CAUSAL:
        last = tl.minimum(last, first + tl.arange(0, M))
    return (start + tl.arange(0, N))[None, :] <= last[:, None]


@triton.jit
def with_mask(scores, mask, place, row, key, rows, keys, scale):
    """Return scaled scores with a mask: -inf where a bool is false, or numbers added. `row` and `key` are tensors of two dimensions.

    `place` is (strides, batch, head). Nothing is read past the last row and key; the score there is unmasked.
    """
    strides, batch, head = place
    at = mask + tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]
    inside = (row < rows) & (key < keys)
    read = tl.load(at + row.to(tl.int64) * strides[2] + key.to(tl.int64) * strides[3], mask=inside, other=0)
    if mask.dtype.element_ty.is_floating():
        scores = scores * scale + read.to(tl.float32)
    else:
        scores = tl.where((read != 0) | (inside == 0), scores * scale, -float("inf"))
    return scores


@triton.jit
def kept(seed, pair, row, key, threshold):
    """Return which probabilities dropout keeps. A random word goes by the place alone, so each backward finds it in an order of its own."""
    key = (key + row * 0).to(tl.uint32)
    word, _, _, _ = tl.philox(
        tl.load(seed), key, (row + key.to(tl.int32) * 0).to(tl.uint32), pair.to(tl.uint32) + key * 0, key * 0, n_rounds=7
    )
    return word >= tl.cast(threshold, tl.uint32)


@triton.jit
def product(a, b, acc, PRECISION: tl.constexpr):
    """Return `a @ b + acc` with `a` rounded to the dtype of `b`. "widened" is for the interpreter, which multiplies the bits of bf16.

    With "split", what rounding took from `a` is multiplied, too.
    """
    if PRECISION == "widened":
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    elif PRECISION == "split" and a.dtype != b.dtype:
        rounded = a.to(b.dtype)
        acc = tl.dot((a - rounded.to(tl.float32)).to(b.dtype), b, tl.dot(rounded, b, acc))
    elif PRECISION == "split":
        acc = tl.dot(a, b, acc)
    else:
        acc = tl.dot(a.to(b.dtype), b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def rows_by_rows(a_tile, a, a_first, b_tile, b, b_first, WIDTH: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr):
    """Return `a_tile @ b_tile.T`. With `PART`, load both again, that many columns at a time.

    `PART` is for cards whose registers cannot hold the whole tiles.
    """
    if PART:
        acc = tl.zeros((a_tile.shape[0], b_tile.shape[0]), tl.float32)
        # This is the width, but the compiler must not know. It would unroll the loop and hold all parts at once.
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
    """Return `exp(scale * scores - offset)`. Exact takes one more multiplication, and rounds the difference instead of its terms."""
    return tl.exp(scores * scale - offset) if EXACT else tl.exp2(scores * (scale * LOG2_E) - offset * LOG2_E)


class Extra(NamedTuple):
    """What a kernel takes besides: a mask (batch, head, row, key) and its strides; dropout's seed, threshold, and scale of what is kept."""

    mask: torch.Tensor | None = None
    strides: tuple[int, ...] = (0, 0, 0, 0)
    seed: torch.Tensor | None = None
    threshold: int = 0
    kept_scale: float = 1.0


NOTHING = Extra()


def padded(width: int) -> int:
    """Return the width of tiles: a power of two that matrix instructions support."""
    return max(16, 1 << (width - 1).bit_length())


def readable(x: torch.Tensor) -> torch.Tensor:
    """Return `x` with dense rows that are close enough for 32-bit offsets across a tile, copied if necessary."""
    return x if (x.stride(-1) == 1 or x.shape[-1] == 1) and x.stride(-2) < 2**22 else x.contiguous()


def steps(x: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of batches, heads and rows; of a single one, that of a dense tensor, whatever PyTorch says.

    PyTorch may say 1. Triton makes that a constant and takes a tile's rows for neighbours in memory. Gradients of one fp32 query of 80 or
    96 columns were wrong on an H200 with such strides.
    """
    dense = (x.shape[1] * x.shape[2] * x.shape[3], x.shape[2] * x.shape[3], x.shape[3])
    return tuple([step if size > 1 else usual for size, step, usual in zip(x.shape, x.stride(), dense, strict=False)])


def in_reach_of_tma(x: torch.Tensor) -> bool:
    """Return whether a tensor descriptor can describe it: start and strides aligned to 16 bytes, no broadcast dimension."""
    return x.data_ptr() % 16 == 0 and all(stride > 0 and stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])


def reachable(x: torch.Tensor) -> torch.Tensor:
    """Return `x`, which is `readable`, for tensor descriptors: a copy with longer rows if they cannot describe it.

    The copy is cheap beside the products of attention. Tiles made for descriptors would spill hundreds of registers with pointer loads.
    """
    if in_reach_of_tma(x):
        return x
    unit = 16 // x.element_size()
    longer = torch.empty((*x.shape[:-1], -(-x.shape[-1] // unit) * unit), dtype=x.dtype, device=x.device)
    return longer[..., : x.shape[-1]].copy_(x)


def described(x: torch.Tensor, rows: int) -> Any:
    """Return a tensor descriptor of `x` for tiles of this many rows of a head."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, padded(x.shape[-1])])


def options(tile: Tile, width: int, v_width: int) -> dict[str, Any]:
    """Return the launch options that a tile decides, and the widths."""
    shape = {"M": tile.m, "N": tile.n, "PART": min(tile.part, padded(width), padded(v_width)), "HEADS_FIRST": tile.heads_first}
    widths = {"WIDTH": width, "V_WIDTH": v_width, "COLUMNS": padded(width), "V_COLUMNS": padded(v_width)}
    return {**shape, **widths, "num_warps": tile.warps, "num_stages": tile.stages, **tile.options}
