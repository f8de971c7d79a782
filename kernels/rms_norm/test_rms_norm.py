"""Root mean square normalization and its gradients against float64. Code shared with layer_norm is tested there."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from kernels import norm
from kernels.configs import choose
from kernels.rms_norm import rms_norm
from kernels.rms_norm.rms_norm import _rms_norm, _rms_norm_backward

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def weight_of(shape, dtype, device):
    return (1 + 0.5 * torch.randn(shape, device=device)).to(dtype)


@pytest.fixture
def long_rows(monkeypatch):
    """Send all rows to the kernels for long ones, in steps of 256 columns, so that few columns make several steps and a tail."""
    config = choose(norm.RMS_NORM)
    tile = dataclasses.replace(config.forward_long, elements=256, warps=4)
    sums = dataclasses.replace(config.column_sums, columns=64, elements=512)
    config = dataclasses.replace(config, forward=(), backward=(), forward_long=tile, backward_long=tile, column_sums=sums)
    monkeypatch.setattr(norm, "RMS_NORM", {"*": dataclasses.replace(config, forward_parts=None, backward_rings=())})


@pytest.mark.parametrize("shape", [(1, 1), (3, 7, 64), (11, 257), (2, 1100)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(dtype, shape, device, compare):
    x = torch.randn(shape, device=device).to(DTYPES[dtype])
    compare(rms_norm, F.rms_norm, x, shape[-1:], weight_of(shape[-1:], x.dtype, device), eps=1e-5)


@pytest.mark.parametrize("shape", [(3, 512), (9, 259)], ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_long_rows(dtype, shape, long_rows, device, compare):
    x = torch.randn(shape, device=device).to(DTYPES[dtype])
    compare(rms_norm, F.rms_norm, x, shape[-1:], weight_of(shape[-1:], x.dtype, device), eps=1e-5)
    compare(rms_norm, F.rms_norm, x, shape[-1:], eps=1e-5)


@pytest.mark.parametrize("columns", [40_000, 65_536, 131_080])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_longer_than_registers(dtype, columns, roomy_device, compare):
    x = torch.randn(700, columns, device=roomy_device).to(DTYPES[dtype])
    compare(rms_norm, F.rms_norm, x, (columns,), weight_of((columns,), x.dtype, roomy_device), eps=1e-5)


def test_strides_several_dimensions_and_no_weight(device, compare):
    x = torch.randn(6, 10, 14, device=device)
    compare(rms_norm, F.rms_norm, x, (10, 14), weight_of((10, 14), x.dtype, device), eps=0.1)
    compare(rms_norm, F.rms_norm, x[..., :7], (7,), weight_of((7,), x.dtype, device), eps=1e-5)
    compare(rms_norm, F.rms_norm, x.transpose(0, 2), (6,), eps=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eps_is_that_of_fp32_if_none_is_given(dtype, device):
    """On rows so small that another eps, such as that of bf16, would change the result."""
    x = (1e-3 * torch.randn(4, 40, device=device)).to(DTYPES[dtype])
    torch.testing.assert_close(rms_norm(x, (40,)), F.rms_norm(x, (40,), eps=2**-23))
    torch.testing.assert_close(rms_norm(x, (40,)), F.rms_norm(x, (40,)))


def test_a_weight_in_fp32_of_rows_in_bf16(device, judge):
    x, weight = torch.randn(9, 33, device=device).bfloat16(), weight_of((33,), torch.float32, device).requires_grad_()
    out = rms_norm(x, (33,), weight, 1e-5)
    reference = F.rms_norm(x.double(), (33,), weight.double(), 1e-5)
    judge(out.detach(), reference.detach().bfloat16(), reference.detach())
    grad = torch.randn_like(out)
    exact = torch.autograd.grad(reference, weight, grad.double())[0]
    torch.testing.assert_close(torch.autograd.grad(out, weight, grad)[0], exact, rtol=1e-5, atol=1e-5)


def by_definition(x, shape):
    """PyTorch's own kernels differ in how an infinity affects the rest of its row."""
    return x / (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()


def test_infinities_and_nan_stay_in_their_row(device, compare):
    x = torch.randn(4, 33, device=device)
    x[1, 3], x[2, 0] = float("inf"), float("nan")
    compare(rms_norm, by_definition, x, (33,), gradients=False)


def test_autocast_computes_and_returns_fp32(device):
    x, weight = torch.randn(3, 16, device=device).bfloat16(), weight_of((16,), torch.bfloat16, device)
    with torch.autocast(device.type, torch.bfloat16):
        out = rms_norm(x, (16,), weight)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, F.rms_norm(x.float(), (16,), weight.float()))


def test_it_is_a_registered_op(device, registered):
    x, weight = (torch.randn(shape, device=device).requires_grad_() for shape in ((5, 12), (12,)))
    registered(lambda x, w: rms_norm(x, (12,), w), _rms_norm, (x, weight), (x, weight, 12, 1e-5))
    statistics = _rms_norm.registered(x.detach(), None, 12, 1e-5)[1]
    torch.library.opcheck(_rms_norm_backward.registered, (x.detach(), x.detach(), weight.detach(), statistics, [True, True]))


def test_what_it_does_not_take_is_refused(device):
    x = torch.ones(4, 8, device=device)
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        rms_norm(x.double(), (8,))
    with pytest.raises(RuntimeError, match="normalized_shape"):
        rms_norm(x, (4,))
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape"):
        rms_norm(x, (8,), x[:, 0])
