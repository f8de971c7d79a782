"""Vector addition against float64, at the size that users know it by and at ugly ones."""

from __future__ import annotations

import pytest
import torch
from add import add

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("size", [1, 2, 127, 1021, 2047, 2048, 2049, 98432])
@pytest.mark.parametrize("dtype", DTYPES)
def test_add(dtype, size, device, judge, poisoned):
    x, y = (torch.randn(size, device=device).to(DTYPES[dtype]) for _ in range(2))
    judge(add(x, y, out=poisoned(x)), x + y, x.double() + y.double())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (), (3, 0, 5), (7, 11, 13)], ids=str)
def test_any_rank_and_no_elements(shape, device, judge, poisoned):
    x, y = torch.randn(shape, device=device), torch.randn(shape, device=device)
    judge(add(x, y, out=poisoned(x)), x + y, x.double() + y.double())
    judge(add(x, y), x + y, x.double() + y.double())


def test_strides_are_free(device, judge):
    x = torch.randn(7, 5, 11, device=device).transpose(0, 2)
    y = torch.randn(22, 5, 9, device=device)[::2, :, 1:8]
    judge(add(x, y), x + y, x.double() + y.double())


def test_out_may_be_an_input(device, judge):
    x, y = torch.randn(4099, device=device), torch.randn(4099, device=device)
    pytorch, reference = x + y, x.double() + y.double()
    judge(add(x, y, out=x), pytorch, reference)


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_nan_and_the_largest_numbers(dtype, device, judge, poisoned):
    inf, large = float("inf"), torch.finfo(DTYPES[dtype]).max
    x = torch.tensor([inf, -inf, float("nan"), inf, large, large, -0.0], device=device, dtype=DTYPES[dtype])
    y = torch.tensor([1.0, 1.0, 1.0, -inf, large, -large, 0.0], device=device, dtype=DTYPES[dtype])
    judge(add(x, y, out=poisoned(x)), x + y, x.double() + y.double())


def test_more_elements_than_32_bits_count(roomy_device):
    size, tail = 2**31 + 4099, 8192
    x = torch.zeros(size, device=roomy_device, dtype=torch.bfloat16)
    x[-tail:] = torch.randn(tail, device=roomy_device)
    out = add(x, x, out=torch.full_like(x, float("nan")))
    assert torch.equal(out[-tail:], x[-tail:] + x[-tail:])
    assert out[0] == 0


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3), torch.zeros(4), "one shape, dtype and device"),
        (torch.zeros(3), torch.zeros(3, 1), "one shape, dtype and device"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.float16), "one shape, dtype and device"),
        (torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), "fp32, fp16 and bf16"),
    ],
    ids=["shape", "rank", "dtype", "integers"],
)
def test_what_does_not_fit_is_refused(x, y, message, device):
    with pytest.raises(ValueError, match=message):
        add(x.to(device), y.to(device))


@pytest.mark.parametrize(
    "like",
    [lambda x: x.new_zeros(5), lambda x: x.half(), lambda x: x.new_zeros(8)[::2]],
    ids=["shape", "dtype", "strides"],
)
def test_an_out_that_does_not_fit_is_refused(like, device):
    x = torch.zeros(4, device=device)
    with pytest.raises(ValueError, match="out must be"):
        add(x, x, out=like(x))
