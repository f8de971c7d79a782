"""How rows that a power of two fits badly are split into chunks of columns: docs/kernels/tiles.md, "Rows"."""

import functools

from kernels.configs.norm import Tile
from kernels.dispatch import cdiv, fewest_lanes, next_power_of_2

# Rows of fewer vectors than this leave half a warp without work if they are split. Chunks: how many are few, and the most. More
# warps than these have smaller chunks instead, if there are not too many.
_SHORT, _FEW, _MOST, _WARPS = 64, 4, 9, 8
# Rows that start anywhere: the fewest columns; threads that share a row, with the most chunks that they have of it, forward and backward;
# and up to so many threads, each has two rows forward, which share the weights.
_FEWEST_ODD, _SHARING = 65, 32
_LANES = {8: 8, 16: 8, 32: 8, 64: 8, 128: 10, 256: 16}
_STRIDE_LANES = {8: 2, 16: 3, 32: 3, 64: 3, 128: 3, 256: 3}
# Backward: up to so many columns, a masked lane costs less than another row's; and the most chunks.
_SHORT_STRIDE, _MOST_STRIDE = 1024, 6


def even_tile(n_columns: int, element_size: int) -> tuple[Tile, int, int] | None:
    """Return the tile, columns and rows of a program for rows that a power of two fits badly; None if it fits well, or rows are short.

    A masked lane holds registers and issues instructions, but fetches nothing. So the columns are a few chunks, as wide as possible with at
    most an eighth of the lanes masked (up to a fifth where that would take more than nine chunks). A thread has one 16-byte access of a
    chunk, or two if there are few chunks: at most 36 registers of data. A program has one row: with two, one of 1280 columns took 2 %
    longer on an H200, and one of 5120 11 %. Eight warps rather than sixteen: 0.96 instead of 0.90 of a copy at 18432 columns.
    """
    vector = 16 // element_size
    block = next_power_of_2(n_columns)
    if n_columns % vector or n_columns < _SHORT * vector or 8 * (block - n_columns) <= block:
        return None
    width = block
    while 8 * (cdiv(n_columns, width) * width - n_columns) > cdiv(n_columns, width) * width and cdiv(2 * n_columns, width) <= _MOST:
        width //= 2
    chunks = cdiv(n_columns, width)
    warps = width // (32 * vector * (2 if chunks <= _FEW else 1))
    if warps > _WARPS and chunks > _FEW and cdiv(2 * n_columns, width) <= _MOST:
        width, chunks, warps = width // 2, cdiv(2 * n_columns, width), warps // 2
    return Tile(n_columns, 0, max(1, warps), chunks=chunks, packed=element_size == 2), width * chunks, 1


@functools.lru_cache(maxsize=1024)
def even_stride(n_columns: int, element_size: int) -> tuple[Tile, int, int] | None:
    """Return the tile, columns of a chunk and rows of a program for a backward whose rows a power of two fits badly; None if it fits well.

    As in `even_tile`. Sums over rows take two registers an element, so a thread has at most 40 of a row, and there are as many programs as
    registers allow: one more than that waits until others end. Up to six chunks; in a seventh, rows are read 8 bytes at a time.
    """
    block = next_power_of_2(n_columns)
    if element_size > 2 or n_columns <= _SHORT_STRIDE or n_columns % 8 or 8 * (block - n_columns) <= block:
        return None
    width = block // 2
    while 8 * (cdiv(n_columns, width) * width - n_columns) > cdiv(n_columns, width) * width:
        width //= 2
    chunks = cdiv(n_columns, width)
    if chunks > _MOST_STRIDE:
        return None
    per_row = 2 if width * chunks <= 1280 else 4 if width * chunks <= 5120 else 8
    share = width * chunks // (32 * per_row)
    programs = 1 if per_row == 8 else 4 if share <= 12 else 3 if share <= 24 else 2
    return Tile(n_columns, 0, max(4, per_row), programs=programs, stages=3, chunks=chunks), width, max(1, 4 // per_row)


def odd_tile(n_columns: int, element_size: int) -> tuple[Tile, int, int] | None:
    """Return the tile, columns and rows of a program for rows that start on no 16 bytes; None if they are short or too long.

    Their weights start there neither, and pass through shared memory.
    """
    vector = 16 // element_size
    lanes = fewest_lanes(n_columns, vector, _LANES)
    if n_columns < _FEWEST_ODD or lanes is None:
        return None
    chunks, warps = cdiv(n_columns, lanes * vector), max(2, lanes // 32)
    rows = warps * 32 // lanes * (2 if lanes <= _SHARING else 1)
    return Tile(n_columns, 0, warps, chunks=chunks, packed=element_size == 2, vector=vector), chunks * lanes * vector, rows


def odd_stride(n_columns: int, element_size: int) -> tuple[Tile, int, int] | None:
    """Return the tile, columns of a chunk and rows of a program for a backward over such rows; None if they are short or too long."""
    vector = 16 // element_size
    lanes = fewest_lanes(n_columns, vector, _STRIDE_LANES)
    if n_columns < _FEWEST_ODD or lanes is None:
        return None
    chunks, warps = cdiv(n_columns, lanes * vector), max(4, lanes // 32)
    return Tile(n_columns, 0, warps, programs=2, stages=3, chunks=chunks, vector=vector), lanes * vector, warps * 32 // lanes
