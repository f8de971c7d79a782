"""The matrix product, the linear layer and their gradients against float64."""

import dataclasses
import functools
import importlib
import math

import pytest
import torch
from torch.nn import functional as F

from kernels.configs import Card
from kernels.configs.matmul import MATMUL
from kernels.matmul import launch, linear, matmul
from kernels.matmul.matmul import _activation_backward, _linear, _matmul
from kernels.matmul.split import for_few_rows

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ACTIVATIONS = {
    None: lambda x: x,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def pytorch_linear(input, weight, bias=None, activation=None):
    return ACTIVATIONS[activation](F.linear(input, weight, bias))


def shapes_id(shapes):
    return "-".join("x".join(map(str, shape)) or "scalar" for shape in shapes) if isinstance(shapes, tuple) else None


@pytest.mark.parametrize("shapes", [((33, 50), (50, 70)), ((64, 64), (64, 64)), ((1, 130), (130, 3)), ((72, 8), (8, 136))], ids=shapes_id)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices(dtype, shapes, device, compare):
    compare(matmul, torch.matmul, *(torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in shapes))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)], ids=["nt", "tn", "tt"])
def test_transposes_are_read_in_place(dtype, transposed, device, compare, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "contiguous", None)
    shapes = [shape[::-1] if swap else shape for shape, swap in zip(((70, 40), (40, 50)), transposed, strict=True)]
    made = (torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in shapes)
    compare(matmul, torch.matmul, *(x.t() if swap else x for x, swap in zip(made, transposed, strict=True)))


