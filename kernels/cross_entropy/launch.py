"""Launches of the kernels in this folder: their arguments and configurations."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.configs import card, choose
from kernels.configs.cross_entropy import CROSS_ENTROPY, CrossEntropy, Part
from kernels.cross_entropy.kernels import gradient_kernel, held_kernel, prepare_kernel, rows_kernel, scale_kernel, sum_kernel, walk_kernel
from kernels.dispatch import cdiv, next_power_of_2

# Programs that sum up the mean's divisor, one part each.
DIVISORS = 64
# Parts of rows whose losses one program computes.
PARTS_AT_ONCE = 4096


@dataclass(frozen=True)
class Targets:
    """The targets (N,), class weights (V,) and their sum, the ignored index, and the label smoothing."""

    target: Tensor
    weight: Tensor | None
    class_weight: Tensor | None
    ignore_index: int
    smoothing: float

    @classmethod
    def of(cls, target: Tensor, weight: Tensor | None, ignore_index: int, smoothing: float) -> Targets:
        class_weight = weight.float().sum() if weight is not None and smoothing else None
        return cls(target.contiguous(), None if weight is None else weight.contiguous(), class_weight, ignore_index, smoothing)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The targets, the weights, and their sum, as kernels take them."""
        return self.target, self.weight, self.class_weight

    def __getitem__(self, rows: slice) -> Targets:
        return replace(self, target=self.target[rows])


class Parts(NamedTuple):
    """Statistics of parts (N, parts) of rows: largest logits, sums of exp, sums for smoothing; and the targets' logits (N,)."""

    peak: Tensor
    total: Tensor
    spread: Tensor | None
    logit: Tensor

    @classmethod
    def empty(cls, rows: int, parts: int, targets: Targets) -> Parts:
        new = functools.partial(torch.empty, device=targets.target.device, dtype=torch.float32)
        return cls(new(rows, parts), new(rows, parts), new(rows, parts) if targets.smoothing else None, new(rows))

    @classmethod
    def concatenated(cls, some: list[Parts], targets: Targets) -> Parts:
        """Join the chunks into the statistics of all rows."""
        if not some:
            return cls.empty(0, 1, targets)
        return cls(*(None if chunks[0] is None else torch.cat(chunks) for chunks in zip(*some, strict=True)))


def width(x: Tensor, *others: Tensor) -> dict[str, object]:
    """Return the elements in 16 bytes, and whether every row starts and ends on such a boundary.

    The first is 1 if the rows of the tensors are aligned differently.
    """
    wide = 16 // x.element_size()
    strides = {tensor.stride(0) % wide for tensor in (x, *others)}
    return {"WIDTH": wide if len(strides) == 1 else 1, "EVEN": strides == {0} and x.shape[1] % wide == 0}


