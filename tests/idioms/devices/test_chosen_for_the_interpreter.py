"""Tests that take the host where kernels are interpreted."""

import os

import torch
from small_kernels import add, scale

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def test_a_device_by_the_interpreter():
    assert (scale(torch.ones(300, device=DEVICE), 2.0) == 2).all()


def test_a_factory_without_a_device():
    assert (scale(torch.ones(300).to(DEVICE), 2.0) == 2).all()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return scale(x, 2.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return add(grad.contiguous(), scale(x, 0.0)) + grad


def test_a_gradient_there():
    x = torch.randn(300, device=DEVICE, requires_grad=True)
    (Doubled.apply(x) * 1.5).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))
