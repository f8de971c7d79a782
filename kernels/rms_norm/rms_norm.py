"""Root mean square normalization, forward and backward, each with one read of its inputs and one write of its results."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import norm
from kernels.contract import autocast_all, check_dtype
from kernels.dispatch import custom_op
from kernels.launches.tape import repeatable
from kernels.layer_norm.layer_norm import register_autograd


@repeatable
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Return `input / sqrt(mean(input ** 2) + eps) * weight`; differentiable, as `torch.nn.functional.rms_norm`.

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).

    Args:
        input: fp32, fp16 or bf16, of any strides; computed in fp32. The result has its dtype.
        normalized_shape: the last dimensions of `input`; the mean is over these.
        weight: of that shape, in any of the three dtypes. Its gradient has its dtype.
        eps: added to the mean. If None, 2**-23, the spacing of fp32 at one: PyTorch also uses that of the dtype it computes in.

    Under autocast, both tensors are converted to fp32, as in PyTorch.

    Raises:
        NotImplementedError: a dtype is none of the three.
        RuntimeError: shapes do not match, or devices differ.
    """
    check_dtype("rms_norm", input, weight)
    n_columns = norm.columns_of(input, normalized_shape, weight=weight)
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return _rms_norm(*autocast_all(input, weight, to=torch.float32), n_columns, eps)


@custom_op("warpwave::rms_norm", fake=lambda input, *given: norm.empty_results(input, given[-2], centered=False), repeats=True)
def _rms_norm(input: Tensor, weight: Tensor | None, n_columns: int, eps: float) -> tuple[Tensor, Tensor]:
    return norm.forward(input, weight, None, n_columns, eps, centered=False)


@custom_op("warpwave::rms_norm_backward", fake=lambda grad, input, *given: norm.empty_gradients(input, given[:1], given[-1]), repeats=True)
def _rms_norm_backward(grad: Tensor, input: Tensor, weight: Tensor | None, statistics: Tensor, wanted: list[bool]) -> tuple[Tensor, Tensor]:
    return norm.backward(grad, input, (weight,), statistics, wanted)


register_autograd(_rms_norm, _rms_norm_backward)
