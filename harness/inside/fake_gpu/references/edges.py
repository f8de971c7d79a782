"""Operations that return other values on the CPU than on CUDA: the sign of an infinite complex number, and a smooth loss with beta 0.

For the sign of a complex number, CUDA divides each part by the absolute value. The CPU divides by a complex number, so an infinite part
makes both parts NaN. For `smooth_l1_loss` with beta 0 and equal numbers, CUDA computes the gradient as 0/0, which is NaN. The CPU
returns -1.
Source: `UnarySignKernels.cu` and `BinaryMiscBackwardOpsKernels.cu` of torch 2.11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.inside.fake_gpu.references.operations import replaced_on_cpu


def answer_as_cuda() -> Callable[[], None]:
    """Replace the operations. Return what undoes that."""
    return replaced_on_cpu({"sgn": _sign, "smooth_l1_loss_backward.grad_input": _smooth})


def _sign(kernel: Any) -> Callable[..., Any]:
    def compute(keys: Any, number: torch.Tensor) -> Any:
        if not number.is_complex():
            return kernel.call_boxed(keys, number)
        size = number.abs().unsqueeze(-1)
        parts = torch.view_as_real(number.resolve_conj()) / size
        return torch.view_as_complex(torch.where(size == 0, 0.0, parts))

    return compute


def _smooth(kernel: Any) -> Callable[..., Any]:
    def compute(keys: Any, grad: Any, number: Any, target: Any, reduction: int, beta: float, *, grad_input: Any) -> Any:
        found = kernel.call_boxed(keys, grad, number, target, reduction, beta, grad_input=grad_input)
        return found.masked_fill_(number == target, float("nan")) if beta == 0 else found

    return compute
