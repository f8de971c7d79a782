"""Row softmax against float64, both designs, at the sizes this project grew from and at ugly ones."""

from __future__ import annotations

import pytest
import torch
from softmax import MAX_COLUMNS, softmax, softmax_persistent, softmax_unfused

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
DESIGNS = {"row": softmax, "persistent": softmax_persistent}
INF = float("inf")


def shape_id(shape):
    return "x".join(map(str, shape))


@pytest.fixture(params=DESIGNS)
def design(request):
    return DESIGNS[request.param]


@pytest.mark.parametrize("shape", [(1823, 781), (4097, 311)], ids=shape_id)
def test_sizes_we_grew_from(shape, design, device, judge, poisoned):
    x = torch.randn(shape, device=device)
    judge(design(x, out=poisoned(x)), torch.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (3, 127), (7, 1000), (2, 4099), (1, MAX_COLUMNS), (3, 2, 65), (129,)], ids=shape_id)
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(dtype, shape, design, device, judge, poisoned):
    x = torch.randn(shape, device=device, dtype=DTYPES[dtype]) * 4
    judge(design(x, out=poisoned(x)), torch.softmax(x, -1), torch.softmax(x.double(), -1))


def test_rows_with_infinities_and_nan_are_as_in_pytorch(design, device, judge):
    x = torch.randn(6, 33, device=device)
    x[0] = -INF
    x[1, :32] = -INF
    x[2, 3] = float("nan")
    x[3, 5] = INF
    x[4] = 3e38
    judge(design(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))


def test_large_values_do_not_overflow(design, device, judge):
    x = torch.randn(4, 100, device=device) + 1e4
    judge(design(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 3:], lambda x: x[:1].expand(9, -1)])
def test_strides_are_free(view, design, device, judge):
    x = view(torch.randn(37, 53, device=device))
    judge(design(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3)], ids=shape_id)
def test_nothing_to_do(shape, design, device):
    assert design(torch.empty(shape, device=device)).shape == shape


def test_unfused_is_a_softmax(device, judge):
    x = torch.randn(50, 70, device=device)
    judge(softmax_unfused(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize(
    ("x", "dim", "message"),
    [(torch.ones(2, 3), 0, "last dimension"), (torch.tensor(1.0), -1, "last dimension"), (torch.ones(1, MAX_COLUMNS + 1), -1, "at most")],
    ids=["dim", "scalar", "too-long"],
)
def test_what_does_not_fit_is_refused(x, dim, message, design, device):
    with pytest.raises(ValueError, match=message):
        design(x.to(device), dim)
