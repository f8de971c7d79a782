"""Linear cross entropy against the two ops it replaces, in float64: loss and every gradient, over several chunks."""

import sys

import pytest
import torch
import torch.nn.functional as F

from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.matmul import launch as matmul

room = sys.modules["kernels.linear_cross_entropy.linear_cross_entropy"]
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def unfused(input, linear_weight, target, linear_bias=None, weight=None, **options):
    weight = None if weight is None else weight.to(input.dtype)
    return F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, weight, **options)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks so small that small tests have several."""
    monkeypatch.setattr(room, "_chunks", lambda n, at_most: [slice(i, min(i + 3, n)) for i in range(0, n, 3)])


def drawn(tokens, hidden, classes, device, dtype=torch.float32):
    target = torch.randint(classes, (tokens,), device=device)
    target[1:2] = -100
    input, weight = torch.randn(tokens, hidden, device=device), torch.randn(classes, hidden, device=device)
    return input.to(dtype), (weight / hidden**0.5).to(dtype), target


@pytest.mark.parametrize("shape", [(4, 16, 130), (1, 8, 600), (4, 5, 1)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_cross_entropy(dtype, shape, device, compare):
    compare(linear_cross_entropy, unfused, *drawn(*shape, device, DTYPES[dtype]))


OPTIONS = {
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "smoothed": {"label_smoothing": 0.1},
    "weighted": {"weight": True},
    "weighted-smoothed-none": {"weight": True, "label_smoothing": 0.3, "reduction": "none"},
    "a-class-ignored": {"ignore_index": 1},
}


@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name, bias, device, compare):
    options = dict(OPTIONS[name])
    if options.pop("weight", None):
        options["weight"] = torch.rand(50, device=device)
    input, linear_weight, target = drawn(4, 16, 50, device)
    if "ignore_index" in options:
        target.clamp_(min=0)
    tensors = (input, linear_weight, torch.randn(50, device=device)) if bias else (input, linear_weight)

    def of(op):
        return lambda x, w, b=None: op(x, w, target, linear_bias=b, **options)

    compare(of(linear_cross_entropy), of(unfused), *tensors)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nothing_but_ignored_tokens_and_no_tokens(reduction, device, compare):
    for tokens in (4, 0):
        input, linear_weight, _ = drawn(tokens, 8, 20, device)
        target = torch.full((tokens,), -100, device=device)
        compare(linear_cross_entropy, unfused, input, linear_weight, target, reduction=reduction)


def test_any_rank(device):
    input, linear_weight, target = drawn(6, 8, 20, device)
    expected = unfused(input, linear_weight, target, reduction="none")
    ours = linear_cross_entropy(input.view(2, 3, 8), linear_weight, target.view(2, 3), reduction="none")
    torch.testing.assert_close(ours, expected.view(2, 3))
    torch.testing.assert_close(linear_cross_entropy(input[0], linear_weight, target[0]), expected[0])


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)], ids=["input", "weight", "nothing"])
def test_only_what_is_wanted_is_computed(wanted, device):
    input, linear_weight, target = drawn(5, 8, 20, device)
    leaves = [tensor.requires_grad_(want) for tensor, want in zip((input, linear_weight), wanted, strict=True)]
    loss = linear_cross_entropy(*leaves, target)
    expected = unfused(*leaves, target)
    torch.testing.assert_close(loss, expected)
    assert loss.requires_grad == any(wanted)
    some = [leaf for leaf in leaves if leaf.requires_grad]
    if some:
        torch.testing.assert_close(torch.autograd.grad(loss, some), torch.autograd.grad(expected, some))


def test_the_gradients_are_there_once(device):
    input, linear_weight, target = drawn(5, 8, 20, device)
    loss = linear_cross_entropy(input.requires_grad_(), linear_weight, target)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_autocast(device):
    input, linear_weight, target = drawn(5, 8, 20, device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        ours = linear_cross_entropy(input.requires_grad_(), linear_weight.requires_grad_(), target)
        theirs = unfused(input, linear_weight, target)
    assert ours.dtype == theirs.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    grads = torch.autograd.grad(ours, (input, linear_weight))
    assert [grad.dtype for grad in grads] == [torch.float32, torch.float32]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_it_is_a_registered_op(reduction, device, registered):
    input, linear_weight, target = drawn(5, 8, 20, device)
    arguments = (input, linear_weight, None, target, None, -100, reduction, 0.0, torch.float32, 512, [True, True, False])

    def op(x, w):
        return linear_cross_entropy(x, w, target, reduction=reduction)

    # The forward computes gradients, so they have no derivative, which opcheck would ask for.
    registered(op, room._linear_cross_entropy, (input, linear_weight), arguments)


def test_chunks_are_even_and_whole(monkeypatch):
    monkeypatch.undo()
    for tokens in (0, 1, 127, 128, 512, 513, 2048, 2049, 5000, 16384):
        chunks = room._chunks(tokens, 2048)
        sizes = [rows.stop - rows.start for rows in chunks]
        assert sum(sizes) == tokens
        assert all(size % 128 == 0 for size in sizes[:-1])
        assert max(sizes, default=0) <= 2048


def test_little_memory_is_a_quarter_more_than_the_gradient_of_the_weight():
    assert room._tokens_at_once("speed", 16384, 128256, 4096) == 2048
    for tokens, chunk in ((4096, 896), (16384, 512), (0, 1024), (1 << 20, 512)):
        assert room._tokens_at_once("low", tokens, 128256, 4096) == chunk
    assert room._tokens_at_once("low", 4096, 32000, 16384) == 2048
    assert room._tokens_at_once("low", 4096, 0, 4096) == 512


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_products_that_memory_adds_up(dtype, device, compare, monkeypatch):
    """Force the kernel that adds in memory, which otherwise only large outputs use; other devices use libraries."""
    monkeypatch.setattr(matmul, "LARGE", 1)
    matmul._plan_into.cache_clear()
    compare(linear_cross_entropy, unfused, *drawn(10, 64, 264, device, DTYPES[dtype]))
    matmul._plan_into.cache_clear()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input": torch.randn(3, 4).double()}, NotImplementedError, "fp32, fp16 and bf16"),
        ({"linear_weight": torch.randn(5, 4).half()}, RuntimeError, "one dtype"),
        ({"linear_weight": torch.randn(5, 3)}, RuntimeError, "expected \\(..., H\\)"),
        ({"target": torch.zeros(2).long()}, RuntimeError, "expected \\(..., H\\)"),
        ({"target": torch.rand(3)}, NotImplementedError, "probabilities"),
        ({"target": torch.zeros(3).int()}, RuntimeError, "Long or Byte"),
        ({"linear_bias": torch.ones(4)}, RuntimeError, "linear_bias of 5 classes"),
        ({"label_smoothing": -1.0}, RuntimeError, "between 0.0 and 1.0"),
        ({"reduction": "median"}, ValueError, "median is not a valid"),
        ({"memory": "none"}, ValueError, "speed, low"),
    ],
    ids=["dtype", "dtypes", "hidden", "tokens", "probabilities", "target-dtype", "bias", "smoothing", "reduction", "memory"],
)
def test_what_does_not_fit_is_refused(change, error, message, device):
    arguments = {"input": torch.randn(3, 4), "linear_weight": torch.randn(5, 4), "target": torch.zeros(3).long(), **change}
    with pytest.raises(error, match=message):
        linear_cross_entropy(**{name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()})
