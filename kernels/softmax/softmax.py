"""Softmax and log-softmax along any dimension, of any length, and their gradients."""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels.configs import Card, card, choose
from kernels.configs.softmax import SOFTMAX, Softmax, Tile
from kernels.contract import DTYPES, check_dtype
from kernels.dispatch import cdiv, custom_op, fewest_lanes, next_power_of_2
from kernels.launches.bound import Bound, on_boundary
from kernels.launches.tape import repeatable
from kernels.softmax.few import softmax_few_backward_kernel, softmax_few_kernel
from kernels.softmax.rows import softmax_backward_kernel, softmax_kernel
from kernels.softmax.strided import softmax_strided_backward_kernel, softmax_strided_kernel

# Minimum number of words that a program reads from a row's parts.
FEWEST_SLOTS = 32
# Rows of up to so many bytes stay in one program, whatever they mask: waiting for other parts would take longer.
_SHORT = 32768
# The fewest bytes of a part: 32 programs of a multiprocessor then still have 256 KB on their way.
_PART = 8192
# Of so many columns, most would be edges: kernels of their own read such rows in the widest vectors that divide them. A warp then reads
# from a stretch of so many bytes at once.
_FEW_COLUMNS, _FEW_WARPS, _FEW_BYTES = 200, 4, 800
# Threads that share a row in chunks, and the most chunks of so many, by the elements of 16 bytes; and the most of such threads where
# registers hold two tensors.
_LANES = {vector: {8: 8, 16: 8, 32: 8, 64: 8, 128: 17, 256: longest} for vector, longest in {4: 16, 8: 12}.items()}
_MOST_LANES = 128
# From so many elements a thread on, it adds them in four sums, each of the 16 bytes of fp32 that it loads at once, or more.
_SHORT_SUMS = 16


@repeatable
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return `exp(input)` over its sum along `dim`; differentiable, as `torch.softmax`.

    Args:
        input: fp32, fp16 or bf16, of any shape and strides; computed in fp32. Other dtypes are converted first.
        dim: the dimension that sums to one.
        dtype: of the result: fp32, fp16 or bf16. By default the input's own, and fp32 under autocast.

    Raises:
        NotImplementedError: the result would be of another dtype.
        IndexError: there is no such dimension.
    """
    return _along("softmax", input, dim, dtype)


@repeatable
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return the logarithm of `softmax`, without its loss of digits. Arguments and errors are the same."""
    return _along("log_softmax", input, dim, dtype)


def _along(op: str, input: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    if dtype is None:
        dtype = torch.float32 if torch.is_autocast_enabled(input.device.type) and input.dtype in DTYPES else input.dtype
    if input.dtype not in DTYPES or dtype not in DTYPES:
        input = input.to(dtype)
    check_dtype(op, input)
    n_dims = max(1, input.dim())
    if not -n_dims <= dim < n_dims:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n_dims}, {n_dims - 1}], but got {dim})")
    return _softmax(input, dim % n_dims, dtype, op == "log_softmax")


def _empty(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(x.shape, dtype=dtype, device=x.device)


@custom_op("warpwave::softmax", fake=lambda input, dim, dtype, log: _empty(input, dtype), repeats=True)
def _softmax(input: Tensor, dim: int, dtype: torch.dtype, log: bool) -> Tensor:
    out = _empty(input, dtype)
    _, length, width = _sizes(input, dim)
    if not out.numel():
        return out
    if width > 1:
        _launch_strided(softmax_strided_kernel, out, (input.contiguous(),), dim, log)
        return out
    rows = input if input.dim() == 2 and dim == 1 else input.reshape(-1, length)
    rows = rows if length == 1 or rows.stride(1) == 1 else rows.contiguous()
    _launch_rows(False, out, (rows,), (rows.stride(0),), length, log)
    return out


@custom_op("warpwave::softmax_backward", fake=lambda grad, output, dim, dtype, log: _empty(output, dtype), repeats=True)
def _softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype, log: bool) -> Tensor:
    out = _empty(output, dtype)
    _, length, width = _sizes(output, dim)
    if not out.numel():
        return out
    inputs = grad.contiguous(), output.contiguous()
    if width > 1:
        _launch_strided(softmax_strided_backward_kernel, out, inputs, dim, log)
    else:
        _launch_rows(True, out, inputs, (), length, log)
    return out


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, ctx.dim, _, ctx.log = inputs
    ctx.dtype = input.dtype
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    return _softmax_backward(grad, *ctx.saved_tensors, ctx.dim, ctx.dtype, ctx.log), None, None, None


_softmax.register_autograd(_backward, setup_context=_setup_context)