@pytest.fixture
def quick_pytorch(monkeypatch):
    """oneDNN for PyTorch's own products, where the CPU computes them: without it, those of 16 bits take a minute."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)


def of_many_tiles(device, each):
    """Sizes with so many tiles of 128 by 128 for each multiprocessor of a card, and a little more."""
    if device.type != "cuda":
        return 40, 72, 40
    tiles = each * torch.cuda.get_device_properties(device).multi_processor_count
    return 128 * math.ceil(tiles**0.5) + 8, 128 * math.ceil(tiles**0.5) + 8, 264


@pytest.mark.usefixtures("quick_pytorch")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_many_tiles_in_every_layout(dtype, device, compare):
    """More tiles than a card has multiprocessors, ragged at every edge, if a card is present. Their sums are short: long ones are below."""
    m, n, k = of_many_tiles(device, 1.25)
    a, b = torch.randn(m, k, device=device).to(DTYPES[dtype]), torch.randn(k, n, device=device).to(DTYPES[dtype])
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            compare(matmul, torch.matmul, left, right)


def test_few_rows_have_parts_that_divide_the_sum_and_fill_a_card():
    hopper, tiles = Card("sm_90", 32, 132, 227 << 10), MATMUL["sm_90"].few
    for m, n, k in ((1, 2048, 8192), (64, 9216, 2304), (32, 2880, 2880), (16, 896, 4864), (33, 18944, 3584), (64, 768, 2048)):
        tile, parts = for_few_rows(tiles, hopper, m, n, k)
        assert tile.m >= m and k % (parts * tile.k) == 0
        assert tile.stages * (tile.m + tile.n) * tile.k * 2 <= hopper.shared_bytes
        assert parts * -(-n // tile.n) >= 66 or k <= 2048  # half of the multiprocessors have work; or it is not worth a second kernel
    assert for_few_rows(tiles, hopper, 8, 64, 100) is None
    assert for_few_rows(tiles, dataclasses.replace(hopper, shared_bytes=16 << 10), 64, 768, 2048) is None


def test_a_long_sum(device, compare):
    compare(matmul, torch.matmul, *(torch.randn(shape, device=device).bfloat16() for shape in ((8, 1200), (1200, 16))))


VECTORS = [((7,), (7,)), ((5, 7), (7,)), ((7,), (7, 5)), ((2, 3, 5, 7), (7,)), ((7,), (3, 7, 4))]
BATCHES = [((2, 3, 5, 7), (7, 4)), ((3, 5, 7), (3, 7, 4)), ((2, 1, 5, 7), (3, 7, 4)), ((5, 7), (3, 7, 4)), ((3, 5, 7), (1, 7, 4))]


@pytest.mark.parametrize("shapes", VECTORS + BATCHES, ids=shapes_id)
def test_vectors_and_batches(shapes, device, compare):
    compare(matmul, torch.matmul, *(torch.randn(shape, device=device) for shape in shapes))


NOTHING = [((0, 3), (3, 4)), ((4, 3), (3, 0)), ((4, 0), (0, 5)), ((0,), (0,)), ((2, 0, 3), (2, 3, 4))]


@pytest.mark.parametrize("shapes", NOTHING, ids=shapes_id)
def test_nothing_to_multiply(shapes, device, compare):
    compare(matmul, torch.matmul, *(torch.randn(shape, device=device) for shape in shapes))


@pytest.mark.parametrize("add", [False, True], ids=["written", "added"])
@pytest.mark.parametrize("shape", [(520, 264, 72), (8, 16, 8), (300, 136, 1000)], ids=str)
def test_products_into_what_is_there(shape, add, device, monkeypatch):
    """Write every element once, rounded before and after."""
    monkeypatch.setattr(launch, "LARGE", 1)
    launch._plan_into.cache_clear()
    m, n, k = shape
    a, b = torch.randn(k, m, device=device).bfloat16().t(), torch.randn(k, n, device=device).bfloat16()
    out = torch.full((m, n), 3.0 if add else torch.nan, device=device, dtype=torch.bfloat16)
    launch.multiply_into(out, a, b, add)
    product = a.double() @ b.double()
    expected = product + 3 if add else product
    assert ((out.double() - expected).abs() <= 2**-8 * (product.abs() + expected.abs()) + 1e-3).all()
    launch._plan_into.cache_clear()


def test_strides_are_free(device, compare):
    x = torch.randn(40, 60, device=device)
    compare(matmul, torch.matmul, x[::2, ::3], x.t()[::3, 3:23])
    compare(matmul, torch.matmul, x[:1].expand(17, -1), x[:, :1].expand(-1, 60).t())
    batch = torch.randn(6, 3, 20, device=device).transpose(0, 1)
    compare(matmul, torch.matmul, batch, batch.mT)


def test_infinities_and_nan_spread_as_in_pytorch(device, compare):
    a = torch.randn(20, 40, device=device)
    a[3, 5], a[7, 0], a[9, 9] = float("inf"), float("nan"), -float("inf")
    compare(matmul, torch.matmul, a, torch.rand(40, 24, device=device), gradients=False)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear(dtype, activation, device, compare):
    x, w, b = (torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in ((2, 19, 40), (56, 40), (56,)))
    compare(linear, pytorch_linear, x, w / 4, b, activation=activation)
    compare(linear, pytorch_linear, x[0], w / 4, activation=activation, gradients=False)


@pytest.mark.usefixtures("quick_pytorch")
@pytest.mark.parametrize("activation", [None, "gelu", "silu"])
def test_linear_of_many_tiles(activation, device, compare):
    """Each program has several tiles, if a card is present, and finishes one while it multiplies the next."""
    m, n, k = of_many_tiles(device, 2.1)
    x, w, b = (torch.randn(shape, device=device).bfloat16() for shape in ((m, k), (n, k), (n,)))
    compare(linear, pytorch_linear, x, w / k**0.5, b, activation=activation)


@pytest.mark.parametrize("rows, columns, k", [(1, 7, 48), (2, 70, 80), (1, 40, 1040), (2, 130, 640)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_linear_of_one_or_two_rows(dtype, rows, columns, k, device, compare):
    x, w, b = (torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in ((rows, k), (columns, k), (columns,)))
    compare(linear, pytorch_linear, x, w / k**0.5, b, activation="gelu")
    compare(matmul, torch.matmul, x, w.t())


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_linear_of_few_tiles_and_a_long_sum(activation, device, compare):
    x, w, b = (torch.randn(shape, device=device).bfloat16() for shape in ((40, 4096), (24, 4096), (24,)))
    compare(linear, pytorch_linear, x, w / 64, b, activation=activation)


@pytest.mark.parametrize(
    "shape, activation", [((3, 2050, 16), "silu"), ((3, 2050, 16), "gelu"), ((7, 600, 3), None), ((1, 300, 130), "silu")]
)
def test_linear_of_a_long_fp32_sum(shape, activation, device, compare):
    """The rounding error of the sum is multiplied by the activation's slope in every gradient."""
    m, k, n = shape
    compare(linear, pytorch_linear, torch.randn(m, k, device=device), torch.randn(n, k, device=device), activation=activation)


