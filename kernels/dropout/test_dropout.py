"""Dropout against its definition: kept elements are scaled, the right share is dropped, and the backward uses the same mask."""

import math

import pytest
import torch
from torch.nn import functional as F

from kernels.dropout import dropout
from kernels.dropout.dropout import _dropout

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("shape", [(1,), (4095,), (4097,), (33, 5, 7), (), (0, 4)], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_kept_is_scaled_and_the_gradient_has_the_same_mask(dtype, p, shape, device, judge):
    x = (torch.randn(shape, device=device) + 10).to(DTYPES[dtype]).requires_grad_()
    out = dropout(x, p)
    kept, grad = out.detach() != 0, torch.randn(shape, device=device).to(x.dtype)
    judge(out.detach(), (x / (1 - p) * kept).detach(), (x.double() / (1 - p) * kept).detach())
    judge(torch.autograd.grad(out, x, grad)[0], grad / (1 - p) * kept, grad.double() / (1 - p) * kept, "grad0")


@pytest.mark.parametrize("p", [0.01, 0.3, 0.75])
def test_as_many_are_dropped_as_asked_for(p, device):
    """Within five standard deviations of the binomial distribution, in total and for every residue of an element's place."""
    n = 1 << 18
    dropped = dropout(torch.ones(n, device=device), p) == 0
    for part in (dropped, *dropped.view(-1, 8).t(), *dropped.view(8, -1)):
        deviation = math.sqrt(part.numel() * p * (1 - p))
        assert abs(part.sum().item() - part.numel() * p) < 5 * deviation


def test_the_smallest_probability_and_one_below_it_keep_everything(device):
    """Thresholds of 1 and 0, for which Triton specializes."""
    x = torch.randn(300, device=device)
    for p in (2.0**-32, 2.0**-34):
        assert torch.equal(dropout(x, p), x)


def test_neighbours_are_dropped_independently(device):
    """The mask is uncorrelated with itself at every distance that occurs in the kernel's layout."""
    dropped = (dropout(torch.ones(1 << 18, device=device), 0.5) == 0).float() - 0.5
    for distance in (1, 2, 4, 128, 512, 1024, 2048, 4096, 8192):
        correlation = 4 * (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(correlation) < 5 / math.sqrt(dropped.numel()), f"at distance {distance}"


def test_the_seed_of_torch_repeats_it_and_no_two_calls_are_alike(device):
    x = torch.ones(5000, device=device)
    torch.manual_seed(1)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(1)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, second)


def test_the_gradient_may_lie_otherwise_than_the_output(device):
    x = torch.randn(70, 90, device=device).t().requires_grad_()
    out = dropout(x, 0.4)
    grad = torch.randn(90, 70, device=device)
    expected = grad / 0.6 * (out != 0)
    torch.testing.assert_close(torch.autograd.grad(out, x, grad)[0], expected)
    assert out.stride() == x.stride()


def test_what_is_dropped_of_infinity_is_nan_as_in_pytorch(device):
    x = torch.tensor([float("inf"), float("nan"), 1.0] * 40, device=device)
    assert torch.equal(dropout(x, 1.0).isnan(), F.dropout(x, 1.0).isnan())
    assert set(dropout(x, 0.5)[2::3].tolist()) == {0.0, 2.0}


def test_identity_outside_of_training_and_in_place_on_request(device):
    x = torch.randn(100, device=device)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    out = dropout(x, 0.5, inplace=True)
    assert out is x and 0 < (x == 0).sum() < 100


def test_more_elements_than_32_bits_count(roomy_device):
    x = torch.ones(2**31 + 4099, device=roomy_device, dtype=torch.bfloat16)
    tail = dropout(x, 0.25)[-(1 << 20) :]
    assert abs((tail == 0).float().mean().item() - 0.25) < 0.003
    assert set(tail.unique().tolist()) == {0.0, torch.tensor(4 / 3).bfloat16().item()}


def test_it_is_a_registered_op(device, registered):
    seed = torch.tensor([5], device=device)
    x = torch.randn(40, 30, device=device, requires_grad=True)
    registered(lambda x: _dropout(x, seed, 0.3), _dropout, (x,), (x, seed, 0.3))
    whole = torch.compile(dropout, fullgraph=True, backend="aot_eager")
    assert 0 < (whole(x) == 0).sum() < x.numel()


def test_what_it_does_not_take_is_refused(device):
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        dropout(torch.ones(1, device=device, dtype=torch.float64))
    with pytest.raises(ValueError, match="between 0 and 1"):
        dropout(torch.ones(1, device=device), 1.5)
