"""Layer normalization and its gradients against float64."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from kernels import norm
from kernels.configs import choose
from kernels.configs.norm import Parts, Ring
from kernels.layer_norm import forward, layer_norm
from kernels.layer_norm.layer_norm import _layer_norm, _layer_norm_backward
from kernels.rms_norm import rms_norm

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parameters(shape, dtype, device):
    return (1 + 0.5 * torch.randn(shape, device=device)).to(dtype), torch.randn(shape, device=device).to(dtype)


@pytest.fixture
def long_rows(monkeypatch):
    """Send all rows to the kernels for long ones, in steps of 256 columns, so that few columns make several steps and a tail."""
    config = choose(norm.LAYER_NORM)
    tile = dataclasses.replace(config.forward_long, elements=256, warps=4)
    sums = dataclasses.replace(config.column_sums, columns=64, elements=512)
    config = dataclasses.replace(config, forward=(), backward=(), forward_long=tile, backward_long=tile, column_sums=sums)
    monkeypatch.setattr(norm, "LAYER_NORM", {"*": dataclasses.replace(config, forward_parts=None, backward_rings=())})


@triton.jit
def _read_at_once(words_ptr):
    return tl.load(words_ptr, volatile=True)


class Twice:
    """A kernel that runs twice at each launch: the second run finds what the programs of the first published."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *args, **kwargs: [self.kernel[grid](*args, **kwargs) for _ in range(2)]


@pytest.fixture
def shared_rows(monkeypatch, device):
    """Share all rows between programs, three per row. The interpreter runs programs one after the other, so none may wait.

    The interpreter does not run Gluon either: there, the backward is that of long rows.
    """
    if device.type == "cuda" and not choose(norm.LAYER_NORM).backward_rings:
        pytest.skip("on this GPU no rows are shared; the wait is in PTX")
    parts, rings = Parts(2, 512, 4, chunks=2), () if device.type == "cpu" else (Ring(512, 2, programs=1, ahead=1),)
    config = dataclasses.replace(choose(norm.LAYER_NORM), forward=(), backward=(), forward_parts=parts, backward_rings=rings)
    monkeypatch.setattr(norm, "LAYER_NORM", {"*": config})
    monkeypatch.setattr(norm, "RMS_NORM", {"*": config})
    if device.type == "cpu":
        monkeypatch.setattr(forward, "_wait", _read_at_once)
        monkeypatch.setattr(norm, "forward_kernel", Twice(norm.forward_kernel))


@pytest.mark.parametrize(("dtype", "shape"), [("fp32", (3, 516)), ("bf16", (5, 1032))], ids=str)
def test_rows_that_programs_share(dtype, shape, shared_rows, device, compare):
    x = (10 + torch.randn(shape, device=device)).to(DTYPES[dtype])
    compare(layer_norm, F.layer_norm, x, shape[-1:], *parameters(shape[-1:], x.dtype, device))
    compare(rms_norm, F.rms_norm, x, shape[-1:], parameters(shape[-1:], x.dtype, device)[0], eps=1e-5)
    compare(layer_norm, F.layer_norm, x, shape[-1:])


