"""GELU against float64."""

from __future__ import annotations

import pytest
import torch
from gelu import gelu

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def pytorch(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def check(judge, x, out=None):
    expected, reference = pytorch(x), pytorch(x.double())
    judge(gelu(x, out=out), expected, reference)


def shape_id(shape):
    return "x".join(map(str, shape)) or "scalar"


@pytest.mark.parametrize("shape", [(1,), (127,), (2049,), (33, 5, 7), (), (0, 4)], ids=shape_id)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(dtype, shape, device, judge, poisoned):
    x = (3 * torch.randn(shape, device=device)).to(DTYPES[dtype])
    check(judge, x, poisoned(x))


def test_a_large_matrix(device, judge, poisoned):
    x = 3 * torch.randn(1823, 781, device=device)
    check(judge, x, poisoned(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tails_neither_overflow_nor_vanish(dtype, device, judge):
    check(judge, torch.linspace(-60, 60, 4001, device=device).to(DTYPES[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_results_keep_their_digits(dtype, device):
    """Relative, where the judge is absolute: the bend near zero and the negative tail, down to 1e-5."""
    x = torch.cat([torch.linspace(-4.5, -1, 997, device=device), 10.0 ** torch.arange(-5, 0, device=device)])
    x = x.to(DTYPES[dtype])
    reference = pytorch(x.double())
    assert ((gelu(x).double() / reference - 1).abs() < 50 * torch.finfo(DTYPES[dtype]).eps).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_nan_and_the_largest_numbers(dtype, device, judge, poisoned):
    inf, large = float("inf"), torch.finfo(DTYPES[dtype]).max
    x = torch.tensor([inf, -inf, float("nan"), 0.0, -0.0, large, -large], device=device, dtype=DTYPES[dtype])
    check(judge, x, poisoned(x))


def test_strides_are_free(device, judge):
    check(judge, torch.randn(64, 48, device=device).t()[::3])


def test_out_may_be_the_input(device, judge):
    x = torch.randn(4099, device=device)
    check(judge, x, x)


def test_other_dtypes_are_refused(device):
    with pytest.raises(ValueError, match="fp32, fp16 and bf16"):
        gelu(torch.ones(1, device=device, dtype=torch.float64))


@pytest.mark.parametrize(
    "like",
    [lambda x: x.new_zeros(5), lambda x: x.half(), lambda x: x.new_zeros(8)[::2]],
    ids=["shape", "dtype", "strides"],
)
def test_an_out_that_does_not_fit_is_refused(like, device):
    x = torch.zeros(4, device=device)
    with pytest.raises(ValueError, match="out must be"):
        gelu(x, out=like(x))
