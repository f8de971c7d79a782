"""Products whose sum is split: several programs have a part of it each, and a second kernel adds the parts up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from kernels.configs import Card
from kernels.configs.matmul import Specialized, Tile
from kernels.dispatch import cdiv, next_power_of_2
from kernels.launches.bound import Bound
from kernels.matmul.kernels import sum_kernel
from kernels.matmul.layout import Epilogue, Launch, Layout

BLOCK_SIZE = 1024

# What a product of few rows waits for is its weights. Costs are in times of so many bytes of these: what a program takes to start, a second
# kernel, and the least that a step takes beside its weights, without and with scales of its own. Of 20 bf16 and 48 fp8 products on an H200,
# what they choose takes 1.03 times as long as the best of up to 135 tiles and parts, and at most 1.15. Of equal tiles, the first is taken.
_STEP = 64 * 128 * 2
_FIRST, _SECOND, _WAIT, _WAIT_SCALED = 6, 6, 0.2, 0.9
# Nanoseconds of an H200 for a tile of warpgroups beside its steps: what it takes to begin and finish it, and for each of its numbers.
_FINISH, _FINISHED = 300, 0.052
# Nanoseconds of a step whose rows or columns are slow to fetch: to begin, and for each of both as often as `Layout.fetching` says.
_START, _FETCH = 94, 1.05
# The least steps of a share of a sum, and the most shares; and the nanoseconds that it takes to start the kernel that adds them up, and for
# each number to be written and read in fp32.
_LEAST, _MOST_SHARES, _SHARING, _SHARED = 8, 16, 4000, 0.0043
# Programs of a multiprocessor, whatever room their buffers leave.
_MOST = 4


def shared(tile: Specialized, on: Card, tiles: int, k: int, fetching: tuple[int, int] = (1, 1)) -> tuple[int, float]:
    """Return in how many shares to make the sums of the tiles that are left over when all others are dealt out, and how long all take.

    fetching: how many times as long it takes to fetch the rows, and the columns; see `Layout`.
    """
    whole, over = divmod(tiles, on.processors)
    steps, least = cdiv(k, tile.k), max(_LEAST, 2 * tile.n // tile.part_n)  # a tile that is held back is finished meanwhile
    numbers, step, finish = tile.m * tile.n, tile.step, _FINISH + _FINISHED * tile.m * tile.n
    if fetching != (1, 1):
        step = max(step, _START + _FETCH * (fetching[0] * tile.m + fetching[1] * tile.n))
    best = 1, (whole + (over > 0)) * (steps * step + finish)
    # A tile whose columns are in two pieces has no shares.
    for count in range(2, min(_MOST_SHARES, on.processors // over, steps // least) + 1 if over and len(tile.pieces) == 1 else 0):
        share = cdiv(steps, count)
        cost = (whole * steps + share) * step + whole * finish + _SHARING + over * count * numbers * _SHARED
        if steps - (count - 1) * share >= least and cost < best[1]:  # the last share is what the others leave
            best = count, cost
    return best


def for_few_rows(
    tiles: Sequence[Tile], on: Card, m: int, n: int, k: int, itemsize: int = 2, scaled: bool = False
) -> tuple[Tile, int] | None:
    """Return the tile and the number of parts of a product of few rows; None if no tile has room, or divides the sum.

    The least time wins: waves over the programs that the card holds, each with its start and the steps of its part; and for several parts,
    the second kernel, and writing and reading fp32 sums. In a step, a program waits for its weights, or those of all programs of a
    multiprocessor take longer. `scaled`: whether each step has scales of its own.
    """
    wait = _WAIT_SCALED if scaled else _WAIT

    def cost(option: tuple[Tile, int]) -> float:
        tile, parts = option
        resident, programs = min(_MOST, on.shared_bytes // _buffers(tile, itemsize)), parts * cdiv(n, tile.n)
        weights = tile.k * tile.n * itemsize / _STEP
        step = max(wait + weights, min(resident, cdiv(programs, on.processors)) * weights)
        sums = _SECOND + parts * m * n * 8 / (_STEP * on.processors) if parts > 1 else 0
        return cdiv(programs, resident * on.processors) * (k // parts // tile.k * step + _FIRST) + sums

    return min(_options(tiles, on, m, k, itemsize), key=cost, default=None)


def _options(tiles: Sequence[Tile], on: Card, m: int, k: int, itemsize: int) -> Iterator[tuple[Tile, int]]:
    longest = max((tile.k for tile in tiles if k % tile.k == 0), default=0)
    for tile in tiles:
        fitting = replace(tile, m=max(tile.m, next_power_of_2(m)))
        if tile.k == longest and _buffers(fitting, itemsize) <= on.shared_bytes:
            steps = k // tile.k
            yield from ((fitting, parts) for parts in range(1, max(1, steps // 2) + 1) if steps % parts == 0)


def _buffers(tile: Tile, itemsize: int) -> int:
    """Return the bytes of shared memory of a program."""
    return tile.stages * (tile.m + tile.n) * tile.k * itemsize


def adding_up(parts: int, on: Card, elements: int, epilogue: Epilogue) -> Bound:
    """Return the kernel that adds up the parts of a product of so many elements, and its grid."""
    return Bound(sum_kernel, (cdiv(elements, BLOCK_SIZE),), SPLITS=parts, BLOCK_SIZE=BLOCK_SIZE, **epilogue, **on.early)


def in_parts(splits: int, product: Callable[[Layout, Layout], Launch], on: Card, a: Layout, b: Layout, epilogue: Epilogue) -> Launch:
    """Return the launch of a product of matrices with its sum in equal parts. `product` is of batches, and its output is fp32."""
    (m, k), n = a.shape, b.shape[1]
    part = k // splits
    left = Layout((splits, m, part), (part * a.stride[1], *a.stride))
    right = Layout((splits, part, n), (part * b.stride[0], *b.stride))
    multiply = product(left, right)
    add_up = adding_up(splits, on, m * n, epilogue)

    def launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, saved: torch.Tensor, bias: torch.Tensor) -> None:
        sums = torch.empty((splits, m, n), dtype=torch.float32, device=out.device)
        multiply(a, b, sums, sums, sums)
        add_up(out, saved, sums, bias, m * n, n)

    return launch
