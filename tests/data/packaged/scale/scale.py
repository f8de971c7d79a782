import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@torch.library.custom_op("packaged::scale", mutates_args=())
def scale(x: Tensor, factor: float, *, block: int = 128) -> Tensor:
    assert x.is_cuda
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), factor, BLOCK=block)
    return out


@scale.register_fake
def _(x, factor, *, block=128):
    raise AssertionError("only a tracer may ask for this")


def _setup_context(ctx, inputs, keyword_only_inputs, output):
    ctx.factor, ctx.block = inputs[1], keyword_only_inputs["block"]


def _backward(ctx, grad):
    return scale(grad, ctx.factor, block=2 * ctx.block), None


scale.register_autograd(_backward, setup_context=_setup_context)
