"""Dropout that never stores its mask: the backward generates it again from the same seed."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.configs import choose
from kernels.configs.elementwise import DROPOUT
from kernels.contract import check_dtype, laid_out_as
from kernels.dispatch import cdiv, custom_op


@triton.jit
def _keep(x_ptr, out_ptr, offsets, n_elements, word, threshold, scale):
    inside = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    # Multiply instead of selecting: dropped infinities and NaN become NaN, as in PyTorch.
    factor = tl.where(word >= threshold, scale, 0.0)
    tl.store(out_ptr + offsets, (x * factor).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def dropout_kernel(x_ptr, out_ptr, seed_ptr, n_elements, threshold, scale, QUARTER: tl.constexpr):
    """Process four runs of QUARTER elements per program, one for each word of Philox."""
    program = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, QUARTER)
    # The counter numbers groups of four words, not elements, which saves three quarters of the integer work. In 16 bits, that work is still
    # the limit: seven rounds are the fewest that pass BigCrush, and the usual ten are 6 % slower.
    counter = program * QUARTER + lane
    low, high = (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32)
    first, second, third, fourth = tl.philox(tl.load(seed_ptr), low, high, low * 0, low * 0, n_rounds=7)
    offsets = program * (4 * QUARTER) + lane
    threshold = tl.cast(threshold, tl.uint32)  # a threshold of 1 is a constant and not a tensor
    _keep(x_ptr, out_ptr, offsets, n_elements, first, threshold, scale)
    _keep(x_ptr, out_ptr, offsets + QUARTER, n_elements, second, threshold, scale)
    _keep(x_ptr, out_ptr, offsets + 2 * QUARTER, n_elements, third, threshold, scale)
    _keep(x_ptr, out_ptr, offsets + 3 * QUARTER, n_elements, fourth, threshold, scale)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability `p` and scale the others by `1 / (1 - p)`; differentiable, as `torch.nn.functional.dropout`.

    Random words are those of Philox4x32-7 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), one per element. The key
    is a seed from torch's generator of the device: `torch.manual_seed` reproduces it, and nothing waits for the GPU. The mask depends on an
    element's place in memory.

    Args:
        input: fp32, fp16 or bf16, of any shape and strides.
        p: between 0 and 1; resolved to 2**-32.
        training: False returns `input`.
        inplace: write the result into `input`.

    Raises:
        NotImplementedError: the dtype is none of the three.
        ValueError: `p` is not a probability.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    check_dtype("dropout", input)
    if not training or p == 0.0:
        return input
    seed = torch.randint(2**63 - 1, (1,), device=input.device)
    out = _dropout(input, seed, float(p))
    return input.copy_(out) if inplace else out


@custom_op("warpwave::dropout", fake=lambda input, *_: torch.empty_like(input))
def _dropout(input: Tensor, seed: Tensor, p: float) -> Tensor:
    out = torch.empty_like(input)
    if out.numel():
        config = choose(DROPOUT)
        # With p = 1, all elements are dropped, and the factor must not be infinite.
        scale, threshold = (0.0, 2**32 - 1) if p == 1.0 else (1.0 / (1.0 - p), min(round(p * 2**32), 2**32 - 1))
        grid = (cdiv(out.numel(), config.block),)
        tensors = laid_out_as(input, out), out, seed
        dropout_kernel[grid](*tensors, out.numel(), threshold, scale, QUARTER=config.block // 4, num_warps=config.warps)
    return out


def _setup_context(ctx, inputs, output) -> None:
    _, seed, ctx.p = inputs
    ctx.save_for_backward(seed)
    ctx.strides = output.stride()


def _backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
    # The mask depends on the place in memory, so the gradient needs the output's strides.
    if grad.stride() != ctx.strides:
        grad = torch.empty_strided(grad.shape, ctx.strides, dtype=grad.dtype, device=grad.device).copy_(grad)
    return _dropout(grad, ctx.saved_tensors[0], ctx.p), None, None


_dropout.register_autograd(_backward, setup_context=_setup_context)
