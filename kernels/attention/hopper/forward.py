"""Launch attention forward for Hopper: which tensors it takes, its tiles, and their order."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.attention.hopper.forward_kernel import attention_hopper_kernel
from kernels.attention.hopper.tiles import largest_divisor, padded, tiles
from kernels.attention.hopper.tiles import supports as supported
from kernels.attention.plain.sequences import Sequences
from kernels.configs import Card, card
from kernels.dispatch import cdiv
from kernels.launches.bound import Bound, descriptors

__all__ = ["forward", "supports"]

_LN_2 = math.log(2)
_ROWS = 64  # of Q per consumer: the smallest matrix product of a warpgroup
_BLOCK = 128  # keys: at D = 128, the scores (64 registers), their bf16 copy (32) and the output (64) fit 240 registers without spills
_ROUNDS = 1.5  # of tiles that are dealt at a time
_SHARING = 5  # blocks of keys that a program could process while it leaves sums in memory and takes others up
_SHARED_CACHE = 24 << 20  # bytes of K and V that concurrent programs may share: half of the L2 cache; the rest streams through it


def supports(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Return whether `forward` takes these tensors on this GPU."""
    return supported(q, k, v)


@functools.lru_cache
def _shape(width: int, v_width: int) -> tuple[int, int, int, bool]:
    """Return the keys of a block, the stages, what `_scores` calls REST, and whether the output takes the memory of its queries.

    Widths are padded. 227 KB of shared memory hold queries, two or three stages of keys and values, and the output.
    """
    columns, v_columns = padded(width), padded(v_width)
    wide = max(columns, v_columns) > 128
    rest = -(-width // 64) * 64 - columns // 2
    return (
        _BLOCK // 2 if wide else _BLOCK,
        2 if columns + v_columns > 128 else 3,
        rest if columns > 128 and rest < columns // 2 else 0,
        columns == v_columns and wide,
    )


def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, sequences: Sequences | None = None) -> tuple[Tensor, Tensor]:
    """Return what `plain.forward.forward` does, of the same tensors; `supports` says which dtypes, widths and strides.

    With `sequences` and a causal mask, each has as many keys as rows.
    """
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if sequences is not None:
        return _forward_sequences(q, k, v, lse, causal, scale, sequences), lse
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    bound, describe, sizes = _plan(card(), q.dtype, (q.shape, k.shape, v.shape), (q.stride(), k.stride(), v.stride()), causal)
    parts = flags = lse
    if sizes[2]:  # for each half of a tile that a program leaves: its sums, two numbers a row, and whether they are there
        n = 2 * bound.grid[0]
        parts = torch.empty(n * _ROWS * (padded(v.shape[3]) + 2), dtype=torch.float32, device=q.device)
        flags = torch.empty(n, dtype=torch.int64, device=q.device)
    described = [of(x) for of, x in zip(describe, (q, k, v, out), strict=True)]
    bound(*described, None, lse, parts, flags, None, scale / _LN_2, *sizes)
    return out, lse


def _forward_sequences(q: Tensor, k: Tensor, v: Tensor, lse: Tensor, causal: bool, scale: float, sequences: Sequences) -> Tensor:
    _, heads, rows, _ = q.shape
    keys, width = v.shape[2:]
    out = torch.empty((1, rows, heads, width), dtype=q.dtype, device=q.device).transpose(1, 2)
    table, count = sequences.table(2 * _ROWS, rows)
    total = count * heads
    strides = q.stride(), k.stride(), v.stride()
    bound, describe = _plan_of_sequences(card(), q.dtype, (q.shape, k.shape, v.shape), strides, causal, min(total, card().processors))
    described = [of(x) for of, x in zip(describe, (q, k, v, out), strict=True)]
    bound(*described, out, lse, lse, lse, table, scale / _LN_2, total, total, 0, 1, 1, heads, heads // k.shape[1], rows, keys)
    return out


@functools.lru_cache(maxsize=1024)
def _plan_of_sequences(
    on: Card, dtype: torch.dtype, shapes: tuple[torch.Size, ...], strides: tuple[tuple[int, ...], ...], causal: bool, programs: int
) -> tuple[Bound, list[Callable[[Tensor], Any]]]:
    width = shapes[2][3]
    block, stages, rest, shared = _shape(shapes[0][3], width)
    options = {"CAUSAL": causal, "ROWS": _ROWS, "BLOCK": block, "STAGES": stages, "REST": rest, "SHARED": shared, "SPLIT": False}
    bound = Bound(attention_hopper_kernel, (programs,), **options, WIDTH=width, num_warps=4)
    return bound, [descriptors(lambda x, n=n: tiles(x, n)) for n in (_ROWS, block, block, _ROWS)]


def shared_out(total: int, processors: int, blocks: int) -> int:
    """Return how many tiles the programs share: those of a last round that is not full, and of the one before. 0 if that costs more.

    blocks: of the keys that a tile sees.
    """
    over = total % processors
    is_short = (processors + over) * blocks * processors < 1 << 31  # which block a program begins with is counted in 32 bits
    return processors + over if total > processors and over and is_short and (1 - over / processors) * blocks > _SHARING else 0


@functools.lru_cache(maxsize=1024)
def _plan(
    on: Card, dtype: torch.dtype, shapes: tuple[torch.Size, ...], strides: tuple[tuple[int, ...], ...], causal: bool
) -> tuple[Bound, list[Callable[[Tensor], Any]], tuple[int, ...]]:
    """Return the launch for shapes and strides of q, k and v; what describes these and the output; and the sizes that the kernel takes."""
    (batch, heads, rows, depth), k, (_, _, keys, v_depth) = shapes
    row_tiles, group = cdiv(rows, 2 * _ROWS), heads // k[1]
    total = row_tiles * batch * heads
    section = largest_divisor(batch * heads, max(1, _SHARED_CACHE // (keys * (depth + v_depth) * dtype.itemsize)) * group)
    # One program per multiprocessor, which fetches its next tile while the last one ends. Under a mask, tiles are dealt by sections, where
    # long ones come first. If those are too few to make up for each other, there is a program per tile, and the hardware starts one as
    # another ends.
    programs, dealt = min(total, on.processors), total
    if causal and programs < total:
        dealt = section * row_tiles
        if dealt < _ROUNDS * programs and dealt < total:
            programs, dealt = total, total
    block, stages, rest, shared = _shape(depth, v_depth)
    split = 0 if causal else shared_out(total, on.processors, cdiv(keys, block))
    dealt = max(dealt - split, 1)
    sizes = total, dealt, split, section, row_tiles, heads, group, rows, keys
    options = {"CAUSAL": causal, "ROWS": _ROWS, "BLOCK": block, "STAGES": stages, "REST": rest, "SHARED": shared, "SPLIT": split > 0}
    bound = Bound(attention_hopper_kernel, (programs,), **options, WIDTH=0, num_warps=4)
    return bound, [descriptors(lambda x, n=n: tiles(x, n)) for n in (_ROWS, block, block, _ROWS)], sizes
