"""GELU in its tanh form, forward."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def gelu_tanh_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    # 0.5 * (1 + tanh(u)) is sigmoid(2 * u): one exponential, no vendor library, and the same code on every architecture.
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    gate = 1.0 / (1.0 + tl.exp(-2.0 * u))
    tl.store(out_ptr + offsets, (x * gate).to(out_ptr.dtype.element_ty), mask=inside)


def gelu(x: torch.Tensor, approximate: str = "tanh", *, out: torch.Tensor | None = None) -> torch.Tensor:
    """`0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`, as `torch.nn.functional.gelu(x, approximate="tanh")` (Hendrycks and Gimpel, 2016).

    Args:
        x: any shape and strides; fp32, fp16 or bf16. Computed in fp32.
        approximate: only "tanh".
        out: contiguous, of the same shape and dtype; allocated if not given.

    Raises:
        ValueError: another approximation, or an `out` that does not fit.
    """
    if approximate != "tanh":
        raise ValueError(f"gelu has the tanh approximation only, got approximate={approximate!r}")
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if out.shape != x.shape or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(f"out must be contiguous, {tuple(x.shape)} and {x.dtype}, got {tuple(out.shape)} {out.dtype}")
    n_elements = x.numel()
    if n_elements:
        gelu_tanh_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](x.contiguous(), out, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    return out
