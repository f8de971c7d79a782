"""Row softmax with the row held in registers: memory is read and written once, not in eight passes.

Two designs of one result: a program for each row, and as many programs as the card holds, striding over the rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# A longer row does not fit the registers of one program and spills.
MAX_COLUMNS = 32768
# Programs in the interpreter, which has no card to fill: any number is right, and several exercise the stride.
INTERPRETED_PROGRAMS = 8

# By device, dtype, block and evenness of rows: compiling and asking the driver costs far more than a launch.
_plans: dict[tuple[object, ...], tuple[dict[str, int], int]] = {}


@triton.jit
def _softmax_of(row):
    # Padding is -inf, and adds nothing. A row of -inf alone becomes NaN throughout, as in PyTorch.
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
def softmax_persistent_kernel(
    out_ptr,
    x_ptr,
    row_stride,
    n_rows,
    n_columns,
    BLOCK_SIZE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_SIZE)
    inside = columns < n_columns
    one = tl.full((), 1, tl.int64)  # a row's number times its stride passes 2**31
    for number in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=NUM_STAGES):
        row = number * one
        x = tl.load(x_ptr + row * row_stride + columns, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(out_ptr + row * n_columns + columns, _softmax_of(x).to(out_ptr.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension, as `torch.softmax(x, -1)`, by a program for each row. Forward only.

    Args:
        x: (..., N) in fp32, fp16 or bf16, N at most `MAX_COLUMNS`; computed in fp32. Rows may have any stride; where
            neighbours in a row are not neighbours in memory, a copy is made first.
        out: contiguous, of the same shape, dtype and device; it may be `x`. A new tensor if not given.

    Raises:
        ValueError: the dtype is none of the three, a row is too long, or `out` does not fit.
    """
    rows, out = _prepare(x, out)
    if rows.numel():
        n_rows, n_columns = rows.shape
        block = triton.next_power_of_2(n_columns)
        softmax_row_kernel[(n_rows,)](out, rows, rows.stride(0), n_columns, BLOCK_SIZE=block, num_warps=_warps(block))
    return out


def softmax_persistent(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The same as `softmax`, arguments and errors included, by as many programs as the current device holds at once."""
    rows, out = _prepare(x, out)
    if rows.numel():
        block = triton.next_power_of_2(rows.shape[1])
        size = rows.element_size()
        even = (rows.data_ptr() | rows.stride(0) * size | rows.shape[1] * size) % 16 == 0
        arguments = (out, rows, rows.stride(0), *rows.shape)
        key = (x.device, x.dtype, block, even)
        if key not in _plans:
            _plans[key] = _plan(arguments, block, 2 * block * size if even else None)
        options, resident = _plans[key]
        softmax_persistent_kernel[(min(rows.shape[0], resident),)](*arguments, **options)
    return out


def softmax_unfused(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension in five operators of PyTorch, each through memory: the bar for fusion."""
    shifted = x - x.amax(dim=-1, keepdim=True)
    numerator = shifted.exp()
    return numerator / numerator.sum(dim=-1, keepdim=True)


def _prepare(x: torch.Tensor, out: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The input as (rows, columns) with the columns side by side in memory, and an output that fits."""
    if x.dtype not in DTYPES:
        raise ValueError(f"softmax takes fp32, fp16 and bf16, got {x.dtype}")
    n_columns = x.shape[-1] if x.dim() else 1
    if n_columns > MAX_COLUMNS:
        raise ValueError(f"softmax holds a row in registers, at most {MAX_COLUMNS} columns, got {n_columns}")
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device) or not out.is_contiguous():
        raise ValueError(f"out must be a contiguous {tuple(x.shape)} of {x.dtype} on {x.device}")
    rows = x.reshape(-1, n_columns) if x.numel() else x
    return rows if n_columns < 2 or rows.stride(-1) == 1 else rows.contiguous(), out


def _warps(block: int) -> int:
    """A warp for every 1024 columns, 32 or 16 a lane; 16 warps are all that a block of 64-wide ones may have."""
    return min(16, max(1, block // 1024))


def _plan(arguments: tuple[object, ...], block: int, ahead: int | None) -> tuple[dict[str, int], int]:
    """Launch options, and how many programs of the kernel they compile to are resident at once on the current device.

    `ahead` is the shared memory that two programs need to load a row ahead each; where there is less, none does. None
    for rows that are copied element by element, whose addresses and masks would spill registers.
    """
    options = {"BLOCK_SIZE": block, "NUM_STAGES": 1, "num_warps": _warps(block)}
    if not isinstance(softmax_persistent_kernel, triton.runtime.JITFunction):
        return options, INTERPRETED_PROGRAMS
    driver = triton.runtime.driver.active
    card = driver.utils.get_device_properties(driver.get_current_device())
    if ahead is not None and ahead <= card["max_shared_mem"]:
        options["NUM_STAGES"] = 2
    kernel = softmax_persistent_kernel.warmup(*arguments, grid=(1,), **options)
    kernel._init_handles()  # the registers are known once the binary is loaded
    threads = options["num_warps"] * driver.get_current_target().warp_size
    by_registers = card["max_num_regs"] // (max(1, kernel.n_regs) * threads)
    by_shared = card["max_shared_mem"] // max(1, kernel.metadata.shared)
    # Not every driver tells the threads of a multiprocessor. A program too many waits for its turn and does no harm.
    by_threads = card.get("max_threads_per_sm", 2048) // threads
    return options, card["multiprocessor_count"] * max(1, min(by_registers, by_shared, by_threads))
