"""Softmax, log-softmax and their gradients against float64, at common sizes and at awkward ones."""

import pytest
import torch

from kernels.softmax import log_softmax, softmax
from kernels.softmax.softmax import _softmax, _softmax_backward

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PAIRS = {"softmax": (softmax, torch.softmax), "log_softmax": (log_softmax, torch.log_softmax)}
INF = float("inf")


def shape_id(shape):
    return "x".join(map(str, shape)) or "scalar"


@pytest.fixture(params=PAIRS)
def pair(request):
    """The function, and PyTorch's counterpart."""
    return PAIRS[request.param]


def test_many_rows(pair, device, compare):
    compare(*pair, torch.randn(223, 31, device=device).half(), dim=-1)
    compare(*pair, torch.randn(11, 781, device=device), dim=-1)


# One column, less than 16 bytes, edges only, a body and edges, and lengths that 16 bytes divide or not.
LENGTHS = [(5, 1), (3, 2), (7, 7), (9, 15), (6, 50), (5, 199), (9, 257), (3, 320), (3, 1000), (2, 1012)]
LENGTHS += [(3, 2, 65), (2, 4099), (1, 8192), (129,), ()]
LONG = [(2, 20001), (1, 32768), (2, 33024), (1, 50257)]


@pytest.mark.parametrize("shape", LENGTHS, ids=shape_id)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows(dtype, shape, pair, device, compare):
    compare(*pair, torch.randn(shape, device=device).to(DTYPES[dtype]), dim=-1, gradients=dtype != "bf16")


@pytest.mark.parametrize("shape", LONG, ids=shape_id)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_long_rows(dtype, shape, pair, device, compare):
    compare(*pair, (2 * torch.randn(shape, device=device)).to(DTYPES[dtype]), dim=-1, gradients=False)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [*(("bf16", shape) for shape in (*LENGTHS[2:10], (2, 50257), (2, 300, 5))), *(("fp32", shape) for shape in LONG)],
    ids=lambda value: value if isinstance(value, str) else shape_id(value),
)
def test_gradients_from_pytorchs_result(dtype, shape, pair, device, judge):
    """A different rounding of the result is no error of the gradient: in a long row of fp32, one number decides the worst error.

    Triton's interpreter truncates where bf16 is rounded.
    """
    log, dim = pair[0] is log_softmax, min(len(shape) - 1, 1)
    kind = DTYPES[dtype]
    y = pair[1](torch.randn(shape, device=device).to(kind), dim)
    dy = torch.randn_like(y)
    of_pytorch = torch.ops.aten._log_softmax_backward_data if log else torch.ops.aten._softmax_backward_data
    exact = of_pytorch(dy.double(), y.double(), dim, torch.float64)
    judge(_softmax_backward(dy, y, max(dim, 0), kind, log), of_pytorch(dy, y, dim, kind), exact)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_any_dimension(dim, pair, device, compare):
    compare(*pair, torch.randn(3, 37, 33, device=device), dim=dim)


@pytest.mark.parametrize("shape", [(2, 1031, 40), (2, 3, 300), (1, 300, 2), (2, 9, 1)], ids=shape_id)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_columns(dtype, shape, pair, device, compare):
    compare(*pair, torch.randn(shape, device=device).to(DTYPES[dtype]), dim=1, gradients=dtype != "bf16")


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("n_columns", [33, 37000])
def test_infinities_and_nan_are_as_in_pytorch(n_columns, dim, pair, device, compare):
    x = torch.randn(6, n_columns, device=device)
    x[0] = -INF
    x[1, :32] = -INF
    x[2, 3] = float("nan")
    x[3, 5] = INF
    x[4, ::2] = -INF
    x[5, 1:] = -INF
    compare(*pair, x.movedim(1, dim).contiguous(), dim=dim, gradients=False)


@pytest.mark.parametrize("scale", [1e-30, 1e4, 3e37], ids=str)
def test_huge_and_tiny_magnitudes(scale, pair, device, compare):
    compare(*pair, scale * torch.randn(4, 100, device=device), dim=1)


def test_a_common_shift_does_not_overflow(pair, device, compare):
    compare(*pair, torch.randn(4, 100, device=device) + 1e4, dim=1)
    compare(*pair, torch.full((2, 40000), 3e38, device=device), dim=1)


