"""Sizes of 1. Triton compiles a separate kernel for an argument of 1, as a constant: code that no other size runs.

A wrong result can hide there on a card: see `docs/kernels/attention.md`, "One key".
"""

import functools
import itertools

import pytest
import torch
from torch.nn import functional as F

from kernels.add import add
from kernels.attention import scaled_dot_product_attention as attention
from kernels.cross_entropy import cross_entropy
from kernels.gelu import gelu
from kernels.layer_norm import layer_norm
from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.matmul import linear, matmul
from kernels.rms_norm import rms_norm
from kernels.softmax import log_softmax, softmax

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 4e-2}


def with_a_one(*sizes):
    """Return every combination of 1 and the given sizes, except all sizes as given."""
    return list(itertools.product(*((1, size) for size in sizes)))[:-1]


@pytest.fixture(params=TOLERANCES, ids=["fp32", "bf16"])
def draw(request, device):
    if device.type == "cpu":
        pytest.skip("Triton's interpreter does not compile, so no argument is a constant there")
    return lambda *shape: torch.randn(shape, device=device).to(request.param)


def check(ours, pytorch, *inputs, **kwargs):
    """Compare result and gradients with PyTorch's in float64. There are too few numbers to use PyTorch's own error as the bar."""
    results, upstream = [], None
    for op, exact in ((ours, False), (pytorch, True)):
        leaves = [x.detach().to(torch.float64 if exact else x.dtype).requires_grad_() for x in inputs]
        out = op(*leaves, **kwargs)
        upstream = torch.randn(out.shape, device=out.device).to(inputs[0].dtype) if upstream is None else upstream
        results.append((out, *torch.autograd.grad(out, leaves, upstream.to(out.dtype))))
    tight = TOLERANCES[inputs[0].dtype]
    torch.testing.assert_close(*results, rtol=tight, atol=tight, check_dtype=False)


@pytest.mark.parametrize("shape", with_a_one(3, 70), ids=str)
def test_elements_and_rows(shape, draw):
    x, y, weight = draw(*shape), draw(*shape), draw(shape[1])
    check(add, torch.add, x, y)
    check(gelu, F.gelu, x)
    check(functools.partial(softmax, dim=-1), functools.partial(torch.softmax, dim=-1), x)
    check(functools.partial(log_softmax, dim=0), functools.partial(torch.log_softmax, dim=0), x)
    named = {"normalized_shape": shape[1:], "eps": 1e-2}  # with one column, eps decides the gradient
    check(lambda x, weight: rms_norm(x, weight=weight, **named), lambda x, weight: F.rms_norm(x, weight=weight, **named), x, weight)
    check(lambda x, weight: layer_norm(x, weight=weight, **named), lambda x, weight: F.layer_norm(x, weight=weight, **named), x, weight)


@pytest.mark.parametrize("sizes", with_a_one(2, 3, 17, 40), ids=str)
def test_products(sizes, draw):
    batch, m, n, k = sizes
    check(matmul, torch.matmul, draw(batch, m, k), draw(batch, k, n))
    check(linear, F.linear, draw(batch, m, k), draw(n, k), draw(n))


@pytest.mark.parametrize("rows, classes", with_a_one(3, 70))
def test_losses(rows, classes, device, draw):
    target = torch.randint(classes, (rows,), device=device)
    check(functools.partial(cross_entropy, target=target), functools.partial(F.cross_entropy, target=target), draw(rows, classes))
    ours, pytorch = functools.partial(linear_cross_entropy, target=target), lambda x, weight: F.cross_entropy(x @ weight.t(), target)
    check(ours, pytorch, draw(rows, 40), draw(classes, 40) / 6)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("rows, keys", [(1, 40), (5, 1), (70, 1), (1, 1)])
@pytest.mark.parametrize("width", [1, 16, 128, 192, 256])
def test_attention(width, rows, keys, causal, draw):
    q, k, v = (draw(2, 2, n, width) for n in (rows, keys, keys))
    check(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal)
