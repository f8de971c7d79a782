"""Attention with a mask and with dropout, against PyTorch's own, and against float64 with the dropped probabilities known."""

import pytest
import torch
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention as attention
from kernels.attention.attention import _attention

MASKS = {
    "rows and keys": lambda: torch.rand(33, 40) < 0.7,
    "keys of a batch": lambda: torch.rand(2, 1, 1, 40) < 0.7,
    "numbers": lambda: torch.randn(2, 3, 33, 40),
    "a transposed view": lambda: torch.randn(40, 33).T,
    "the lowest number": lambda: torch.where(torch.rand(33, 40) < 0.7, 0.0, torch.finfo(torch.float32).min),
}


@pytest.mark.parametrize(
    "mask, dtype", [*((mask, torch.float32) for mask in MASKS), ("rows and keys", torch.float16), ("numbers", torch.float16)]
)
def test_masks(mask, dtype, draw, compare):
    q, k, v = (draw(2, 3, n, 16, dtype=dtype) for n in (33, 40, 40))
    seen = MASKS[mask]().to(q.device)
    seen = seen if seen.dtype == torch.bool or mask == "the lowest number" else seen.to(dtype)

    def of(op):
        # PyTorch wants numbers in the dtype of its queries, the float64 of the reference too.
        return lambda q, k, v: op(q, k, v, attn_mask=seen if seen.dtype == torch.bool or op is attention else seen.to(q.dtype))

    compare(of(attention), of(F.scaled_dot_product_attention), q, k, v)


def test_grouped_heads_have_masks_of_their_own(draw, compare):
    q, k, v = draw(2, 4, 33, 16), draw(2, 2, 40, 16), draw(2, 2, 40, 16)
    mask = (torch.rand(2, 4, 33, 40) < 0.7).to(q.device)
    compare(attention, F.scaled_dot_product_attention, q, k, v, attn_mask=mask, enable_gqa=True)


def test_a_query_that_sees_nothing_is_zero(draw):
    q, k, v = (draw(1, 1, n, 16).requires_grad_() for n in (5, 40, 40))
    mask = torch.ones(5, 40, dtype=torch.bool, device=q.device)
    mask[2] = False
    out = attention(q, k, v, attn_mask=mask)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert not out[0, 0, 2].any() and not grads[0][0, 0, 2].any() and all(x.isfinite().all() for x in (out, *grads))


@pytest.mark.parametrize("with_mask", [False, True], ids=["", "mask"])
def test_dropout(with_mask, causal, draw, judge):
    """Values that are the identity show which probabilities were kept; with these, the gradients are known, too."""
    if with_mask and causal:
        pytest.skip("there is one mask at a time")
    q, k, grad = draw(2, 4, 33, 16), draw(2, 2, 40, 16), draw(2, 4, 33, 40)
    v = torch.eye(40, device=q.device).expand(2, 2, 40, 40).contiguous()
    mask = (torch.rand(33, 40) < 0.7).to(q.device) if with_mask else None
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = attention(*leaves, attn_mask=mask, dropout_p=0.25, is_causal=causal, enable_gqa=True)
    mine = [out.detach(), *torch.autograd.grad(out, leaves, grad)]
    kept = out.detach() != 0
    visible = torch.ones(33, 40, dtype=torch.bool, device=q.device).tril() if causal else mask if with_mask else torch.ones_like(kept)
    share = kept.sum() / (visible.expand_as(kept)).sum()
    assert abs(share - 0.75) < 0.03 and not torch.equal(kept[0, 0] & kept[0, 1], kept[0, 0])

    def known(dtype):
        q, k, v = (x.detach().to(dtype).requires_grad_() for x in leaves)
        scores = q @ k.repeat_interleave(2, 1).mT / 4
        p = torch.softmax(scores.masked_fill(~visible, float("-inf")), -1) * kept / 0.75
        out = p @ v.repeat_interleave(2, 1)
        return [out.detach(), *torch.autograd.grad(out, (q, k, v), grad.to(dtype))]

    for name, *three in zip(("out", "dq", "dk", "dv"), mine, known(torch.float32), known(torch.float64), strict=True):
        judge(*three, name)


def test_everything_may_be_dropped(draw):
    q, k, v = (draw(1, 1, n, 16).requires_grad_() for n in (5, 40, 40))
    out = attention(q, k, v, dropout_p=1.0)
    assert not out.any() and not any(grad.any() for grad in torch.autograd.grad(out.sum(), (q, k, v)))


def test_a_seed_repeats_and_another_does_not(draw):
    q, k, v = (draw(1, 2, n, 16) for n in (33, 40, 40))
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(attention(q, k, v, dropout_p=0.5))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_both_masks_another_dtype_and_a_gradient_are_refused(draw):
    q, k, v = (draw(1, 1, n, 16) for n in (5, 40, 40))
    mask = torch.zeros(5, 40, device=q.device)
    with pytest.raises(RuntimeError, match="is_causal"):
        attention(q, k, v, attn_mask=mask, is_causal=True)
    with pytest.raises(RuntimeError, match="must be bool"):
        attention(q, k, v, attn_mask=mask.long())
    with pytest.raises(NotImplementedError, match="gradient of attn_mask"):
        attention(q, k, v, attn_mask=mask.requires_grad_())


def test_the_op_is_registered(draw, registered):
    q, k, v = (draw(1, 2, n, 16) for n in (33, 40, 40))
    mask = (torch.rand(33, 40) < 0.7).to(q.device)
    arguments = (q, k, v, mask.expand(1, 2, 33, 40), None, False, 0.25, 0.0)
    registered(lambda q, k, v: attention(q, k, v, attn_mask=mask), _attention, (q, k, v), arguments)
