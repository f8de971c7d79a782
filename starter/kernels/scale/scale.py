"""y = a * x, elementwise: a place to put your own kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, a, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, a * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def scale(x: torch.Tensor, a: float) -> torch.Tensor:
    """`a * x` for a contiguous `x` of any shape."""
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        scale_kernel[(triton.cdiv(n, 1024),)](x, out, a, n, BLOCK=1024)
    return out
