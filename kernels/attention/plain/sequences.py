"""Sequences of several lengths, one after the other in a tensor: which tiles of them the programs of a launch have.

Lengths are in the card's memory. The host never waits for them: it launches as many programs as there can be tiles, and a table says which
sequence a program's tile is in.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.configs import Card, card
from kernels.dispatch import cdiv, next_power_of_2
from kernels.launches.bound import Bound, on_boundary


class Sequences(NamedTuple):
    """Where sequences begin and end: sequence i has the queries `queries[i]` to `queries[i + 1]`, and so its keys (int32)."""

    queries: Tensor
    keys: Tensor
    longest_query: int
    longest_key: int

    def table(self, tile: int, total: int, of_keys: bool = False) -> tuple[Tensor, int]:
        """Return the table for tiles of so many queries (or keys) of `total`, and its rows: as many as there can be tiles.

        A row is (the first row of its sequence, that sequence's tiles, where its queries begin, how many, where its keys begin, how many,
        the sequence's number, nothing). Sequences with the most work for each tile come first.
        """
        count = len(self.queries) - 1
        longest = self.longest_key if of_keys else self.longest_query
        rows = max(1, min(cdiv(total, tile) + count, count * cdiv(longest, tile)))
        table = torch.empty((rows, 8), dtype=torch.int32, device=self.queries.device)
        launch = _launch_of_table(card(), count, tile, of_keys, on_boundary(self.queries, self.keys))
        launch(table, self.queries, self.keys, count, rows)
        return table, rows


@functools.lru_cache(maxsize=1024)
def _launch_of_table(on: Card, count: int, tile: int, of_keys: bool, boundaries: tuple[bool, ...]) -> Bound:
    return Bound(table_kernel, (count + 1,), TILE=tile, OF_KEYS=of_keys, COUNT=next_power_of_2(count), BLOCK=64)


@triton.jit(do_not_specialize=["count", "rows"])
def table_kernel(table, queries, keys, count, rows, TILE: tl.constexpr, OF_KEYS: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Write the rows of a sequence, see `Sequences.table`. The last program writes those that no sequence has: one tile, of nothing."""
    each = tl.arange(0, COUNT)
    there = each < count
    n_queries = tl.load(queries + each + 1, mask=there, other=0) - tl.load(queries + each, mask=there, other=0)
    n_keys = tl.load(keys + each + 1, mask=there, other=0) - tl.load(keys + each, mask=there, other=0)
    work = n_queries if OF_KEYS else n_keys
    tiles = tl.cdiv(n_keys if OF_KEYS else n_queries, TILE)
    mine = tl.program_id(0)
    is_mine = each == mine
    my_work = tl.sum(tl.where(is_mine, work, 0))
    earlier = there & ((mine == count) | (work > my_work) | ((work == my_work) & (each < mine)))
    start = tl.sum(tl.where(earlier, tiles, 0))
    my_tiles = tl.sum(tl.where(is_mine, tiles, 0))
    end = rows if mine == count else tl.minimum(start + my_tiles, rows)
    is_sequence = mine < count
    first_query = tl.load(queries + mine, mask=is_sequence, other=0)
    first_key = tl.load(keys + mine, mask=is_sequence, other=0)
    for at in range(start, end, BLOCK):
        row = at + tl.arange(0, BLOCK)
        place = table + row * 8
        inside = row < end
        tl.store(place, tl.where(is_sequence, start, 0) + row * 0, mask=inside)
        tl.store(place + 1, tl.where(is_sequence, my_tiles, 1) + row * 0, mask=inside)
        tl.store(place + 2, first_query + row * 0, mask=inside)
        tl.store(place + 3, tl.sum(tl.where(is_mine, n_queries, 0)) + row * 0, mask=inside)
        tl.store(place + 4, first_key + row * 0, mask=inside)
        tl.store(place + 5, tl.sum(tl.where(is_mine, n_keys, 0)) + row * 0, mask=inside)
        tl.store(place + 6, mine + row * 0, mask=inside)
