"""Vector addition: the smallest kernel that has everything, and the plainest measure of bandwidth."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Over 4 warps: one or two loads of 16 bytes a thread in fp32. Twice as much was 1 % slower on an H200.
BLOCK_SIZE = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    # Program number times block size passes 2**31 in large tensors.
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    # Rounded once, at the end, as PyTorch does it.
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside).to(tl.float32)
    tl.store(out_ptr + offsets, (x + y).to(out_ptr.dtype.element_ty), mask=inside)


def add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """`x + y`, element by element, as `torch.add` does it for two tensors of one shape. Forward only.

    Args:
        x: fp32, fp16 or bf16, of any shape and strides; what is not contiguous is copied first.
        y: of the shape, dtype and device of `x`; nothing is broadcast.
        out: contiguous, of the same shape, dtype and device; it may be `x` or `y`. A new tensor if not given.

    Raises:
        ValueError: the dtype is none of the three, `x` and `y` differ in shape, dtype or device, or `out` does not fit.
    """
    if x.dtype not in DTYPES:
        raise ValueError(f"add takes fp32, fp16 and bf16, got {x.dtype}")
    if (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
        seen = f"{tuple(x.shape)} {x.dtype} on {x.device} and {tuple(y.shape)} {y.dtype} on {y.device}"
        raise ValueError(f"add needs two tensors of one shape, dtype and device, got {seen}")
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device) or not out.is_contiguous():
        raise ValueError(f"out must be a contiguous {tuple(x.shape)} of {x.dtype} on {x.device}")
    n_elements = x.numel()
    if n_elements:
        grid = (triton.cdiv(n_elements, BLOCK_SIZE),)
        add_kernel[grid](x.contiguous(), y.contiguous(), out, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    return out
