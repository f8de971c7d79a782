"""Vector addition: the smallest kernel that has everything, and the plainest measure of bandwidth."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# 1024 elements over 4 warps are two 16-byte fp32 loads a thread, or one for 16-bit types, on 32- and 64-wide machines alike.
BLOCK_SIZE = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    # 64-bit offsets: beyond 2**31 elements a 32-bit program id times the block size wraps around.
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    # Added in fp32 and rounded once, as PyTorch does for 16-bit types.
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, (x + y).to(out_ptr.dtype.element_ty), mask=inside)


def add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """`x + y`, element by element, as `torch.add` does for tensors of one shape.

    Args:
        x, y: any shape, the same for both; fp32, fp16 or bf16, the same for both; on one device. Any strides.
        out: contiguous, of the same shape and dtype; allocated if not given.

    Raises:
        ValueError: shapes, dtypes or devices differ.
    """
    if x.shape != y.shape or x.dtype != y.dtype or x.device != y.device:
        seen = f"{tuple(x.shape)} {x.dtype} on {x.device} and {tuple(y.shape)} {y.dtype} on {y.device}"
        raise ValueError(f"add needs two tensors of one shape, dtype and device, got {seen}")
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if out.shape != x.shape or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(f"out must be contiguous, {tuple(x.shape)} and {x.dtype}, got {tuple(out.shape)} {out.dtype}")
    n_elements = x.numel()
    if n_elements:
        grid = (triton.cdiv(n_elements, BLOCK_SIZE),)
        add_kernel[grid](x.contiguous(), y.contiguous(), out, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    return out
