"""Launches of the kernels in this folder: their arguments and configurations."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.configs import card, choose
from kernels.configs.cross_entropy import CROSS_ENTROPY, CrossEntropy, Part
from kernels.cross_entropy.held import held_kernel, prepare_kernel
from kernels.cross_entropy.kernels import gradient_kernel, scale_kernel
from kernels.cross_entropy.losses import rows_kernel, sum_kernel, walk_kernel
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

    def __getitem__(self, rows: slice) -> Targets:
        return replace(self, target=self.target[rows])


@dataclass(frozen=True)
class Parts:
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
        spread = torch.cat([parts.spread for parts in some]) if targets.smoothing else None
        return cls(
            torch.cat([parts.peak for parts in some]),
            torch.cat([parts.total for parts in some]),
            spread,
            torch.cat([parts.logit for parts in some]),
        )


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
        walk_kernel[(n_rows * n_parts,)](
            x,
            targets.target,
            targets.weight,
            found.peak,
            found.total,
            found.spread,
            found.logit,
            x.stride(0),
            n_columns,
            cdiv(n_columns, n_parts * tile) * tile,
            N_PARTS=n_parts,
            SMOOTHING=targets.smoothing,
            TILE_DEPTH=config.depth,
            TILE_WIDTH=tile_width,
            num_warps=max(1, config.warps * tile_width // config.width),
            **width(x),
        )
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
        rows_kernel[(programs,)](
            targets.target,
            targets.weight,
            targets.class_weight,
            found.peak,
            found.total,
            found.spread,
            found.logit,
            statistics,
            out,
            divisor,
            n_rows,
            n_columns,
            targets.ignore_index,
            N_PARTS=n_parts,
            PADDED=padded,
            SMOOTHING=targets.smoothing,
            REDUCTION=reduction if at_once else "partial",
            BLOCK_SIZE=block,
            num_warps=8,
        )
    if reduction == "none":
        return out, divisor, statistics
    if not at_once:
        partial, out, divisor = (out, divisor), new(1, dtype=dtype), new(1, dtype=torch.float32)
        sum_kernel[(1,)](*partial, out, divisor, programs, REDUCTION=reduction, BLOCK_SIZE=1024, num_warps=4)
    return out.view(()), divisor, statistics


def gradient(x: Tensor, out: Tensor, targets: Targets, statistics: Tensor, upstream: Tensor | None, divisor: Tensor | None) -> None:
    """Write the gradient of `x` to `out`, which may be `x`: from `statistics`, times `upstream` (a scalar, or per row), over `divisor`."""
    config = choose(CROSS_ENTROPY).gradient
    n_rows, n_columns = x.shape
    if not x.numel():
        return
    part, warps = _fitting(config, n_columns)
    n_parts = cdiv(n_columns, part)
    gradient_kernel[(n_rows * n_parts,)](
        x,
        out,
        targets.target,
        targets.weight,
        targets.class_weight,
        upstream,
        divisor,
        statistics,
        x.stride(0),
        out.stride(0),
        0 if upstream is None or not upstream.dim() else upstream.stride(0),
        n_rows,
        n_columns,
        n_parts,
        targets.ignore_index,
        SMOOTHING=targets.smoothing,
        PART=part,
        DIVISORS=1 if divisor is None else divisor.numel(),
        num_warps=warps,
        **width(x, out),
    )


def divisors(targets: Targets, n_columns: int, words: Tensor) -> Tensor:
    """Return the mean's divisor in parts, before there are any logits, and clear `words` for an exchange."""
    parts = torch.empty(DIVISORS, device=targets.target.device, dtype=torch.float32)
    prepare_kernel[(DIVISORS,)](
        targets.target,
        targets.weight,
        parts,
        words,
        targets.target.shape[0],
        n_columns,
        words.numel(),
        targets.ignore_index,
        BLOCK_SIZE=1024,
        num_warps=4,
    )
    return parts


def n_words(x: torch.dtype, n_rows: int, n_columns: int) -> int:
    """Return the number of words that the parts of rows exchange, if they do."""
    config = choose(CROSS_ENTROPY)
    n_parts = cdiv(n_columns, _held(config, x.itemsize, n_columns).elements)
    return n_rows * n_parts if config.exchange and n_parts > 1 else 0


def in_place(x: Tensor, targets: Targets, upstream: Tensor | None, divisor: Tensor | None, words: Tensor) -> Parts:
    """Overwrite the logits with the gradients of all rows: times `upstream` (a number per row), over the sum of `divisor`."""
    config = choose(CROSS_ENTROPY)
    n_rows, n_columns = x.shape
    held = _held(config, x.element_size(), n_columns)
    part, warps = _fitting(held, n_columns)
    n_parts = max(1, cdiv(n_columns, part))
    if n_parts > 1 and not config.exchange:
        found = walk(x, targets)
        *_, statistics = losses(found, targets, n_columns, "none", torch.float32)
        gradient(x, x, targets, statistics, upstream, divisor)
        return found
    found = Parts.empty(n_rows, n_parts, targets)
    if n_rows:
        held_kernel[(n_rows * n_parts,)](
            x,
            targets.target,
            targets.weight,
            targets.class_weight,
            upstream,
            divisor,
            words,
            found.peak,
            found.total,
            found.spread,
            found.logit,
            x.stride(0),
            n_columns,
            # Parts of equal size in whole vectors, so that none waits for a larger one.
            cdiv(n_columns, 16 * n_parts) * 16,
            targets.ignore_index,
            SMOOTHING=targets.smoothing,
            PART=part,
            N_PARTS=n_parts,
            PADDED=next_power_of_2(n_parts),
            DIVISORS=1 if divisor is None else divisor.numel(),
            PACKED=held.packed,
            num_warps=warps,
            **({"maxnreg": held.registers} if held.registers and not targets.smoothing else {}),
            **width(x),
        )
    return found


def scale(x: Tensor, upstream: Tensor) -> None:
    """Multiply the rows of `x` by `upstream`, a number or one per row. The host never reads it; if it is 1, the rows are not touched."""
    if not x.numel():
        return
    rows = x.view(-1, x.shape[-1])
    block = min(4096, next_power_of_2(rows.shape[1]))
    tiles_a_row = cdiv(rows.shape[1], block)
    n_tiles = rows.shape[0] * tiles_a_row
    scale_kernel[(min(n_tiles, 8 * card().processors),)](
        rows,
        upstream,
        upstream.stride(0) if upstream.dim() else 0,
        rows.stride(0),
        rows.shape[1],
        n_tiles,
        tiles_a_row,
        BLOCK_SIZE=block,
        num_warps=4,
    )


def _held(config: CrossEntropy, itemsize: int, n_columns: int) -> Part:
    parts = config.held[itemsize]
    return next((part for part in parts if n_columns <= part.columns), parts[-1])


def _fitting(part: Part, n_columns: int) -> tuple[int, int]:
    """Return elements and warps for rows that may be shorter than a part: fewer warps, with as many elements per lane."""
    elements = min(part.elements, max(32, next_power_of_2(n_columns)))
    return elements, max(1, part.warps * elements // part.elements)
