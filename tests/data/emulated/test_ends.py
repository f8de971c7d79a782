from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def good(out, value):
    tl.store(out, value)


@triton.jit
def unknown(out, value):
    tl.store(out, value)


@triton.jit
def endless(out, value):
    tl.store(out, value)


@triton.jit
def outside(out, value):
    tl.store(out, value)


@triton.jit
def prints(out, value):
    tl.store(out, value)
    tl.device_print("value", value)


def launch(kernel):
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernel[(1,)](out, 7)
    return out


def test_good():
    assert launch(good).item() == 7
    assert launch(good).is_cuda


def test_host_code_sees_the_card():
    target = triton.runtime.driver.active.get_current_target()
    found = torch.cuda.get_device_properties(0)
    assert (target.arch, target.warp_size, found.gcnArchName.split(":")[0], found.warp_size) == ("gfx942", 64, "gfx942", 64)
    assert torch.cuda.get_device_capability() == (9, 4)
    assert torch.version.hip
    assert Path.home().name.startswith(".home-")  # what a package stores there is of a card that does not exist


def test_wrong():
    assert launch(good).item() == 8


def test_unknown():
    launch(unknown)


def test_unknown_and_caught():
    with pytest.raises(Exception, match="not implemented"):
        launch(unknown)


def test_endless():
    launch(good)
    launch(endless)


def test_outside():
    launch(outside)


def test_prints():
    launch(prints)


def test_after():
    assert launch(good).item() == 7


@torch.library.custom_op("ends::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device)
    return out.copy_(x * 2)


@twice.register_fake
def _(x):
    return torch.empty_like(x)


twice.register_autograd(lambda context, grad: twice(grad))


def test_a_compiled_backward_is_on_the_card():
    x = torch.ones(4, device="cuda", requires_grad=True)
    out = torch.compile(lambda x: twice(x), fullgraph=True, backend="aot_eager")(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert (out.is_cuda, grad.is_cuda, grad.tolist()) == (True, True, [2.0] * 4)
