"""GELU and its gradient against float64, both forms."""

import pytest
import torch
from torch.nn import functional as F

from kernels.gelu import gelu
from kernels.gelu.gelu import _gelu, _gelu_backward

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture(params=["none", "tanh"])
def approximate(request):
    return request.param


def shape_id(shape):
    return "x".join(map(str, shape)) or "scalar"


@pytest.mark.parametrize("shape", [(1,), (127,), (2049,), (33, 5, 7), (), (0, 4)], ids=shape_id)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(dtype, shape, approximate, device, compare):
    x = (3 * torch.randn(shape, device=device)).to(DTYPES[dtype])
    compare(gelu, F.gelu, x, approximate=approximate)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tails_neither_overflow_nor_vanish(dtype, approximate, device, compare):
    compare(gelu, F.gelu, torch.linspace(-60, 60, 4001, device=device).to(DTYPES[dtype]), approximate=approximate)


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_results_keep_their_digits(dtype, approximate, device):
    """Relative errors, while the usual judge is absolute: near zero and in the negative tail, within 1e-5 or as good as PyTorch."""
    x = torch.cat([torch.linspace(-4.5, -1, 997, device=device), 10.0 ** torch.arange(-5, 0, device=device)])
    x = x.to(DTYPES[dtype])
    reference = F.gelu(x.double(), approximate=approximate)
    ours, pytorch = ((f(x, approximate=approximate).double() / reference - 1).abs() for f in (gelu, F.gelu))
    assert (ours < 50 * torch.finfo(DTYPES[dtype]).eps + 2 * pytorch).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_nan_and_the_largest_numbers(dtype, approximate, device, compare):
    inf, large = float("inf"), torch.finfo(DTYPES[dtype]).max
    x = torch.tensor([inf, -inf, float("nan"), 0.0, -0.0, large, -large], device=device, dtype=DTYPES[dtype])
    compare(gelu, F.gelu, x, gradients=False, approximate=approximate)


@pytest.mark.parametrize("dtype", DTYPES)
def test_far_from_zero_the_gradient_is_the_limit(dtype, approximate, device):
    """PyTorch has NaN at infinity, and in the tanh form from the root of the largest number on."""
    far = [17.0, 1e4, 1e12, 1e13, 1e18, 1e20, 1e30, torch.finfo(DTYPES[dtype]).max, float("inf")]
    x = torch.tensor([*far, *(-each for each in far), float("nan")], device=device).to(DTYPES[dtype]).requires_grad_()
    gelu(x, approximate=approximate).backward(torch.ones_like(x))
    assert x.grad[: len(far)].eq(1).all() and x.grad[len(far) : -1].eq(0).all() and x.grad[-1].isnan()


def test_strides_are_free_and_kept(approximate, device, compare):
    x = torch.randn(64, 48, device=device)
    compare(gelu, F.gelu, x.t()[::3], approximate=approximate)
    compare(gelu, F.gelu, x[:, :1].expand(-1, 5), approximate=approximate)
    assert gelu(x.t(), approximate=approximate).stride() == x.t().stride()


def test_it_is_a_registered_op(approximate, device, registered):
    tanh = approximate == "tanh"
    x = torch.randn(5, 4, device=device, requires_grad=True)
    registered(lambda x: gelu(x, approximate=approximate), _gelu, (x,), (x, tanh))
    torch.library.opcheck(_gelu_backward.registered, (torch.randn(4, 5, device=device).t(), x.detach(), tanh))


def test_what_it_does_not_take_is_refused(device):
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        gelu(torch.ones(1, device=device, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="either none or tanh"):
        gelu(torch.ones(1, device=device), approximate="sigmoid")
