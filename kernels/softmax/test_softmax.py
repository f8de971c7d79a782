"""Row softmax against float64, both designs, at the sizes that users know it by and at ugly ones."""

from __future__ import annotations

import pytest
import torch
from softmax import MAX_COLUMNS, softmax, softmax_persistent, softmax_unfused

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INF = float("inf")


def check(judge, design, x, out=None):
    expected, reference = torch.softmax(x, -1), torch.softmax(x.double(), -1)
    judge(design(x, out=out), expected, reference)


def shape_id(shape):
    return "x".join(map(str, shape)) or "scalar"


@pytest.fixture(params=[softmax, softmax_persistent], ids=["row", "persistent"])
def design(request):
    return request.param


UGLY = [(1, 1), (5, 1), (1, 2), (3, 127), (23, 257), (7, 1000), (2, 4099), (1, MAX_COLUMNS), (3, 2, 65), (129,), ()]


@pytest.mark.parametrize("shape", [(1823, 781), (4097, 311)], ids=shape_id)
@pytest.mark.parametrize("dtype", ["fp32"])
def test_softmax(dtype, shape, device, judge, poisoned):
    x = torch.randn(shape, device=device).to(DTYPES[dtype])
    check(judge, softmax, x, poisoned(x))


@pytest.mark.parametrize("shape", [(1823, 781), (4097, 311)], ids=shape_id)
@pytest.mark.parametrize("dtype", ["fp32"])
def test_softmax_persistent(dtype, shape, device, judge, poisoned):
    x = torch.randn(shape, device=device).to(DTYPES[dtype])
    check(judge, softmax_persistent, x, poisoned(x))


@pytest.mark.parametrize("shape", UGLY, ids=shape_id)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ugly_shapes(dtype, shape, design, device, judge, poisoned):
    x = (4 * torch.randn(shape, device=device)).to(DTYPES[dtype])
    check(judge, design, x, poisoned(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_infinities_and_nan_are_as_in_pytorch(dtype, design, device, judge, poisoned):
    x = torch.randn(6, 33, device=device).to(DTYPES[dtype])
    x[0] = -INF
    x[1, :32] = -INF
    x[2, 3] = float("nan")
    x[3, 5] = INF
    x[4, ::2] = -INF
    check(judge, design, x, poisoned(x))


@pytest.mark.parametrize("scale", [1e-30, 1e4, 3e37], ids=str)
def test_huge_and_tiny_magnitudes(scale, design, device, judge):
    check(judge, design, scale * torch.randn(4, 100, device=device))


def test_a_common_shift_does_not_overflow(design, device, judge):
    check(judge, design, torch.randn(4, 100, device=device) + 1e4)


VIEWS = {
    "transposed": lambda x: x.t(),
    "every-second-column": lambda x: x[:, ::2],
    "every-second-row": lambda x: x[::2],
    "inner-block": lambda x: x[1:, 3:],
    "one-column": lambda x: x[:, 5:6],
    "expanded": lambda x: x[:1].expand(9, -1),
    "3d-permuted": lambda x: x[:36].view(4, 9, 53).permute(1, 0, 2),
}


@pytest.mark.parametrize("view", VIEWS)
def test_strides_are_free(view, design, device, judge, poisoned):
    x = VIEWS[view](torch.randn(37, 53, device=device))
    check(judge, design, x, poisoned(x))


def test_out_may_be_the_input(design, device, judge):
    x = torch.randn(19, 300, device=device)
    check(judge, design, x, x)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3), (0,)], ids=shape_id)
def test_nothing_to_do(shape, design, device):
    assert design(torch.empty(shape, device=device)).shape == shape


def test_more_elements_than_32_bits_count(design, roomy_device):
    x = torch.zeros(2**16 + 3, MAX_COLUMNS, device=roomy_device, dtype=torch.bfloat16)
    x[-4:] = torch.randn(4, MAX_COLUMNS, device=roomy_device)
    out = design(x, out=torch.full_like(x, float("nan")))
    torch.testing.assert_close(out[-4:], torch.softmax(x[-4:], -1))
    torch.testing.assert_close(out[0], torch.softmax(x[0], -1))


def test_the_baseline_is_a_softmax(device, judge):
    check(judge, lambda x, out: softmax_unfused(x), torch.randn(50, 70, device=device))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(1, MAX_COLUMNS + 1), f"at most {MAX_COLUMNS} columns"),
        (torch.ones(2, 3).double(), "fp32, fp16 and bf16"),
    ],
    ids=["too-long", "float64"],
)
def test_what_does_not_fit_is_refused(x, message, design, device):
    with pytest.raises(ValueError, match=message):
        design(x.to(device))


@pytest.mark.parametrize(
    "out",
    [torch.zeros(2, 5), torch.zeros(2, 4).half(), torch.zeros(4, 2).t()],
    ids=["shape", "dtype", "strides"],
)
def test_an_out_that_does_not_fit_is_refused(out, design, device):
    with pytest.raises(ValueError, match="out must be"):
        design(torch.zeros(2, 4, device=device), out=out.to(device))