def test_infinity_survives_a_long_fp32_sum(device):
    a, b = torch.ones(3, 600, device=device), torch.ones(600, 4, device=device)
    a[0, 5], a[1, 7], a[2, 500] = float("inf"), -float("inf"), float("nan")
    out = matmul(a, b)
    assert (out[0] == float("inf")).all()
    assert (out[1] == -float("inf")).all()
    assert out[2].isnan().all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_large_and_odd_numbers(activation, device, compare):
    x = torch.tensor([float("inf"), float("nan"), 0.0, -0.0, 1e-6, -1e-6, 30, -30, 1e30, -1e30], device=device)
    grid = torch.cat([x, torch.linspace(-12, 12, 200, device=device)])[:, None]
    one = torch.ones(1, 1, device=device)
    ours, pytorch = (functools.partial(op, weight=one, activation=activation) for op in (linear, pytorch_linear))
    compare(ours, lambda x: pytorch(x, weight=one.to(x.dtype)), grid, gradients=False)
    compare(ours, lambda x: pytorch(x, weight=one.to(x.dtype)), grid[2:].clamp(-12, 12))


@pytest.mark.parametrize("activation", [each for each in ACTIVATIONS if each])
@pytest.mark.parametrize("dtype", DTYPES)
def test_far_from_zero_the_slope_of_an_activation_is_the_limit(dtype, activation, device):
    far = [90.0, 1e4, 1e13, 1e20, 1e30, torch.finfo(DTYPES[dtype]).max, float("inf")]
    x = torch.tensor([*far, *(-each for each in far)], device=device).to(DTYPES[dtype])
    grad = _activation_backward(torch.ones_like(x), x, activation)
    assert grad[: len(far)].eq(1).all() and grad[len(far) :].eq(0).all()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)], ids=["no rows", "no columns"])
def test_linear_of_nothing(shape, device, compare):
    x, w, b = (torch.randn(size, device=device) for size in (shape, (3, shape[1]), (3,)))
    compare(linear, pytorch_linear, x, w, b)


def test_without_a_gradient_nothing_is_saved(device, monkeypatch):
    seen = []
    module = importlib.import_module("kernels.matmul.matmul")
    monkeypatch.setattr(module, "_linear", lambda *given: (seen.append(given[-1]), _linear(*given))[1])
    x, w = torch.randn(4, 8, device=device), torch.randn(8, 8, device=device, requires_grad=True)
    linear(x, w, activation="gelu")
    linear(x, w, activation="relu")
    with torch.no_grad():
        linear(x, w, activation="gelu")
    assert seen == [True, False, False]


