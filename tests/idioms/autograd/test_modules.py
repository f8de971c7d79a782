"""torch.nn.Module around kernels."""

import copy

import pytest
import torch
from small_kernels import add, scale
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scale(x, 0.5)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad.contiguous(), 0.5)


class Layer(nn.Module):
    def __init__(self, width, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.register_buffer("offset", torch.zeros(width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        return Scaled.apply(x) * self.weight + self.offset


def test_a_module_moved_to_the_card():
    layer = Layer(64).cuda()
    assert next(layer.parameters()).is_cuda
    x = torch.randn(16, 64, device="cuda")
    torch.testing.assert_close(layer(x), x / 2)


def test_a_module_made_on_the_card():
    layer = Layer(64, device="cuda", dtype=torch.float16)
    assert layer.weight.device.type == layer.offset.device.type == "cuda"
    x = torch.ones(16, 64, device="cuda", dtype=torch.float16)
    assert (layer(x) == 0.5).all()


def test_a_module_moved_and_cast():
    layer = Layer(64).to(device="cuda", dtype=torch.bfloat16)
    assert layer.weight.dtype == torch.bfloat16
    assert layer.weight.is_cuda
    assert layer.offset.is_cuda
    assert (layer(torch.ones(16, 64, device="cuda", dtype=torch.bfloat16)) == 0.5).all()


def test_gradients_of_parameters():
    layer = Layer(64, device="cuda")
    x = torch.randn(16, 64, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, (x.detach() / 2).sum(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(x.grad, torch.full_like(x, 0.5))


def test_the_state_of_a_module(tmp_path):
    layer, other = Layer(64, device="cuda"), nn.Sequential(Layer(64)).cuda()
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other[0].load_state_dict(torch.load(tmp_path / "layer.pt", map_location="cuda"))
    x = torch.randn(16, 64, device="cuda")
    torch.testing.assert_close(other(x), layer(x))


def test_a_copy_as_the_reference():
    ours = Layer(64, device="cuda")
    theirs = copy.deepcopy(ours)
    x = torch.randn(16, 64, device="cuda")
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_step_of_an_optimizer():
    layer = Layer(64, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(16, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.testing.assert_close(layer.weight.detach(), torch.full((64,), 1 - 0.8, device="cuda"))


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_a_step_of_a_fused_optimizer(name):
    layers = [Layer(64, device="cuda") for _ in range(2)]
    for layer, fused in zip(layers, (True, False), strict=True):
        optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, fused=fused)
        layer(torch.ones(16, 64, device="cuda")).sum().backward()
        optimizer.step()
    ours, theirs = (layer(torch.ones(16, 64, device="cuda")) for layer in layers)
    torch.testing.assert_close(ours, theirs)


def test_a_file_from_the_host_loaded_to_the_card(tmp_path):
    torch.save({"weight": torch.ones(300)}, tmp_path / "weights.pt")
    weight = torch.load(tmp_path / "weights.pt", map_location="cuda")["weight"]
    assert weight.is_cuda
    assert (scale(weight, 2.0) == 2).all()


class Counting(nn.Module):
    """Has a buffer of whole numbers, which `to` moves without a dtype."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(300))
        self.register_buffer("steps", torch.zeros(4, dtype=torch.int64))

    def forward(self, x):
        return add(x, self.weight)


def test_a_buffer_of_whole_numbers_moves_with_its_module():
    module = Counting().to("cuda", torch.float16)
    assert module.steps.is_cuda
    assert module.steps.dtype == torch.int64
    assert module.weight.dtype == torch.float16
    x = torch.ones(300, device="cuda", dtype=torch.float16)
    assert (module(x) == 2).all()