def walk(x: Tensor, targets: Targets) -> Parts:
    """Compute the statistics with one read of every logit."""
    config = choose(CROSS_ENTROPY)
    n_rows, n_columns = x.shape
    # For rows shorter than a tile, use a smaller one with as many elements per lane.
    tile_width = max(32, min(config.width, next_power_of_2(n_columns) // config.depth))
    tile = config.depth * tile_width
    n_parts = config.splits if n_columns >= config.split_from else 1
    found = Parts.empty(n_rows, n_parts, targets)
    if n_rows:
        sizes = x.stride(0), n_columns, cdiv(n_columns, n_parts * tile) * tile
        options = {"N_PARTS": n_parts, "SMOOTHING": targets.smoothing, "TILE_DEPTH": config.depth, "TILE_WIDTH": tile_width, **width(x)}
        options["num_warps"] = max(1, config.warps * tile_width // config.width)
        walk_kernel[(n_rows * n_parts,)](x, *targets.tensors[:2], *found, *sizes, **options)
    return found


def losses(found: Parts, targets: Targets, n_columns: int, reduction: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of rows and an empty tensor, or the total loss and the mean's divisor (1 for a sum); and statistics (2, N)."""
    n_rows, n_parts = found.peak.shape
    padded = next_power_of_2(n_parts)
    block = max(16, min(PARTS_AT_ONCE // padded, next_power_of_2(n_rows)))
    if n_rows > block:  # several programs then, which finish sooner if they are small: 3.9 us instead of 6.5 for 8192 rows on an H200
        block = max(16, block // 4)
    programs = max(1, cdiv(n_rows, block))
    new = functools.partial(torch.empty, device=found.peak.device)
    at_once = reduction == "none" or programs == 1
    out = new(n_rows, dtype=dtype) if reduction == "none" else new(programs, dtype=dtype if at_once else torch.float32)
    divisor = new(0 if reduction == "none" else programs, dtype=torch.float32)
    statistics = new(2, n_rows, dtype=torch.float32)
    if n_rows or reduction != "none":
        sizes = n_rows, n_columns, targets.ignore_index
        options = {"N_PARTS": n_parts, "PADDED": padded, "SMOOTHING": targets.smoothing, "BLOCK_SIZE": block, "num_warps": 8}
        options["REDUCTION"] = reduction if at_once else "partial"
        rows_kernel[(programs,)](*targets.tensors, *found, statistics, out, divisor, *sizes, **options)
    if reduction == "none":
        return out, divisor, statistics
    if not at_once:
        partial, out, divisor = (out, divisor), new(1, dtype=dtype), new(1, dtype=torch.float32)
        sum_kernel[(1,)](*partial, out, divisor, programs, REDUCTION=reduction, BLOCK_SIZE=1024, num_warps=4)
    return out.view(()), divisor, statistics


def gradient(x: Tensor, out: Tensor, targets: Targets, statistics: Tensor, upstream: Tensor | None, divisor: Tensor | None) -> None:
    """Write the gradient of `x` to `out`, which may be `x`: from `statistics`, times `upstream` (a scalar, or per row), over `divisor`."""
    n_rows, n_columns = x.shape
    if not x.numel():
        return
    part, options = _fitting(choose(CROSS_ENTROPY).gradient, n_columns)
    n_parts = cdiv(n_columns, part)
    strides = x.stride(0), out.stride(0), 0 if upstream is None or not upstream.dim() else upstream.stride(0)
    sizes = n_rows, n_columns, n_parts, targets.ignore_index
    options |= {"SMOOTHING": targets.smoothing, "DIVISORS": 1 if divisor is None else divisor.numel(), **width(x, out)}
    gradient_kernel[(n_rows * n_parts,)](x, out, *targets.tensors, upstream, divisor, statistics, *strides, *sizes, **options)


def prepared(targets: Targets, n_columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the mean's divisor in parts, before there are any logits; and a cleared word for each part of a row, if these exchange any."""
    config, n_rows, new = choose(CROSS_ENTROPY), targets.target.shape[0], functools.partial(torch.empty, device=targets.target.device)
    n_parts = cdiv(n_columns, _held(config, dtype.itemsize, n_columns).elements)
    words = new(n_rows * n_parts if config.exchange and n_parts > 1 else 0, dtype=torch.int64)
    divisor = new(DIVISORS, dtype=torch.float32)
    sizes = n_rows, n_columns, words.numel(), targets.ignore_index
    prepare_kernel[(DIVISORS,)](*targets.tensors[:2], divisor, words, *sizes, BLOCK_SIZE=1024, num_warps=4)
    return divisor, words


def in_place(x: Tensor, targets: Targets, upstream: Tensor | None, divisor: Tensor | None, words: Tensor) -> Parts:
    """Overwrite the logits with the gradients of all rows: times `upstream` (a number per row), over the sum of `divisor`."""
    config = choose(CROSS_ENTROPY)
    n_rows, n_columns = x.shape
    held = _held(config, x.element_size(), n_columns)
    part, options = _fitting(held, n_columns)
    n_parts = max(1, cdiv(n_columns, part))
    if n_parts > 1 and not config.exchange:
        found = walk(x, targets)
        *_, statistics = losses(found, targets, n_columns, "none", torch.float32)
        gradient(x, x, targets, statistics, upstream, divisor)
        return found
    found = Parts.empty(n_rows, n_parts, targets)
    if n_rows:
        segment = cdiv(n_columns, 16 * n_parts) * 16  # parts of equal size in whole vectors, so that none waits for a larger one
        options |= {"SMOOTHING": targets.smoothing, "N_PARTS": n_parts, "PADDED": next_power_of_2(n_parts), "PACKED": held.packed}
        options |= {"DIVISORS": 1 if divisor is None else divisor.numel(), **width(x)}
        if held.registers and not targets.smoothing:
            options["maxnreg"] = held.registers
        sizes = x.stride(0), n_columns, segment, targets.ignore_index
        held_kernel[(n_rows * n_parts,)](x, *targets.tensors, upstream, divisor, words, *found, *sizes, **options)
    return found


def scale(x: Tensor, upstream: Tensor) -> None:
    """Multiply the rows of `x` by `upstream`, a number or one per row. The host never reads it; if it is 1, the rows are not touched."""
    if not x.numel():
        return
    rows = x.view(-1, x.shape[-1])
    block = min(4096, next_power_of_2(rows.shape[1]))
    tiles_a_row = cdiv(rows.shape[1], block)
    n_tiles = rows.shape[0] * tiles_a_row
    strides = upstream.stride(0) if upstream.dim() else 0, rows.stride(0)
    grid = (min(n_tiles, 8 * card().processors),)
    scale_kernel[grid](rows, upstream, *strides, rows.shape[1], n_tiles, tiles_a_row, BLOCK_SIZE=block, num_warps=4)


def _held(config: CrossEntropy, itemsize: int, n_columns: int) -> Part:
    parts = config.held[itemsize]
    return next((part for part in parts if n_columns <= part.columns), parts[-1])


def _fitting(part: Part, n_columns: int) -> tuple[int, dict[str, object]]:
    """Return elements and options for rows that may be shorter than a part: fewer warps, with as many elements per lane."""
    elements = min(part.elements, max(32, next_power_of_2(n_columns)))
    return elements, {"PART": elements, "num_warps": max(1, part.warps * elements // part.elements)}
