"""Layer normalization, forward and backward, each with one read of its inputs and one write of its results."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels import norm
from kernels.contract import autocast_all, check_dtype
from kernels.dispatch import CustomOp, custom_op
from kernels.launches.tape import repeatable


@repeatable
def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return `(input - mean) / sqrt(variance + eps) * weight + bias`; differentiable, as `torch.nn.functional.layer_norm`.

    Ba, Kiros and Hinton, "Layer Normalization" (2016). The variance is the biased one.

    Args:
        input: fp32, fp16 or bf16, of any strides; computed in fp32. The result has its dtype.
        normalized_shape: the last dimensions of `input`; mean and variance are over these.
        weight: of that shape, in any of the three dtypes. Its gradient has its dtype.
        bias: likewise.
        eps: added to the variance.

    Under autocast, all are converted to fp32, as in PyTorch.

    Raises:
        NotImplementedError: a dtype is none of the three.
        RuntimeError: shapes do not match, or devices differ.
    """
    check_dtype("layer_norm", input, weight, bias)
    n_columns = norm.columns_of(input, normalized_shape, weight=weight, bias=bias)
    return _layer_norm(*autocast_all(input, weight, bias, to=torch.float32), n_columns, eps)


@custom_op("warpwave::layer_norm", fake=lambda input, *given: norm.empty_results(input, given[-2], centered=True), repeats=True)
def _layer_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, n_columns: int, eps: float) -> tuple[Tensor, Tensor]:
    return norm.forward(input, weight, bias, n_columns, eps, centered=True)


@custom_op(
    "warpwave::layer_norm_backward", fake=lambda grad, input, *given: norm.empty_gradients(input, given[:2], given[-1]), repeats=True
)
def _layer_norm_backward(
    grad: Tensor, input: Tensor, weight: Tensor | None, bias: Tensor | None, statistics: Tensor, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    return norm.backward(grad, input, (weight, bias), statistics, wanted)


def register_autograd(op: CustomOp, backward: CustomOp) -> None:
    """Register the gradient of an op of (input, *parameters, n_columns, eps), whose results are those of `norm.empty_results`."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, _, _ = inputs
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    def gradients(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        wanted = list(ctx.needs_input_grad[: ctx.count])
        if grad is None:
            return (None,) * (ctx.count + 2)
        grads = backward(grad, *ctx.saved_tensors, wanted)
        return (*(found if want else None for found, want in zip(grads, wanted, strict=True)), None, None)

    op.register_autograd(gradients, setup_context=setup_context)


register_autograd(_layer_norm, _layer_norm_backward)
