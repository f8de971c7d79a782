"""Addition: the smallest complete kernel, and the simplest measure of bandwidth."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.configs import choose
from kernels.configs.elementwise import ELEMENTWISE
from kernels.contract import check_dtype, check_same, laid_out_as
from kernels.dispatch import cdiv, custom_op


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, alpha, BLOCK_SIZE: tl.constexpr):
    # In large tensors, program number times block size exceeds 2**31.
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    # 1 to 3 % faster on an H200, presumably because written data then leaves the cache first.
    x = tl.load(x_ptr + offsets, mask=inside, eviction_policy="evict_last").to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=inside, eviction_policy="evict_last").to(tl.float32)
    # Round once, at the end, like PyTorch.
    tl.store(out_ptr + offsets, (x + alpha * y).to(out_ptr.dtype.element_ty), mask=inside)


def add(input: Tensor, other: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return `input + alpha * other`; differentiable, as `torch.add` of two tensors.

    Args:
        input: fp32, fp16 or bf16, of any strides; computed in fp32, rounded once.
        other: of the same dtype and device; the two shapes are broadcast.
        alpha: multiplies `other`.

    Raises:
        NotImplementedError: the dtype is none of the three.
        RuntimeError: dtypes or devices differ (nothing is promoted), or the shapes do not broadcast.
    """
    check_dtype("add", input, other)
    check_same("add", input, other)
    return _add(*torch.broadcast_tensors(input, other), float(alpha))


@custom_op("warpwave::add", fake=lambda input, *_: torch.empty_like(input))
def _add(input: Tensor, other: Tensor, alpha: float) -> Tensor:
    # Use the memory order of `input`, so that one flat loop serves any strides.
    out = torch.empty_like(input)
    if out.numel():
        config = choose(ELEMENTWISE)
        grid = (cdiv(out.numel(), config.block),)
        x, y = laid_out_as(input, out), laid_out_as(other, out)
        add_kernel[grid](x, y, out, out.numel(), alpha, BLOCK_SIZE=config.block, num_warps=config.warps)
    return out


def _setup_context(ctx, inputs, output) -> None:
    ctx.alpha = inputs[2]


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    of_other = (grad if ctx.alpha == 1.0 else grad * ctx.alpha) if ctx.needs_input_grad[1] else None
    return grad if ctx.needs_input_grad[0] else None, of_other, None


_add.register_autograd(_backward, setup_context=_setup_context)
