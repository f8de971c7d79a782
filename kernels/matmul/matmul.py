"""`torch.matmul` and `torch.nn.functional.linear` with the kernels of this package; linear applies an activation before rounding."""

from typing import Any

import torch
import triton

from kernels.contract import autocast_all, check_dtype, check_same
from kernels.dispatch import custom_op
from kernels.launches.tape import repeatable
from kernels.matmul.kernels import activation_backward_kernel
from kernels.matmul.launch import multiply, rows

ACTIVATIONS = (None, "gelu", "gelu_tanh", "relu", "silu")
BLOCK_SIZE = 1024


@repeatable
def matmul(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the matrix product, as `torch.matmul`: of vectors, matrices, and batches of matrices, whose batch dimensions broadcast.

    fp32 is multiplied in fp32, or in tf32 if `torch.backends.cuda.matmul.allow_tf32` is set; sums are always fp32. The transpose of a dense
    matrix is read in place. A matrix without a dense dimension, and batches that no single stride describes, are copied.

    Args:
        input: (K), (M, K) or (..., M, K) in fp32, fp16 or bf16.
        other: (K), (K, N) or (..., K, N) of the same dtype.

    Raises:
        RuntimeError: a 0-D tensor, or shapes, dtypes or devices that do not match.
        NotImplementedError: the dtype is none of the three.
    """
    if not (input.dim() and other.dim()):
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {input.dim()}D and {other.dim()}D")
    input, other = autocast_all(input, other)
    check_dtype("matmul", input, other)
    check_same("matmul", input, other)
    a = input if input.dim() > 1 else input[None, :]
    b = other if other.dim() > 1 else other[:, None]
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_by(input)} and {_by(other)})")
    if input.dim() > 1 and (other.dim() == 2 or (input.dim() == other.dim() == 3 and a.shape[0] == b.shape[0])):
        return _matmul(a, b)
    if b.dim() == 2:
        out = _matmul(a, b)
    else:
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (x.expand(*lead, *x.shape[-2:]).flatten(0, -3) for x in (a, b))
        out = _matmul(a, b).reshape(*lead, a.shape[-2], b.shape[-1])
    if other.dim() == 1:
        out = out.squeeze(-1)
    return out if input.dim() > 1 else out.squeeze(-1 if other.dim() == 1 else -2)


@repeatable
def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None) -> torch.Tensor:
    """Return `activation(input @ weight.T + bias)`, as `torch.nn.functional.linear`, with the activation applied before rounding.

    If a gradient is needed, the forward also writes the activation's input, except for relu, whose output is enough. Recomputing it would
    take a third product in the backward; keeping it takes one write and one read of the output's size.

    Args:
        input: (..., K) in fp32, fp16 or bf16.
        weight: (N, K) of the same dtype.
        bias: (N) of the same dtype.
        activation: None, "gelu", "gelu_tanh", "relu" or "silu".

    Raises:
        RuntimeError: shapes, dtypes or devices do not match.
        NotImplementedError: the dtype is none of the three.
        ValueError: the activation is unknown.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    input, weight, bias = autocast_all(input, weight, bias)
    check_dtype("linear", input, weight, bias)
    check_same("linear", input, weight, bias)
    if weight.dim() != 2 or not input.dim() or input.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_by(input)} and {_by(weight.mT if weight.dim() > 1 else weight)})")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"bias of {_by(bias)} does not fit an output of {weight.shape[0]} columns")
    differentiable = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (input, weight, bias))
    return _linear(input, weight, bias, activation, differentiable and activation not in (None, "relu"))


def _by(x: torch.Tensor) -> str:
    return "x".join(map(str, x.shape)) or "scalar"


@custom_op("warpwave::matmul", fake=lambda a, b: a.new_empty((*a.shape[:-1], b.shape[-1])), repeats=True)
def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiply(a, b)[0]


def _matmul_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    of_a = _matmul(grad, b.mT) if wanted[0] else None
    if b.dim() == 2:
        a, grad = rows(a), rows(grad)
    return of_a, _matmul(a.mT, grad) if wanted[1] else None


_matmul.register_autograd(_matmul_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def _empty_linear(input, weight, bias, activation, save):
    shape = (*input.shape[:-1], weight.shape[0])
    return input.new_empty(shape), input.new_empty(shape if save else (0,))


@custom_op("warpwave::linear", fake=_empty_linear, repeats=True)
def _linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None, save: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, saved = multiply(input, weight.t(), bias, activation, save)
    return out, saved if save else input.new_empty(0)


def _linear_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    input, weight, _, ctx.activation, save = inputs
    out, saved = output
    ctx.mark_non_differentiable(saved)
    ctx.save_for_backward(input, weight, saved if save else out if ctx.activation else None)


def _linear_backward(ctx: Any, grad: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    input, weight, known = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    if ctx.activation:
        grad = _activation_backward(grad, known, ctx.activation)
    of_input = _matmul(grad, weight) if wanted[0] else None
    grad = rows(grad)
    return of_input, _matmul(grad.t(), rows(input)) if wanted[1] else None, grad.sum(0) if wanted[2] else None, None, None


_linear.register_autograd(_linear_backward, setup_context=_linear_context)


@custom_op("warpwave::linear_activation_backward", fake=lambda grad, x, activation: torch.empty_like(x))
def _activation_backward(grad: torch.Tensor, x: torch.Tensor, activation: str) -> torch.Tensor:
    out = torch.empty_like(x)
    if n := x.numel():
        grid = (triton.cdiv(n, BLOCK_SIZE),)
        activation_backward_kernel[grid](out, grad.contiguous(), x, n, ACTIVATION=activation, BLOCK_SIZE=BLOCK_SIZE)
    return out
