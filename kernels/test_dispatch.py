"""Ops called without torch's dispatcher: the same results, and with the dispatcher if someone must see the op."""

import pytest
import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels.dispatch import Alike, Bound, CustomOp

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


class Driver:
    """A driver that launches what it is given, by its name one that `Bound` knows."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 7


class Kernel(triton.JITFunction):
    """A kernel that only notes how it was launched."""

    arg_names = ("x", "n", "BLOCK", "EVEN")
    function, packed_metadata = "binary", "metadata"

    def __init__(self):
        self.launched = []

    def __getitem__(self, grid):
        return lambda *args, **kwargs: (self.launched.append(("triton", grid, args, kwargs)), self)[1]

    def run(self, *args):
        self.launched.append(("direct", *args))


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.setattr(Driver, "__module__", "triton.backends.nvidia.driver")
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(Driver())
    yield
    triton.runtime.driver._active = before


OPTIONS = {"EVEN": True, "BLOCK": 64, "num_warps": 4}


def test_a_bound_kernel_is_launched_without_looking_at_its_arguments_again(driver):
    """The constants follow in the order of the kernel's parameters, on the current stream, without hooks."""
    kernel = Kernel()
    bound = Bound(kernel, (3,), OPTIONS)
    bound("a", 5)
    bound("b", 5)
    assert kernel.launched == [
        ("triton", (3,), ("a", 5), OPTIONS),
        ("direct", 3, 1, 1, 7, "binary", "metadata", None, None, None, "b", 5, 64, True),
    ]


@pytest.mark.parametrize("seen_by", ["hook", "patch", "driver"])
def test_whoever_must_see_a_launch_sees_all(seen_by, driver, monkeypatch):
    kernel = Kernel()
    if seen_by == "hook":
        monkeypatch.setattr(triton.knobs.runtime.launch_enter_hook, "calls", [print])
    elif seen_by == "patch":
        monkeypatch.setattr(triton.JITFunction, "run", lambda *args: None)
    else:
        monkeypatch.setattr(Driver, "__module__", "a.stranger")
    bound = Bound(kernel, (3,), OPTIONS)
    bound("a", 5)
    bound("b", 5)
    assert [launch[0] for launch in kernel.launched] == ["triton", "triton"]


def test_descriptors_alike_differ_in_their_tensor_alone():
    class Descriptor:
        def __init__(self, base):
            self.base, self.shape = base, list(base.shape)

    made = []
    alike = Alike(lambda x: (made.append(x), Descriptor(x))[1])
    first, second = torch.ones(3), torch.zeros(3)
    assert alike(first).base is first and alike(second).base is second
    assert alike(second).shape == [3] and len(made) == 1
