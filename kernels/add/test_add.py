"""Vector addition against float64, at the size this project grew from and at ugly ones."""

from __future__ import annotations

import pytest
import torch
from add import add

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("size", [1, 127, 1023, 1024, 1025, 98432])
@pytest.mark.parametrize("dtype", DTYPES)
def test_add(dtype, size, device, judge, poisoned):
    x, y = (torch.randn(size, device=device, dtype=DTYPES[dtype]) for _ in range(2))
    out = add(x, y, out=poisoned(x))
    judge(out, x + y, x.double() + y.double())


def test_nothing_to_add(device):
    assert add(torch.empty(0, 3, device=device), torch.empty(0, 3, device=device)).shape == (0, 3)


def test_any_rank_and_strides(device, judge):
    x, y = torch.randn(7, 5, 11, device=device).transpose(0, 2), torch.randn(22, 5, 7, device=device)[::2]
    judge(add(x, y), x + y, x.double() + y.double())


def test_infinities_and_nan_are_as_in_pytorch(device, judge):
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), float("inf"), 3e38], device=device)
    y = torch.tensor([1.0, 1.0, 1.0, float("-inf"), 3e38], device=device)
    assert torch.equal(add(x, y).nan_to_num(7.0), (x + y).nan_to_num(7.0))


@pytest.mark.parametrize(
    ("x", "y"),
    [(torch.zeros(3), torch.zeros(4)), (torch.zeros(3), torch.zeros(3, dtype=torch.float16)), (torch.zeros(3), torch.zeros(3, 1))],
    ids=["shape", "dtype", "rank"],
)
def test_what_does_not_fit_is_refused(x, y, device):
    with pytest.raises(ValueError, match="one shape, dtype and device"):
        add(x.to(device), y.to(device))
