"""Shared by layer_norm and rms_norm: argument checks, result tensors, and the choice of kernels and grids."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.configs import Card, card, choose
from kernels.configs.norm import LAYER_NORM, RMS_NORM, Norm, Parts, Ring, Tile
from kernels.dispatch import cdiv, next_power_of_2
from kernels.launches.bound import Bound, on_boundary
from kernels.layer_norm import ring
from kernels.layer_norm.backward import backward_kernel, backward_steps_kernel, column_sums_kernel, totals_kernel
from kernels.layer_norm.chunks import even_stride, even_tile, odd_stride, odd_tile
from kernels.layer_norm.forward import forward_kernel, forward_steps_kernel

# Minimum columns of a block: thousands of rows of one or two columns, with their offsets, would not fit the registers.
_FEWEST = 4
# Minimum slots for other parts' sums: with eight, the compiler would need two more registers than it has.
_FEWEST_SLOTS = 16


def columns_of(input: Tensor, normalized_shape: Sequence[int], **parameters: Tensor | None) -> int:
    """Return how many elements are normalized together.

    Raises:
        RuntimeError: `normalized_shape` is empty or not the end of the input's shape, or a parameter has another shape or device.
    """
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = []")
    if input.shape[-len(shape) :] != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input to end in it, but got input of size {list(input.shape)}")
    for name, parameter in parameters.items():
        if parameter is not None and (parameter.shape != shape or parameter.device != input.device):
            seen = f"{list(parameter.shape)} on {parameter.device}, where normalized_shape = {list(shape)} and input is on {input.device}"
            raise RuntimeError(f"Expected {name} to be of same shape as normalized_shape and on the device of input, but got {seen}")
    return math.prod(shape)


def empty_results(input: Tensor, n_columns: int, centered: bool) -> tuple[Tensor, Tensor]:
    """Return the output; and for each row, in fp32, the mean if it is subtracted, and the reciprocal standard deviation."""
    n_rows = input.numel() // n_columns if n_columns else 0
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    return out, torch.empty((1 + centered, n_rows), dtype=torch.float32, device=input.device)


def empty_gradients(input: Tensor, parameters: Sequence[Tensor | None], wanted: Sequence[bool]) -> tuple[Tensor, ...]:
    """Return gradients of the input and of the parameters; unwanted ones are empty, because an op must return a tensor."""
    shapes = ((p.shape, p.dtype) if p is not None and want else (0, input.dtype) for p, want in zip(parameters, wanted[1:], strict=True))
    return tuple(torch.empty(shape, dtype=dtype, device=input.device) for shape, dtype in ((input.shape, input.dtype), *shapes))


def forward(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, n_columns: int, eps: float, *, centered: bool
) -> tuple[Tensor, Tensor]:
    """Normalize rows and return the tensors of `empty_results`. With `centered`, subtract and write the mean."""
    out, statistics = empty_results(input, n_columns, centered)
    if not out.numel():
        return out, statistics
    # Triton would compile a whole number into the kernel, for later calls, too.
    eps = float(eps)
    config, n_rows, rows = _config(centered), statistics.shape[1], _rows(input, n_columns)
    tensors = rows, _dense(weight), _dense(bias), out, statistics[0] if centered else None, statistics[-1]
    dtypes = tuple([tensor.dtype if tensor is not None else None for tensor in tensors])
    plan = _plan(card(), config, dtypes, on_boundary(*tensors), n_rows, n_columns, rows.stride(0))
    if plan.n_parts:
        words = None if plan.n_parts == 1 else torch.zeros(n_rows * plan.n_parts, dtype=torch.int64, device=rows.device)
        plan.launch(*tensors, words, rows.stride(0), n_rows, n_columns, plan.n_parts, eps)
    else:
        plan.launch(*tensors, rows.stride(0), n_columns, eps)
    return out, statistics


@dataclass(frozen=True)
class _Plan:
    """The launch of a forward, and by how many programs a row is shared; 0: the kernel that reads each row twice, in steps."""

    launch: Bound
    n_parts: int


@functools.lru_cache(maxsize=1024)
def _plan(
    on: Card, config: Norm, dtypes: tuple[torch.dtype | None, ...], boundaries: tuple[bool, ...], n_rows: int, n_columns: int, stride: int
) -> _Plan:
    """Choose the tile of a shape. `dtypes` and `boundaries` are of the tensors that the kernel gets; None for one that is left out."""
    size = dtypes[0].itemsize if dtypes[0] else 1
    tile: Tile | Parts | None = _fitting(config.forward, n_columns, size)
    if isinstance(tile, Tile):
        block, n_parts = _block(n_columns), 1
        height = max(1, tile.elements // (block * size // 2))
        if config.even:
            odd = _starts_anywhere(boundaries[0], boundaries[3], n_columns, stride, size)
            fitting = (odd_tile if odd else even_tile)(n_columns, size)
            tile, block, height = fitting or (tile, block, height)
    elif config.forward_parts and _parts(config.forward_parts, n_columns, size) <= on.processors:
        tile = config.forward_parts
        block, n_parts, height = tile.columns * 2 // size, _parts(tile, n_columns, size), tile.rows
    else:
        tile = config.forward_long
        even = n_columns % tile.elements == 0
        return _Plan(Bound(forward_steps_kernel, (n_rows,), BLOCK=tile.elements, EVEN=even, num_warps=tile.warps), 0)
    vector = tile.vector if isinstance(tile, Tile) else 1
    shape = {"ROWS": height, "WIDTH": block // tile.chunks, "CHUNKS": tile.chunks, "VECTOR": vector, "SLOTS": next_power_of_2(n_parts)}
    options = {"PACKED": tile.packed, "num_warps": tile.warps, **_limit(tile.registers)}
    return _Plan(Bound(forward_kernel, (cdiv(n_rows, height * vector) * vector * n_parts,), **shape, **options), n_parts)


def backward(
    grad: Tensor, input: Tensor, parameters: Sequence[Tensor | None], statistics: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor, ...]:
    """Return the tensors of `empty_gradients`; `parameters` are the weight and, if there is one, the bias."""
    gradients = empty_gradients(input, parameters, wanted)
    (n_statistics, n_rows), dx = statistics.shape, gradients[0]
    if not dx.numel():
        return tuple(gradient.zero_() for gradient in gradients)
    n_columns = dx.numel() // n_rows
    dweight, dbias = ([gradient if gradient.numel() else None for gradient in gradients[1:]] + [None])[:2]
    rows = _rows(input, n_columns)
    mean, rstd = statistics if n_statistics == 2 else (None, statistics[0])
    tensors = grad.contiguous(), rows, _dense(parameters[0]), mean, rstd, dx, dweight, dbias
    dtypes = tuple([tensor.dtype if tensor is not None else None for tensor in tensors])
    launch = _backward_plan(card(), _config(mean is not None), dtypes, on_boundary(*tensors), n_rows, n_columns, rows.stride(0))
    launch(*tensors)
    return gradients


@functools.lru_cache(maxsize=1024)
def _backward_plan(
    on: Card, config: Norm, dtypes: tuple[torch.dtype | None, ...], boundaries: tuple[bool, ...], n_rows: int, n_columns: int, stride: int
) -> Callable[..., None]:
    """Return the launches of a shape. `dtypes` and `boundaries` are of the tensors that these get; None for one that is left out."""
    size = dtypes[1].itemsize if dtypes[1] else 1
    wanted = [dtype is not None for dtype in dtypes[-2:]]
    odd = _starts_anywhere(boundaries[0] and boundaries[1], boundaries[5], n_columns, stride, size)
    at_once, n_words = None, 0  # all in one launch, with words that programs exchange
    # Where a program strides over rows: its tile, the columns of a chunk, and how many rows it has at a time.
    striding = odd_stride(n_columns, size) if odd and config.even else None
    if not striding and (tile := _fitting(config.backward, n_columns, size)):
        striding = even_stride(n_columns, size) if config.even else None
        striding = striding or (tile, block := _block(n_columns), max(1, tile.elements // (block * size // 2)))
    if striding:
        tile, width, height = striding
        parts = min(cdiv(n_rows, height * tile.vector), max(1, on.processors * tile.programs // tile.vector)) * tile.vector
        shape = {"ROWS": height, "WIDTH": width, "CHUNKS": tile.chunks, "VECTOR": tile.vector}
        at_once = Bound(backward_kernel, (parts,), **shape, STAGES=tile.stages, num_warps=tile.warps)
        sizes = stride, n_rows, n_columns
    elif shared := _ring(config.backward_rings, on, boundaries, n_columns, stride, size):
        n_parts = _parts(shared, n_columns, size)
        parts = min(n_rows, on.processors * shared.programs // n_parts)
        vector = ring.VECTOR_BYTES // size
        shape = {"VECTOR": vector, "BLOCK": shared.columns * 2 // size, "SLOTS": max(_FEWEST_SLOTS, next_power_of_2(n_parts))}
        options = {"AHEAD": shared.ahead, "WARPS": shared.warps, "num_warps": shared.warps, **_limit(shared.registers)}
        at_once = Bound(ring.backward_ring_kernel, (parts * n_parts,), **shape, **options)
        n_words, sizes = n_rows * n_parts, (stride // vector, n_rows, n_columns // vector, n_parts)
    else:
        steps, columns = config.backward_long, config.column_sums
        height, across = columns.elements // columns.columns, cdiv(n_columns, columns.columns)
        parts = min(cdiv(n_rows, height), max(1, on.processors * columns.programs // across))
        one_row = Bound(backward_steps_kernel, (n_rows,), BLOCK=steps.elements, num_warps=steps.warps)
        shape = {"ROWS": height, "BLOCK": columns.columns}
        column_sums = Bound(column_sums_kernel, (across, parts), **shape, STAGES=columns.stages, num_warps=columns.warps)
    totals = Bound(totals_kernel, (cdiv(n_columns, 32), 2), ROWS=64, BLOCK=32, num_warps=4)

    def launch(*tensors: Any) -> None:
        *given, dx, dweight, dbias = tensors
        sums = [torch.empty((parts, n_columns), dtype=torch.float32, device=dx.device) if want else None for want in wanted]
        if at_once:
            words = (torch.zeros(n_words, dtype=torch.int64, device=dx.device),) if n_words else ()
            at_once(*given, dx, *sums, *words, *sizes)
        else:
            one_row(*given, dx, stride, n_columns)
            if any(wanted):
                grad, rows, _, mean, rstd = given
                column_sums(grad, rows, mean, rstd, *sums, stride, n_rows, n_columns)
        if any(wanted):
            totals(*sums, dweight, dbias, parts, n_columns)

    return launch


def _starts_anywhere(first: bool, second: bool, n_columns: int, stride: int, element_size: int) -> bool:
    """Return whether two tensors start on 16 bytes, but their rows do not, all at the same places."""
    vector = 16 // element_size
    return first and second and element_size == 2 and n_columns % vector > 0 and (stride - n_columns) % vector == 0


def _ring(tiles: Sequence[Ring], on: Card, boundaries: tuple[bool, ...], n_columns: int, stride: int, element_size: int) -> Ring | None:
    """Return the first tile for rows of this length, if they can be copied to shared memory and all programs of a row run concurrently."""
    tile = next((tile for tile in tiles if n_columns * element_size // 2 <= tile.longest), None)
    fits = tile and _parts(tile, n_columns, element_size) <= on.processors * tile.programs
    return tile if fits and all(boundaries[:2]) and ring.takes(n_columns * element_size, stride * element_size) else None


def _rows(input: Tensor, n_columns: int) -> Tensor:
    """Return the input as (rows, columns) with adjacent columns, copied only if strides cannot describe that."""
    rows = input if input.dim() == 2 and input.shape[1] == n_columns else input.reshape(-1, n_columns)
    return rows if n_columns == 1 or rows.stride(1) == 1 else rows.contiguous()


def _dense(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


def _config(centered: bool) -> Norm:
    return choose(LAYER_NORM if centered else RMS_NORM)


def _block(n_columns: int) -> int:
    return max(_FEWEST, next_power_of_2(n_columns))


def _fitting(tiles: Sequence[Tile], n_columns: int, element_size: int) -> Tile | None:
    """Return the first tile that a row fits."""
    size = _block(n_columns) * element_size // 2
    return next((tile for tile in tiles if size <= tile.columns), None)


def _parts(tile: Parts | Ring, n_columns: int, element_size: int) -> int:
    """Return how many programs share a row."""
    return cdiv(n_columns * element_size // 2, tile.columns)


def _limit(registers: int | None) -> dict[str, int]:
    return {"maxnreg": registers} if registers else {}