def _sizes(tensor: Tensor, dim: int) -> tuple[int, int, int]:
    """Return the sizes of a contiguous tensor as (before, along, after) `dim`."""
    shape = tensor.shape or (1,)
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def _launch_strided(kernel: Any, out: Tensor, inputs: Sequence[Tensor], dim: int, log: bool) -> None:
    """Launch over contiguous tensors whose elements along `dim` are not adjacent."""
    before, length, width = _sizes(out, dim)
    tile = choose(SOFTMAX).strided
    columns = min(tile.columns, next_power_of_2(width))
    steps = min(tile.elements // columns, next_power_of_2(length))
    tiles = cdiv(width, columns)
    kernel[(before * tiles,)](out, *inputs, length, width, tiles, LOG=log, BLOCK=steps, WIDTH=columns, num_warps=tile.warps)


def even_tile(n_columns: int, tile: Tile, tiles: Sequence[Tile], element_size: int) -> Tile:
    """Return the tile, or for long rows that would leave more than an eighth of its lanes without work, one with smaller parts.

    A masked lane holds registers and issues instructions, but fetches nothing. A smaller part has as many elements a thread, and so fewer
    warps.
    """
    shared = next((each for each in (tile, *tiles) if each.elements < each.columns), None)
    if shared is None or n_columns * element_size <= _SHORT or _masked(n_columns, min(tile.elements, next_power_of_2(n_columns))) <= 1 / 8:
        return tile
    for share in (1, 2, 4):
        elements = shared.elements // share
        if share <= shared.warps and elements * element_size >= _PART and _masked(n_columns, elements) <= 1 / 8:
            odd = shared.odd and replace(shared.odd, elements=shared.odd.elements // share, warps=max(1, shared.odd.warps // share))
            return replace(shared, elements=elements, warps=shared.warps // share, odd=odd)
    return tile


def _masked(n_columns: int, elements: int) -> float:
    """Return the share of lanes without work in parts of up to so many elements, a power of two."""
    part = cdiv(n_columns, cdiv(n_columns, elements))
    return 1 - part / next_power_of_2(part)


def chunk_lanes(n_columns: int, vector: int, even: bool, backward: bool) -> int | None:
    """Return how many threads share a row whose columns are chunks of a vector a thread; None if one tile of a power of two does as well.

    That is so if rows start on a vector and an eighth of the tile's lanes or less are masked, or no fewer would be. Other rows have as few
    threads as possible: each then has enough bytes on their way, and warps exchange nothing where one can hold the row.
    """
    lanes = fewest_lanes(n_columns, vector, _LANES.get(vector, {}))
    if lanes is None or (backward and lanes > _MOST_LANES):
        return None
    block, chunk = next_power_of_2(n_columns), lanes * vector
    return None if even and (_masked(n_columns, block) <= 1 / 8 or cdiv(n_columns, chunk) * chunk == block) else lanes


def _launch_rows(backward: bool, out: Tensor, inputs: Sequence[Tensor], strides: tuple[int, ...], n_columns: int, log: bool) -> None:
    """Launch over contiguous rows, or over rows with the given stride."""
    n_rows, dtypes = out.numel() // n_columns, (out.dtype, *[tensor.dtype for tensor in inputs])
    on = card()
    plan = _plan(on, choose(SOFTMAX, on), backward, dtypes, n_rows, n_columns, strides, on_boundary(*inputs), log)
    slots = (out,) if plan.sizes else ()  # a word for each part of each row; where there are no parts, any tensor
    if plan.n_words:
        slots = ((torch.zeros if plan.zeros else torch.empty)(plan.n_words, dtype=torch.int64, device=out.device),)
    for bound in plan.launches:
        bound(out, *inputs, *slots, *strides, n_rows, *plan.sizes)


class _Plan(NamedTuple):
    """What a shape comes to: launches one after the other, and what they get: words, and columns, parts of a row, elements of a part."""

    launches: tuple[Bound, ...]
    sizes: tuple[int, ...] = ()
    n_words: int = 0
    zeros: bool = False


@functools.lru_cache(maxsize=1024)
def _plan(
    gpu: Card, config: Softmax, backward: bool, dtypes: tuple[torch.dtype, ...],
    n_rows: int, n_columns: int, strides: tuple[int, ...], boundaries: tuple[bool, ...], log: bool,
) -> _Plan:  # fmt: skip
    """Choose the tile of a shape. Rows that start anywhere have a body and edges, the same in all tensors."""
    vector = 16 // min(dtype.itemsize for dtype in dtypes)
    even = all(size % vector == 0 for size in (n_columns, *strides))
    dense = all(boundaries) and all(stride == n_columns for stride in strides)
    if n_columns <= _FEW_COLUMNS and n_columns % vector:
        vector = math.gcd(vector, n_columns, *strides) if all(boundaries) else 1
        pairs = n_rows // 2 if vector == 1 and dense and min(dtype.itemsize for dtype in dtypes) == 2 else 0
        return _few(gpu, backward, dtypes, n_rows, pairs, n_columns, vector, log)
    if not (dense or (all(boundaries) and even)):
        vector, even = 1, True
    lanes = chunk_lanes(n_columns, vector, even, backward)
    if lanes:
        warps = max(2, lanes // gpu.warp_size)
        tile = Tile(n_columns, n_columns, warps, packed=config.packed)
        width, rows = lanes * vector, warps * gpu.warp_size // lanes
        segment, split, chunks = cdiv(n_columns, vector) * vector, 1, cdiv(n_columns, width)
    else:
        tiles = (config.backward if backward else config.forward)[dtypes[0].itemsize]
        width = next_power_of_2(n_columns)
        tile = next((tile for tile in tiles if width <= tile.columns), tiles[-1])
        if config.exchange:
            tile = even_tile(n_columns, tile, tiles, dtypes[0].itemsize)
        tile = tile.of_rows(even)
        # As few parts as possible, of about equal size.
        parts = cdiv(n_columns, min(width, tile.elements))
        segment = cdiv(n_columns, parts * vector) * vector
        split, width, chunks = cdiv(n_columns, segment), next_power_of_2(segment), 1
        rows = max(1, tile.elements // width) if split == 1 else 1
    if split == 1:
        phases: tuple[str, ...] = ("whole",)
    elif config.exchange and split <= gpu.processors:
        # All programs of some row are resident, whatever else runs, so that row can finish.
        phases = ("exchange",)
    else:
        phases = ("publish", "finish")
    edges = 0 if even else 2 * vector
    if edges and (rows > 1 or backward):
        # The compiler considers a tile with fewer elements than threads cheap, and loads it again for a second use. Measurements show that
        # this is better, except for a forward pass with one row per program.
        edges = max(edges, tile.warps * gpu.warp_size // rows)
    limit = {"maxnreg": tile.registers} if tile.registers else {}
    # Programs that wait for each other read only as many words as there are. The others share one kernel for rows of many lengths.
    padded = {"exchange": next_power_of_2(split), "finish": max(FEWEST_SLOTS, next_power_of_2(split))}
    fixed = {"LOG": log, "CHUNKS": chunks, "VECTOR": vector, "EDGES": edges, "ROWS": rows, "WIDTH": width, "PACKED": tile.packed}
    fixed["num_warps"] = tile.warps
    if not backward:
        # Half precision's rounding hides a long sum's. With edges, four sums take so many registers that one program less is resident.
        long = width >= _SHORT_SUMS * tile.warps * gpu.warp_size
        fixed["SHORT"] = dtypes[0] == torch.float32 and rows == 1 and long and chunks == 1 and not edges
    grid = (cdiv(n_rows, rows) * split,)
    kernel = softmax_backward_kernel if backward else softmax_kernel
    launches = tuple(Bound(kernel, grid, **fixed, **limit, PHASE=phase, SLOTS=padded.get(phase, 1)) for phase in phases)
    return _Plan(launches, (n_columns, split, segment), n_rows * split if split > 1 else 0, "exchange" in phases)


def _few(
    gpu: Card, backward: bool, dtypes: tuple[torch.dtype, ...], n_rows: int, pairs: int, n_columns: int, vector: int, log: bool
) -> _Plan:
    """Return the plan of rows of a few columns, of which so many pairs are read together."""
    kernel = softmax_few_backward_kernel if backward else softmax_few_kernel
    size = max(dtype.itemsize for dtype in dtypes)

    def launch(n_rows: int, pair: bool, last: bool) -> Bound:
        width, wide = n_columns * (1 + pair), 2 if pair else vector
        # As few threads for a row as leave what a warp reads at once within some lines; and 16 bytes or more for each thread.
        units = min(next_power_of_2(cdiv(width * size * gpu.warp_size, _FEW_BYTES)), next_power_of_2(cdiv(width, wide)))
        rows = _FEW_WARPS * gpu.warp_size // units * next_power_of_2(cdiv(16, cdiv(width, units * wide) * wide * size))
        shape = {"N": n_columns, "VECTOR": wide, "ROWS": 1 if last else rows, "LANES": units * wide}
        return Bound(kernel, (cdiv(n_rows, rows),), **shape, PAIR=pair, LAST=last, LOG=log, num_warps=_FEW_WARPS)

    if not pairs:
        return _Plan((launch(n_rows, False, False),))
    odd = (launch(1, False, True),) if n_rows % 2 else ()
    return _Plan((launch(pairs, True, False), *odd))
