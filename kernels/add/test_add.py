"""Addition and its gradients against float64, at common sizes and at awkward ones."""

import pytest
import torch

from kernels.add import add
from kernels.add.add import _add

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("size", [1, 2, 127, 1021, 2047, 2048, 2049, 98432])
@pytest.mark.parametrize("dtype", DTYPES)
def test_add(dtype, size, device, compare):
    compare(add, torch.add, *(torch.randn(size, device=device).to(DTYPES[dtype]) for _ in range(2)))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (), (3, 0, 5), (7, 11, 13)], ids=str)
def test_any_rank_and_no_elements(shape, device, compare):
    compare(add, torch.add, torch.randn(shape, device=device), torch.randn(shape, device=device), alpha=-0.3)


@pytest.mark.parametrize(("left", "right"), [((7, 1, 5), (3, 1)), ((1,), (4, 9)), ((), (3,)), ((2, 0), (1, 1))], ids=str)
def test_shapes_broadcast(left, right, device, compare):
    compare(add, torch.add, torch.randn(left, device=device), torch.randn(right, device=device))


def test_strides_are_free_and_kept(device, compare):
    x = torch.randn(7, 5, 11, device=device).transpose(0, 2)
    y = torch.randn(22, 5, 9, device=device)[::2, :, 1:8]
    compare(add, torch.add, x, y)
    assert add(x, y).stride() == torch.add(x, y).stride()


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_nan_and_the_largest_numbers(dtype, device, compare):
    inf, large = float("inf"), torch.finfo(DTYPES[dtype]).max
    x = torch.tensor([inf, -inf, float("nan"), inf, large, large, -0.0], device=device, dtype=DTYPES[dtype])
    y = torch.tensor([1.0, 1.0, 1.0, -inf, large, -large, 0.0], device=device, dtype=DTYPES[dtype])
    compare(add, torch.add, x, y)


def test_more_elements_than_32_bits_count(roomy_device):
    size, tail = 2**31 + 4099, 8192
    x = torch.zeros(size, device=roomy_device, dtype=torch.bfloat16)
    x[-tail:] = torch.randn(tail, device=roomy_device)
    out = add(x, x)
    assert torch.equal(out[-tail:], x[-tail:] + x[-tail:])
    assert out[0] == 0


def test_it_is_a_registered_op(device, registered):
    x, y = torch.randn(5, 4, device=device, requires_grad=True), torch.randn(5, 4, device=device, requires_grad=True)
    registered(add, _add, (x, torch.randn(4, device=device)), (x, y, 0.5))


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (torch.zeros(3), torch.zeros(4), RuntimeError, "must match"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.float16), RuntimeError, "one dtype on one device"),
        (torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), NotImplementedError, "fp32, fp16 and bf16"),
    ],
    ids=["shape", "dtype", "integers"],
)
def test_what_it_does_not_take_is_refused(x, y, error, message, device):
    with pytest.raises(error, match=message):
        add(x.to(device), y.to(device))
