"""Gradients that torch computes in other ways: what a checkpoint runs twice, and what torch.func wraps."""

import pytest
import torch
from small_kernels import add, scale
from torch.utils.checkpoint import checkpoint


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return add(x, x)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad, 2.0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint(reentrant, device):
    x = torch.randn(4, 8, device=device, requires_grad=True)

    def block(x):
        places = torch.arange(8, device=x.device)
        return Doubled.apply(x * places + torch.eye(8, device=x.device)[0]).exp() * x.new_ones(8)

    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    found, x.grad = x.grad, None
    block(x).sum().backward()
    torch.testing.assert_close(found, x.grad)


@pytest.mark.parametrize("transform", ["jvp", "grad"])
def test_a_tensor_that_torch_func_wraps_is_on_the_card(transform, device):
    x, mask = torch.randn(5, 2, device=device), torch.arange(5, device=device) < 3

    def masked(x):
        assert x.is_cuda
        assert x.device == mask.device
        return torch.where(mask[:, None], x, x.detach())

    ways = {
        "jvp": lambda: torch.func.jvp(masked, (x,), (torch.ones_like(x),))[1],
        "grad": lambda: torch.func.grad(lambda x: masked(x).sum())(x),
    }
    found = ways[transform]()
    torch.testing.assert_close(add(found, found), 2 * mask[:, None].expand(5, 2).float())