@pytest.mark.parametrize("op", ["matmul", "linear"])
def test_autocast_chooses_the_dtype(op, device):
    x, w = torch.randn(8, 16, device=device, requires_grad=True), torch.randn(16, 16, device=device, requires_grad=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = matmul(x, w) if op == "matmul" else linear(x, w, w[0], "silu")
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad.dtype == w.grad.dtype == torch.float32


def test_fp32_is_exact_unless_tf32_is_allowed(device):
    if device.type != "cuda" or torch.version.hip:
        pytest.skip("tf32 is a precision of NVIDIA's matrix units")
    a, b = torch.randn(256, 512, device=device), torch.randn(512, 256, device=device)
    exact = a.double() @ b.double()
    ieee = (matmul(a, b) - exact).abs().max()
    allowed = torch.backends.cuda.matmul.allow_tf32
    try:  # not by monkeypatch: pytest 9.2 cannot put back what an object answers by `__getattr__`, and leaves everything else as it is then
        torch.backends.cuda.matmul.allow_tf32 = True
        tf32 = (matmul(a, b) - exact).abs().max()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    assert ieee < 1e-4 < tf32 < 1


def test_they_are_registered_ops(device, registered):
    x, w, b = (torch.randn(shape, device=device) for shape in ((3, 5, 8), (6, 8), (6,)))
    registered(lambda x, w: matmul(x, w.t()), _matmul, (x, w), (x[0].requires_grad_(), w.t().requires_grad_()))
    arguments = (x[0].detach().requires_grad_(), w.detach().requires_grad_(), b.clone().requires_grad_(), "gelu", True)
    registered(functools.partial(linear, activation="gelu"), _linear, (x, w, b), arguments)
    torch.library.opcheck(_linear.registered, (*arguments[:2], None, None, False))
    torch.library.opcheck(_activation_backward.registered, (torch.randn(8, 5, device=device).t(), torch.randn(5, 8, device=device), "silu"))


def test_gradients_have_gradients(device):
    a, b = (torch.randn(shape, device=device, dtype=torch.float32, requires_grad=True) for shape in ((4, 8), (8, 5)))

    def penalty(op):
        (grad,) = torch.autograd.grad(op(a, b).square().sum(), a, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), (a, b))

    for ours, pytorch in zip(penalty(matmul), penalty(torch.matmul), strict=True):
        torch.testing.assert_close(ours, pytorch, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("error", "op", "shapes"),
    [
        (RuntimeError, matmul, ((), (3,))),
        (RuntimeError, matmul, ((2, 3), (4, 5))),
        (RuntimeError, matmul, ((3,), (4,))),
        (RuntimeError, matmul, ((2, 3, 4), (5, 4, 6))),
        (RuntimeError, linear, ((2, 3), (4, 5))),
        (RuntimeError, linear, ((2, 3), (4, 3), (5,))),
    ],
)
def test_shapes_that_do_not_go_together_are_refused(error, op, shapes, device):
    operands = [torch.randn(shape, device=device) for shape in shapes]
    with pytest.raises(error):
        op(*operands)
    with pytest.raises(error):
        {matmul: torch.matmul, linear: F.linear}[op](*operands)


def test_dtypes_and_activations_that_are_unknown_are_refused(device):
    x = torch.randn(4, 4, device=device)
    with pytest.raises(RuntimeError, match="one dtype"):
        matmul(x, x.half())
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        matmul(x.double(), x.double())
    with pytest.raises(ValueError, match="activation"):
        linear(x, x, activation="swish")


def test_offsets_beyond_two_to_the_31(roomy_device):
    """Rows further apart than 32-bit offsets reach, in operands and in the output, with both kernels."""
    for k in (8, 9):  # TMA cannot read rows of 9
        a = torch.randn(2**31 // 4096 + 4096, k, device=roomy_device, dtype=torch.bfloat16)
        b = torch.randn(k, 4096, device=roomy_device, dtype=torch.bfloat16)
        tall = matmul(a, b)
        torch.testing.assert_close(tall[-4096:], a[-4096:] @ b, rtol=0.02, atol=0.1)
        torch.testing.assert_close(matmul(tall[:, :64].t(), a), tall[:, :64].t() @ a, rtol=0.02, atol=20)  # values are around 2000
        del tall
    wide = torch.randn(16, 2**27 + 64, device=roomy_device, dtype=torch.bfloat16)  # 16 rows of 2**27: offsets within a tile exceed 32 bits
    ends = wide[:, -4096:]
    torch.testing.assert_close(matmul(ends, ends[:4].t()), ends @ ends[:4].t(), rtol=0.02, atol=2)  # values are around 64