@pytest.mark.parametrize("shape", [(1, 1), (3, 7, 64), (11, 257), (2, 1100)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(dtype, shape, device, compare):
    x = torch.randn(shape, device=device).to(DTYPES[dtype])
    compare(layer_norm, F.layer_norm, x, shape[-1:], *parameters(shape[-1:], x.dtype, device))


@pytest.mark.parametrize("shape", [(3, 512), (2, 2, 511), (9, 259)], ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_long_rows(dtype, shape, long_rows, device, compare):
    x = torch.randn(shape, device=device).to(DTYPES[dtype])
    compare(layer_norm, F.layer_norm, x, shape[-1:], *parameters(shape[-1:], x.dtype, device))


@pytest.mark.parametrize("columns", [40_000, 65_536, 131_080])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_longer_than_registers(dtype, columns, roomy_device, compare):
    x = torch.randn(700, columns, device=roomy_device).to(DTYPES[dtype])
    compare(layer_norm, F.layer_norm, x, (columns,), *parameters((columns,), x.dtype, roomy_device))


def test_several_dimensions_are_normalized_together(device, compare):
    x = torch.randn(4, 3, 5, 7, device=device)
    compare(layer_norm, F.layer_norm, x, (3, 5, 7), *parameters((3, 5, 7), x.dtype, device), eps=0.1)
    compare(layer_norm, F.layer_norm, x, (4, 3, 5, 7), *parameters((4, 3, 5, 7), x.dtype, device))


def test_sums_of_more_programs_than_are_added_at_a_time(long_rows, device, compare, monkeypatch):
    config = choose(norm.LAYER_NORM)
    many = dataclasses.replace(config.column_sums, elements=64, programs=100)
    monkeypatch.setattr(norm, "LAYER_NORM", {"*": dataclasses.replace(config, column_sums=many)})
    x = torch.randn(66, 5, device=device)
    compare(layer_norm, F.layer_norm, x, (5,), *parameters((5,), x.dtype, device))


def test_without_weight_or_bias(device, compare):
    x = torch.randn(6, 50, device=device)
    weight, bias = parameters((50,), x.dtype, device)
    compare(layer_norm, F.layer_norm, x, (50,))
    compare(layer_norm, F.layer_norm, x, (50,), weight)
    compare(layer_norm, F.layer_norm, x, (50,), None, bias)


def test_without_weight_or_bias_in_long_rows(long_rows, device, compare):
    x = torch.randn(6, 300, device=device)
    compare(layer_norm, F.layer_norm, x, (300,))
    compare(layer_norm, F.layer_norm, x, (300,), None, parameters((300,), x.dtype, device)[1])


def test_parameters_in_fp32_of_rows_in_bf16(device, compare):
    def pytorch(x, shape, weight, bias):
        return F.layer_norm(x.to(weight.dtype), shape, weight, bias).to(x.dtype)  # on a GPU, it refuses mixed dtypes

    x = torch.randn(6, 50, device=device).bfloat16()
    compare(layer_norm, pytorch, x, (50,), *parameters((50,), torch.float32, device))


def test_strides_are_free(device, compare):
    x = torch.randn(10, 130, device=device)
    weight, bias = parameters((65,), x.dtype, device)
    compare(layer_norm, F.layer_norm, x[::2, :65], (65,), weight, bias)
    compare(layer_norm, F.layer_norm, x[:, ::2], (65,), weight, bias)
    compare(layer_norm, F.layer_norm, x.t()[:9], (10,), *parameters((20,), x.dtype, device)[0].view(10, 2).unbind(1))
    compare(layer_norm, F.layer_norm, x[:1, :65].expand(5, 65), (65,), weight, bias)


def test_a_gradient_of_any_strides(device, judge):
    x = torch.randn(12, 20, device=device, requires_grad=True)
    grad = torch.randn(20, 12, device=device).t()
    mine, theirs = (torch.autograd.grad(op(x, (20,)), x, grad)[0] for op in (layer_norm, F.layer_norm))
    judge(mine, theirs, torch.autograd.grad(F.layer_norm(x.double(), (20,)), x, grad.double())[0])


@pytest.mark.parametrize("long", [False, True])
def test_a_mean_far_from_zero_cancels_nothing(long, device, compare, request):
    """Rows around 1000, and rows with a distant first element: both ruin a variance computed as E[x**2] - E[x]**2."""
    if long:
        request.getfixturevalue("long_rows")
    x = torch.randn(6, 900, device=device)
    x[:3] += 1000
    x[3:, 0] = 3000
    compare(layer_norm, F.layer_norm, x, (900,), *parameters((900,), x.dtype, device))


def test_infinities_and_nan_stay_in_their_row(device, compare):
    x = torch.randn(5, 33, device=device)
    x[1, 3], x[2, 0], x[3] = float("inf"), float("nan"), 7.0
    compare(layer_norm, F.layer_norm, x, (33,), gradients=False)


def test_no_rows_or_no_columns(device):
    weight = torch.ones(8, device=device, requires_grad=True)
    x = torch.randn(0, 8, device=device, requires_grad=True)
    grads = torch.autograd.grad(layer_norm(x, (8,), weight, weight * 2).sum(), (x, weight))
    assert grads[0].shape == (0, 8)
    assert torch.equal(grads[1], torch.zeros(8, device=device))
    assert layer_norm(torch.ones(3, 0, device=device), (0,)).shape == (3, 0)


def test_only_the_gradients_asked_for(device):
    x, (weight, bias) = torch.randn(4, 30, device=device), parameters((30,), torch.float32, device)
    reference = torch.autograd.grad(F.layer_norm(x, (30,), weight, bias.requires_grad_()).square().sum(), bias)
    torch.testing.assert_close(torch.autograd.grad(layer_norm(x, (30,), weight, bias).square().sum(), bias), reference)


def test_gradients_of_parameters_are_the_same_every_time(device):
    x, grad = (torch.randn(90, 30, device=device) for _ in range(2))
    weight, bias = (p.requires_grad_() for p in parameters((30,), x.dtype, device))
    out = layer_norm(x, (30,), weight, bias)
    first, second = (torch.autograd.grad(out, (weight, bias), grad, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_autocast_computes_and_returns_fp32(device):
    x = torch.randn(3, 16, device=device).bfloat16()
    with torch.autocast(device.type, torch.bfloat16):
        out = layer_norm(x, (16,))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, F.layer_norm(x.float(), (16,)))


def test_more_elements_than_32_bits_count(roomy_device):
    x = torch.randn(1 << 18, 8200, device=roomy_device, dtype=torch.bfloat16).requires_grad_()
    out = layer_norm(x, (8200,))
    (dx,) = torch.autograd.grad(out, x, out)
    torch.testing.assert_close(out[-9:], F.layer_norm(x[-9:], (8200,)))
    reference = torch.autograd.grad(F.layer_norm(x[-9:].float(), (8200,)), x, out[-9:].float())[0][-9:]
    torch.testing.assert_close(dx[-9:], reference, atol=0.02, rtol=0.02)


def test_it_is_a_registered_op(device, registered):
    x, (weight, bias) = torch.randn(5, 12, device=device), parameters((12,), torch.float32, device)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    registered(lambda x, w, b: layer_norm(x, (12,), w, b), _layer_norm, tuple(leaves), (*leaves, 12, 1e-5))
    _, statistics = _layer_norm.registered(x.detach(), None, None, 12, 1e-5)
    torch.library.opcheck(_layer_norm_backward.registered, (x.detach(), x.detach(), weight.detach(), None, statistics, [True, True, False]))


def test_what_it_does_not_take_is_refused(device):
    x = torch.ones(4, 8, device=device)
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        layer_norm(x.double(), (8,))
    for shape in ((7,), (), (1, 4, 8)):
        with pytest.raises(RuntimeError, match="normalized_shape"):
            layer_norm(x, shape)
    with pytest.raises(RuntimeError, match="Expected bias to be of same shape"):
        layer_norm(x, (8,), x[0], x[:, 0])


def test_a_row_is_split_into_few_chunks_with_few_masked_lanes():
    for element_size in (2, 4):
        for n_columns in range(1024, 65536 // element_size, 8):
            if even := norm.even_tile(n_columns, element_size):
                tile, covered, rows = even
                assert n_columns <= covered and 5 * (covered - n_columns) <= covered
                assert tile.chunks in (3, 5, 6, 7, 9) and (covered // tile.chunks).bit_count() == 1
                assert rows == 1 and tile.warps <= 32
                assert covered * rows * element_size // (tile.warps * 32) <= 16 * 9  # of a thread
    for whole in (1024, 4096, 3584, 7168, 8, 640 * 3 + 1):  # powers of two, and what they fit; short rows; no whole vectors
        assert norm.even_tile(whole, 2) is None


def test_rows_that_start_anywhere_fit_their_chunks():
    for n_columns in range(65, 32768, 3):
        tile, covered, rows = norm.odd_tile(n_columns, 2)
        assert n_columns <= covered <= 2 * n_columns and covered * rows <= 2 * 8 * 16 * tile.warps * 32
        if striding := norm.odd_stride(n_columns, 2):
            tile, width, rows = striding
            assert width * tile.chunks >= n_columns and width * tile.chunks * rows <= 8 * 3 * tile.warps * 32
        else:
            assert n_columns > 6144


def test_a_backward_has_chunks_that_registers_hold():
    for n_columns in range(1032, 8192, 8):
        if even := norm.even_stride(n_columns, 2):
            tile, width, rows = even
            threads_of_a_row = tile.warps * 32 // rows
            assert 0 <= 8 * (width * tile.chunks - n_columns) <= width * tile.chunks
            assert width.bit_count() == 1 and tile.chunks <= 6
            assert width >= 4 * threads_of_a_row and width * tile.chunks <= 40 * threads_of_a_row
    for whole in (1024, 2048, 3584, 7168, 1600, 1283):  # powers of two, and what they fit; seven chunks; no whole vectors
        assert norm.even_stride(whole, 2) is None
    assert norm.even_stride(1280, 4) is None


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("n_columns", [77, 1152, 1280, 1283])
def test_a_backward_in_chunks(n_columns, op, device, compare, monkeypatch):
    """Force the chunks of cards that have them: two rows at a time, and more rows than programs."""
    config = choose(getattr(norm, op.upper()))
    if not config.even:
        tile = dataclasses.replace(config.backward[0], programs=1)
        monkeypatch.setattr(norm, op.upper(), {"*": dataclasses.replace(config, even=True, backward=(tile, *config.backward[1:]))})
        monkeypatch.setattr(norm, "even_tile", lambda *_: None)
        monkeypatch.setattr(norm, "odd_tile", lambda *_: None)
    x, weight, bias = (torch.randn(*shape, n_columns, device=device).bfloat16() for shape in ((27,), (), ()))
    ours, pytorch, parameters = (layer_norm, F.layer_norm, (weight, bias)) if op == "layer_norm" else (rms_norm, F.rms_norm, (weight,))
    compare(ours, pytorch, x + 3, (n_columns,), *parameters)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("n_columns", [99, 520, 777, 1280, 1600, 2600, 2603])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_in_chunks(dtype, n_columns, op, device, compare, monkeypatch):
    """Force the chunks of cards that have them; only a card executes the assembly that keeps half precision packed."""
    config = choose(getattr(norm, op.upper()))
    if not config.even:
        monkeypatch.setattr(norm, op.upper(), {"*": dataclasses.replace(config, even=True)})
        for name in ("even_tile", "odd_tile"):
            of = getattr(norm, name)
            monkeypatch.setattr(norm, name, lambda *a, of=of: (e := of(*a)) and (dataclasses.replace(e[0], packed=False), *e[1:]))
    x, weight, bias = (torch.randn(*shape, n_columns, device=device).to(DTYPES[dtype]) for shape in ((3,), (), ()))
    ours, pytorch, parameters = (layer_norm, F.layer_norm, (weight, bias)) if op == "layer_norm" else (rms_norm, F.rms_norm, (weight,))
    compare(ours, pytorch, x + 3, (n_columns,), *parameters, gradients=False)