@pytest.mark.parametrize("n_columns", [3000, 4096, 20000, 131072])
def test_an_element_that_outweighs_its_row(n_columns, device):
    """Each thread adds the others' exponentials to 1, and half a unit beside 1 is lost or gained by every addition."""
    if device.type != "cuda":
        pytest.skip("NumPy adds pairwise")
    x = torch.full((2, n_columns), -16.63, device=device)  # exp(-16.63) is 1.006 halves of a unit of 1
    x[:, 0] = 0.0
    exact = torch.softmax(x.double(), 1)
    assert ((softmax(x, 1) - exact).abs() <= 6 * torch.finfo(torch.float32).eps * exact[:, :1]).all()


VIEWS = {
    "transposed": lambda x: x.t(),
    "every-second-column": lambda x: x[:, ::2],
    "every-second-row": lambda x: x[::2],
    "inner-block": lambda x: x[1:, 3:],
    "one-column": lambda x: x[:, 5:6],
    "off-by-one": lambda x: x.flatten()[1 : 1 + 36 * 48].view(36, 48),
    "broadcast": lambda x: x[:1].expand(9, -1),
    "broadcast-row": lambda x: x[:, :1].expand(-1, 9),
    "3d-permuted": lambda x: x[:36].view(4, 9, 53).permute(1, 0, 2),
}


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("view", VIEWS)
def test_strides_are_free(view, dim, device, compare):
    x = VIEWS[view](torch.randn(37, 53, device=device))
    compare(softmax, torch.softmax, x, dim=dim)
    assert softmax(x, dim).is_contiguous()


def test_gradients_may_be_broadcast(pair, device, compare):
    def total(op):
        return lambda x, dim: (op(x, dim) * torch.linspace(-1, 1, 53, device=device, dtype=x.dtype)).sum(0, keepdim=True).expand(2, -1)

    compare(*map(total, pair), torch.randn(37, 53, device=device), dim=1)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3), (0,)], ids=shape_id)
def test_nothing_to_do(shape, pair, device):
    x = torch.empty(shape, device=device, requires_grad=True)
    out = pair[0](x, 0)
    assert out.shape == shape
    assert torch.autograd.grad(out.sum(), x)[0].shape == shape


@pytest.mark.parametrize(("given", "wanted"), [("bf16", "fp32"), ("fp32", "fp16"), ("bf16", "fp16")])
def test_the_result_may_have_another_dtype(given, wanted, pair, device, compare):
    x = torch.randn(9, 101, device=device).to(DTYPES[given])
    # The float64 reference starts from the rounded input, as PyTorch's own op does.
    ops = [lambda x, dim, op=op: op(x, dim, dtype=x.dtype if x.dtype == torch.float64 else DTYPES[wanted]) for op in pair]
    compare(*ops, x.to(DTYPES[wanted]).to(DTYPES[given]), dim=1, gradients=given != "bf16")
    torch.testing.assert_close(pair[0](x, 1, dtype=DTYPES[wanted]), pair[0](x.to(DTYPES[wanted]), 1))
    whole = pair[0](torch.arange(6, device=device), 0, torch.float32)
    torch.testing.assert_close(whole, pair[1](torch.arange(6, device=device), 0, torch.float32))


def test_autocast_computes_in_fp32(pair, device):
    x = torch.randn(4, 9, device=device, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = pair[0](x, 1)
    assert out.dtype == torch.float32
    assert torch.autograd.grad(out.sum(), x)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("shape", [(5, 12), (5, 7, 3)], ids=shape_id)
def test_it_is_a_registered_op(shape, pair, device, registered):
    log = pair[0] is log_softmax
    x = torch.randn(shape, device=device, requires_grad=True)
    registered(lambda x: pair[0](x, 1), _softmax, (x,), (x, 1, torch.float32, log))
    y = pair[1](x.detach(), 1)
    torch.library.opcheck(_softmax_backward.registered, (torch.randn_like(y), y, 1, torch.float32, log))


def test_more_elements_than_32_bits_count(pair, roomy_device):
    for shape in ((2**16 + 3, 2**15), (2**15 + 3, 2**16 + 1)):
        x = torch.zeros(shape, device=roomy_device, dtype=torch.bfloat16)
        x[-4:] = torch.randn(4, shape[1], device=roomy_device)
        out = pair[0](x, 1)
        for rows in (slice(-4, None), slice(0, 4)):
            torch.testing.assert_close(out[rows], pair[1](x[rows], 1))


def test_what_it_does_not_take_is_refused(pair, device):
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        pair[0](torch.ones(2, 3, device=device, dtype=torch.float64), 1)
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        pair[0](torch.ones(2, 3, device=device), 1, torch.int64)
    for dim in (2, -3):
        with pytest.raises(IndexError, match="Dimension out of range"):
            pair[0](torch.ones(2, 3, device=device), dim)
    with pytest.raises(IndexError, match="Dimension out of range"):
        pair[0](torch.ones((), device=device), 1)
