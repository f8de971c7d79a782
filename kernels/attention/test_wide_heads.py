"""Gradients of heads of more than 128 columns on Hopper, where they have kernels of their own. Elsewhere they take those of all widths."""

import pytest
import torch

from kernels.attention import scaled_dot_product_attention as attention
from kernels.attention.attention import hopper_kernels
from kernels.configs import choose
from kernels.configs.attention import ATTENTION

WIDTHS = [(256, 256), (192, 192), (192, 128), (136, 200)]
# Batch, heads, heads of keys, queries, keys: ragged, fewer of either, a group, more than one section of heads.
CALLS = [(1, 2, 2, 200, 200), (2, 4, 2, 130, 333), (1, 3, 1, 333, 130), (1, 2, 2, 64, 1000), (3, 32, 1, 100, 100), (2, 4, 4, 640, 640)]


@pytest.fixture(autouse=True)
def _on_hopper(device):
    if choose(ATTENTION).design != "hopper":
        pytest.skip("this GPU has no kernels of its own for wide heads")


def gradients(q, k, v, grad, **kwargs):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(attention(*leaves, enable_gqa=True, **kwargs), leaves, grad)


def exactly(q, k, v, grad, causal, scale):
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    key, value = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in leaves[1:])
    scores = scale * leaves[0] @ key.mT
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(), float("-inf"))
    return torch.autograd.grad(scores.softmax(-1) @ value, leaves, grad.double())


def error(actual, exact):
    return ((actual.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 4e-3), (torch.float16, 6e-4)], ids=["bf16", "fp16"])
@pytest.mark.parametrize("width, v_width", WIDTHS)
def test_they_are_right_and_repeat(width, v_width, dtype, bound, causal, draw):
    """The bound is that of two roundings to 16 bits. A wrong tile, or one read too early, is off by more, or not the same in each run."""
    for batch, heads, kv_heads, rows, keys in CALLS:
        q, grad = (draw(batch, rows, heads, n, dtype=dtype).transpose(1, 2) for n in (width, v_width))
        k, v = (draw(batch, kv_heads, keys, n, dtype=dtype) for n in (width, v_width))
        assert hopper_kernels("backward", q, k, v, causal)
        runs = [gradients(q, k, v, grad, is_causal=causal, scale=0.08) for _ in range(3)]
        errors = [error(*each) for each in zip(runs[0], exactly(q, k, v, grad, causal, 0.08), strict=True)]
        assert max(errors) < bound, (batch, heads, kv_heads, rows, keys, errors)
        assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("width", [192, 256])
def test_scales_may_be_negative_or_zero(width, causal, draw):
    q, k, v, grad = (draw(1, 2, 200, width, dtype=torch.bfloat16) for _ in range(4))
    dq, dk, dv = gradients(q, k, v, grad, is_causal=causal, scale=0.08)
    negated = gradients(-q, k, v, grad, is_causal=causal, scale=-0.08)
    assert all(torch.equal(a, b) for a, b in zip(negated, (-dq, dk, dv), strict=True))
    dq, dk, dv = gradients(q, k, v, grad, is_causal=causal, scale=0.0)
    assert not dq.any() and not dk.any() and error(dv, exactly(q, k, v, grad, causal, 0.0)[2]) < 4e-3


@pytest.mark.parametrize("width", [192, 256])
def test_a_query_of_nan_reaches_the_values_that_it_sees_and_no_other_query(width, causal, draw):
    q, k, v, grad = (draw(1, 1, 200, width, dtype=torch.bfloat16) for _ in range(4))
    q[0, 0, 150, 3] = float("nan")
    dq, _, dv = gradients(q, k, v, grad, is_causal=causal)
    assert dq[0, 0].isnan().any(-1).nonzero().flatten().tolist() == [150]
    assert dv[0, 0].isnan().any(-1).sum() == (151 if causal else 200)
