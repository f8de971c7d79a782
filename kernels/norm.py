"""What layer_norm and rms_norm share: the check at the door, the tensors they make, and which kernels run in how many programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from kernels.configs import card, choose
from kernels.configs.norm import LAYER_NORM, RMS_NORM, Norm, Tile
from kernels.layer_norm.kernels import (
    backward_kernel,
    backward_steps_kernel,
    column_sums_kernel,
    forward_kernel,
    forward_steps_kernel,
    totals_kernel,
)
from kernels.layer_norm.split import backward_split_kernel, forward_split_kernel

# Columns of a block at least: thousands of rows of a column or two, with their offsets, would not fit registers.
_FEWEST = 4


def columns_of(input: Tensor, normalized_shape: Sequence[int], **parameters: Tensor | None) -> int:
    """How many elements are normalized together.

    Raises:
        RuntimeError: `normalized_shape` is empty or not how the shape of `input` ends, or a parameter has another shape or device.
    """
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = []")
    if tuple(input.shape[-len(shape) :]) != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input to end in it, but got input of size {list(input.shape)}")
    for name, parameter in parameters.items():
        if parameter is not None and (tuple(parameter.shape), parameter.device) != (shape, input.device):
            seen = f"{list(parameter.shape)} on {parameter.device}, where normalized_shape = {list(shape)} and input is on {input.device}"
            raise RuntimeError(f"Expected {name} to be of same shape as normalized_shape and on the device of input, but got {seen}")
    return math.prod(shape)


def empty_results(input: Tensor, n_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and a mean and a reciprocal standard deviation for each row, in fp32."""
    n_rows = input.numel() // n_columns if n_columns else 0
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    mean, rstd = (torch.empty(n_rows, dtype=torch.float32, device=input.device) for _ in range(2))
    return out, mean, rstd


def empty_gradients(input: Tensor, parameters: Sequence[Tensor | None], wanted: Sequence[bool]) -> tuple[Tensor, ...]:
    """Gradients of the input and of the parameters: of no elements where one is not wanted, as an op has to return some tensor."""
    shapes = ((p.shape, p.dtype) if p is not None and want else (0, input.dtype) for p, want in zip(parameters, wanted[1:], strict=True))
    return tuple(torch.empty(shape, dtype=dtype, device=input.device) for shape, dtype in ((input.shape, input.dtype), *shapes))


