"""Row softmax with the row held in registers: one read and one write of memory, where the unfused one needs five reads and three writes.

Two designs: a program a row, and a fixed number of programs, as many as the card can hold at once, that stride over the rows.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

# Beyond this a row no longer fits the registers of one program and would spill.
MAX_COLUMNS = 32768


@triton.jit
def _softmax_of(row):
    """Softmax of one row that is padded with -inf; NaN for a row that is -inf throughout, as in PyTorch."""
    numerator = tl.exp(row - tl.max(row, axis=0))
    return numerator / tl.sum(numerator, axis=0)


@triton.jit
def softmax_row_kernel(out_ptr, x_ptr, row_stride, n_columns, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_SIZE)
    inside = columns < n_columns
    x = tl.load(x_ptr + row * row_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
    tl.store(out_ptr + row * n_columns + columns, _softmax_of(x).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_persistent_kernel(out_ptr, x_ptr, row_stride, n_rows, n_columns, BLOCK_SIZE: tl.constexpr, NUM_STAGES: tl.constexpr):
    columns = tl.arange(0, BLOCK_SIZE)
    inside = columns < n_columns
    wide = tl.full((), 1, tl.int64)  # row numbers times strides pass 2**31
    # The loop's pipelining loads the next rows while this one is computed.
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=NUM_STAGES):
        start = row * wide
        x = tl.load(x_ptr + start * row_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(out_ptr + start * n_columns + columns, _softmax_of(x).to(out_ptr.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor, dim: int = -1, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension, a program a row; as `torch.softmax(x, -1)`.

    Args:
        x: (..., N) with N at most `MAX_COLUMNS`; fp32, fp16 or bf16. Computed in fp32.
        dim: the last dimension.
        out: contiguous, of the same shape and dtype; allocated if not given.

    Raises:
        ValueError: another dimension, too long a row, or an `out` that does not fit.
    """
    rows, out = _prepare(x, dim, out)
    if rows.numel():
        block = triton.next_power_of_2(rows.shape[1])
        softmax_row_kernel[(rows.shape[0],)](out, rows, rows.stride(0), rows.shape[1], BLOCK_SIZE=block, num_warps=_warps(block))
    return out


def softmax_persistent(x: torch.Tensor, dim: int = -1, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The same as `softmax`, by as many programs as the card holds at once."""
    rows, out = _prepare(x, dim, out)
    if rows.numel():
        block = triton.next_power_of_2(rows.shape[1])
        options = {"BLOCK_SIZE": block, "NUM_STAGES": 2, "num_warps": _warps(block)}
        arguments = (out, rows, rows.stride(0), *rows.shape)
        programs = min(rows.shape[0], _resident_programs(arguments, tuple(options.items())))
        softmax_persistent_kernel[(programs,)](*arguments, **options)
    return out


def softmax_unfused(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension in five steps of PyTorch, each of which goes through memory: what fusion is measured against."""
    shifted = x - x.max(dim=-1, keepdim=True).values
    numerator = shifted.exp()
    return numerator / numerator.sum(dim=-1, keepdim=True)


def _prepare(x: torch.Tensor, dim: int, out: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The input as (rows, columns) with neighbouring columns side by side in memory, and an output that fits."""
    if x.dim() == 0 or dim not in (-1, x.dim() - 1):
        raise ValueError(f"softmax works along the last dimension, got dim={dim} of a tensor of {x.dim()} dimensions")
    if x.shape[-1] > MAX_COLUMNS:
        raise ValueError(f"softmax holds a row in registers: at most {MAX_COLUMNS} columns, got {x.shape[-1]}")
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if out.shape != x.shape or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(f"out must be contiguous, {tuple(x.shape)} and {x.dtype}, got {tuple(out.shape)} {out.dtype}")
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x
    return (rows if x.numel() == 0 or rows.stride(1) == 1 else rows.contiguous()), out


def _warps(block: int) -> int:
    """One warp for each 1024 columns, so that a thread holds 32 of them at most; 16 warps are 1024 threads of a 64-wide machine."""
    return min(16, max(1, block // 1024))


@functools.lru_cache(maxsize=256)
def _occupancy(key: tuple[object, ...], n_regs: int, shared: int, num_warps: int) -> int:
    """Programs that the whole card holds at once: by registers, by shared memory and by threads."""
    driver = triton.runtime.driver.active
    card = driver.utils.get_device_properties(driver.get_current_device())
    threads = num_warps * driver.get_current_target().warp_size
    by_registers = card["max_num_regs"] // max(1, n_regs * threads)
    by_shared = card["max_shared_mem"] // shared if shared else by_registers
    by_threads = card.get("max_threads_per_sm", 2048) // threads
    return card["multiprocessor_count"] * max(1, min(by_registers, by_shared, by_threads))


def _resident_programs(arguments: tuple[object, ...], options: tuple[tuple[str, int], ...]) -> int:
    """How many programs of this kernel, compiled for these arguments, the current device holds at once."""
    kernel = softmax_persistent_kernel.warmup(*arguments, grid=(1,), **dict(options))
    if kernel is None:  # the interpreter compiles nothing, and any number of programs gives the right result
        return 8
    kernel._init_handles()
    return _occupancy(options, kernel.n_regs, kernel.metadata.shared, dict(options)["num_warps"])
