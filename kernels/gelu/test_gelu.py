"""GELU against float64."""

from __future__ import annotations

import pytest
import torch
from gelu import gelu

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def reference(x):
    return torch.nn.functional.gelu(x.double(), approximate="tanh")


def pytorch(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


@pytest.mark.parametrize("shape", [(1,), (127,), (1823, 781), (33, 5, 7)], ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(dtype, shape, device, judge, poisoned):
    x = torch.randn(shape, device=device, dtype=DTYPES[dtype]) * 3
    judge(gelu(x, out=poisoned(x)), pytorch(x), reference(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tails_neither_overflow_nor_vanish(dtype, device, judge):
    x = torch.linspace(-60, 60, 4001, device=device).to(DTYPES[dtype])
    judge(gelu(x), pytorch(x), reference(x))


def test_special_values_are_as_in_pytorch(device):
    x = torch.tensor([float("inf"), float("nan"), 0.0, -0.0], device=device)
    assert torch.equal(gelu(x).nan_to_num(7.0, posinf=9.0), pytorch(x).nan_to_num(7.0, posinf=9.0))


def test_strides_are_free(device, judge):
    x = torch.randn(64, 48, device=device).t()[::3]
    judge(gelu(x), pytorch(x), reference(x))


def test_nothing_to_do(device):
    assert gelu(torch.empty(0, 4, device=device)).shape == (0, 4)


def test_other_approximations_are_refused(device):
    with pytest.raises(ValueError, match="tanh"):
        gelu(torch.ones(1, device=device), approximate="none")