def forward(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, n_columns: int, eps: float, *, centered: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized rows with what `empty_results` says; the mean is subtracted, and written, where `centered`."""
    out, mean, rstd = empty_results(input, n_columns)
    if not out.numel():
        return out, mean, rstd
    config, n_rows, rows = _config(centered), rstd.numel(), _rows(input, n_columns)
    block = max(_FEWEST, triton.next_power_of_2(n_columns))
    tile = _fitting(config.forward, block) or _splitting(config.forward_split, rows) or config.forward_long
    tensors = rows, _dense(weight), _dense(bias), out, mean if centered else None, rstd
    if tile is config.forward_split:
        n_parts, groups, words, options = _split(tile, rows)
        sizes = rows.stride(0), n_rows, n_columns, n_parts, eps
        forward_split_kernel[(groups * n_parts,)](*tensors, words, *sizes, **options)
    elif tile.elements < block:
        sizes, even = (rows.stride(0), n_columns, eps), n_columns % tile.elements == 0
        forward_steps_kernel[(n_rows,)](*tensors, *sizes, BLOCK=tile.elements, EVEN=even, num_warps=tile.warps)
    else:
        height = tile.elements // block
        sizes = rows.stride(0), n_rows, n_columns, eps
        forward_kernel[(triton.cdiv(n_rows, height),)](*tensors, *sizes, ROWS=height, BLOCK=block, num_warps=tile.warps)
    return out, mean, rstd


def backward(
    grad: Tensor,
    input: Tensor,
    parameters: Sequence[Tensor | None],
    mean: Tensor | None,
    rstd: Tensor,
    wanted: Sequence[bool],
) -> tuple[Tensor, ...]:
    """What `empty_gradients` says; `parameters` are the weight and, if there is such a thing, the bias."""
    gradients = empty_gradients(input, parameters, wanted)
    dx, n_rows = gradients[0], rstd.numel()
    if not dx.numel():
        return tuple(gradient.zero_() for gradient in gradients)
    n_columns = dx.numel() // n_rows
    dweight, dbias = ([gradient if gradient.numel() else None for gradient in gradients[1:]] + [None])[:2]
    rows, config = _rows(input, n_columns), _config(mean is not None)
    given = grad.contiguous(), rows, _dense(parameters[0]), mean, rstd
    block = max(_FEWEST, triton.next_power_of_2(n_columns))
    tile = _fitting(config.backward, block) or _splitting(config.backward_split, rows) or config.backward_long
    if tile is config.backward_split:
        n_parts, groups, words, options = _split(tile, rows)
        sums = _sums(groups, n_columns, dweight, dbias)
        sizes = rows.stride(0), n_rows, n_columns, n_parts
        backward_split_kernel[(groups * n_parts,)](*given, dx, *sums, words, *sizes, **options)
    elif tile is config.backward_long:
        backward_steps_kernel[(n_rows,)](*given, dx, rows.stride(0), n_columns, BLOCK=tile.elements, num_warps=tile.warps)
        sums = _column_sums(config.column_sums, given, n_rows, n_columns, dweight, dbias)
    else:
        height = tile.elements // block
        programs = min(triton.cdiv(n_rows, height), card().processors * tile.programs)
        sums = _sums(programs, n_columns, dweight, dbias)
        sizes = rows.stride(0), n_rows, n_columns
        backward_kernel[(programs,)](*given, dx, *sums, *sizes, ROWS=height, BLOCK=block, STAGES=tile.stages, num_warps=tile.warps)
    if any(sum is not None for sum in sums):
        n_parts = next(sum.shape[0] for sum in sums if sum is not None)
        totals_kernel[(triton.cdiv(n_columns, 32), 2)](*sums, dweight, dbias, n_parts, n_columns, ROWS=64, BLOCK=32, num_warps=4)
    return gradients


def _sums(n: int, n_columns: int, *gradients: Tensor | None) -> list[Tensor | None]:
    """Room for n partial sums, in fp32, of each gradient that is wanted."""
    return [None if g is None else torch.empty((n, n_columns), dtype=torch.float32, device=g.device) for g in gradients]


def _column_sums(
    tile: Tile, given: tuple[Tensor | None, ...], n_rows: int, n_columns: int, dweight: Tensor | None, dbias: Tensor | None
) -> list[Tensor | None]:
    if dweight is None and dbias is None:
        return [None, None]
    grad, rows, _, mean, rstd = given
    height, across = tile.elements // tile.columns, triton.cdiv(n_columns, tile.columns)
    groups = min(triton.cdiv(n_rows, height), max(1, card().processors * tile.programs // across))
    sums = _sums(groups, n_columns, dweight, dbias)
    column_sums_kernel[(across, groups)](
        grad,
        rows,
        mean,
        rstd,
        *sums,
        rows.stride(0),
        n_rows,
        n_columns,
        ROWS=height,
        BLOCK=tile.columns,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
    return sums


def _rows(input: Tensor, n_columns: int) -> Tensor:
    """(rows, columns), where columns are neighbours in memory; a copy only where no strides say so."""
    rows = input.reshape(-1, n_columns)
    return rows if n_columns == 1 or rows.stride(1) == 1 else rows.contiguous()


def _dense(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


def _config(centered: bool) -> Norm:
    return choose(LAYER_NORM if centered else RMS_NORM)


def _fitting(tiles: Sequence[Tile], block: int) -> Tile | None:
    """The first of the tiles that a row fits."""
    return next((tile for tile in tiles if block <= tile.columns), None)


def _splitting(tile: Tile | None, rows: Tensor) -> Tile | None:
    """`tile`, if all the programs of a row run at the same time, as they have to: they wait for one another."""
    return tile if tile and _parts(tile, rows) <= card().processors * tile.programs else None


def _parts(tile: Tile, rows: Tensor) -> int:
    return triton.cdiv(rows.shape[1] * rows.element_size(), tile.elements * 2)


def _split(tile: Tile, rows: Tensor) -> tuple[int, int, Tensor, dict[str, int]]:
    """Parts of a row, groups of as many programs, their words, and launch options."""
    n_rows, n_parts = rows.shape[0], _parts(tile, rows)
    groups = min(n_rows, card().processors * tile.programs // n_parts)
    # A word of zeros for each part of each row, and of the row more by which a group is late at its end.
    words = torch.zeros((n_rows + groups) * n_parts, dtype=torch.int64, device=rows.device)
    block, slots = tile.elements * 2 // rows.element_size(), triton.next_power_of_2(n_parts)
    return n_parts, groups, words, {"SLOTS": slots, "BLOCK": block, "STAGES": tile.stages, "num_warps": tile.warps}
