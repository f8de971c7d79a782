"""Ops called without torch's dispatcher: the same results, and with the dispatcher if someone must see the op."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels.dispatch import CustomOp

CALLS: list[str] = []


def _double(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(type(x).__name__)
    return 2 * x.detach()


def _triple(x: torch.Tensor) -> torch.Tensor:
    return 3 * x.detach()


def _double_(x: torch.Tensor) -> None:
    x.detach().mul_(2)


DOUBLE = CustomOp("warpwave::test_double", _double, ())
TRIPLE = CustomOp("warpwave::test_triple", _triple, ())
DOUBLE_ = CustomOp("warpwave::test_double_", _double_, ("x",))


@DOUBLE.register_fake
def _(x):
    return torch.empty_like(x)


DOUBLE.register_autograd(
    lambda ctx, grad: DOUBLE(grad) + 0 * ctx.saved_tensors[0], setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])
)


@pytest.fixture(autouse=True)
def _forget():
    CALLS.clear()


def test_the_function_is_called_with_and_without_a_gradient():
    x = torch.ones(3, requires_grad=True)
    (grad,) = torch.autograd.grad(DOUBLE(x).sum(), x)
    assert grad.tolist() == [2, 2, 2] and CALLS == ["Tensor", "Tensor"]
    with torch.no_grad():
        assert not DOUBLE(x).requires_grad


def test_a_fake_tensor_runs_nothing():
    with FakeTensorMode():
        out = DOUBLE(torch.empty(4, 5))
    assert out.shape == (4, 5) and not CALLS


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_goes_over_the_batch():
    assert torch.vmap(DOUBLE)(torch.ones(2, 3)).tolist() == [[2, 2, 2]] * 2
    assert CALLS == ["Tensor", "Tensor"]


def test_an_op_without_gradients_says_so():
    with pytest.raises(RuntimeError, match="no autograd formula"):
        TRIPLE(torch.ones(3, requires_grad=True)).sum().backward()


def test_overwriting_a_saved_tensor_is_an_error():
    x = torch.ones(3, requires_grad=True) * 1
    y = x.square()
    with torch.no_grad():
        DOUBLE_(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
