"""Attention and its gradients against float64 and against PyTorch's own, with whatever backend that chooses."""

import pytest
import torch
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention as attention
from kernels.attention.attention import _attention, _attention_backward
from kernels.configs import choose
from kernels.configs.attention import ATTENTION

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("rows, keys", [(32, 64), (33, 70), (70, 33)])
def test_lengths(rows, keys, causal, draw, compare):
    q, k, v = (draw(1, 1, n, 16) for n in (rows, keys, keys))
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype, causal, draw, compare):
    q, k, v = (draw(2, 2, n, 16, dtype=DTYPES[dtype]) for n in (33, 40, 40))
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_key_is_all_there_is(dtype, causal, draw):
    """The gradients of query and key are differences of equal sums:

    zero up to rounding, so they cannot be judged relative to their size.
    """
    q, k, v = (draw(2, 1, 16, dtype=DTYPES[dtype]).requires_grad_() for _ in range(3))
    grad = torch.randn_like(q)
    out = attention(q, k, v, is_causal=causal)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), grad)
    assert torch.equal(out, v)
    assert torch.equal(dv, grad)
    assert max(dq.abs().max(), dk.abs().max()) < 1e-5


@pytest.mark.parametrize("heads, kv_heads", [(4, 2), (3, 1)])
def test_grouped_heads(heads, kv_heads, causal, draw, compare):
    q, k, v = draw(1, heads, 33, 16), draw(1, kv_heads, 40, 16), draw(1, kv_heads, 40, 16)
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal, enable_gqa=True)


@pytest.mark.parametrize("dtype, width", [(torch.float16, 64), (torch.bfloat16, 128), (torch.float16, 72)], ids=["64", "128", "72"])
def test_several_blocks_of_grouped_heads(dtype, width, causal, draw, compare):
    """On Hopper, the gradients of keys and values are sums over programs of several heads. The last block of keys is not full."""
    q, k, v = draw(2, 6, 70, width, dtype=dtype), draw(2, 2, 150, width, dtype=dtype), draw(2, 2, 150, width, dtype=dtype)
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal, enable_gqa=True)


@pytest.mark.parametrize("width, v_width", [(64, 64), (40, 128)], ids=str)
def test_many_rows_of_fp32(width, v_width, causal, draw, compare, monkeypatch):
    """On Hopper, each number is split into three bf16 beforehand. No last tile is full."""
    monkeypatch.setattr("kernels.attention.hopper.fp32._LEAST_WORK", 0)
    q, k, v = draw(1, 4, 130, width), draw(1, 2, 200, width), draw(1, 2, 200, v_width)
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal, enable_gqa=True)


def test_a_score_of_minus_infinity_weighs_nothing(draw, monkeypatch):
    monkeypatch.setattr("kernels.attention.hopper.fp32._LEAST_WORK", 0)
    q, k, v = draw(1, 1, 130, 16).abs(), draw(1, 1, 140, 16), draw(1, 1, 140, 16)
    k[:, :, -1, 3] = -torch.inf
    torch.testing.assert_close(attention(q, k, v), attention(q, k[:, :, :-1], v[:, :, :-1]))


def test_a_program_of_several_grouped_heads(causal, draw, compare):
    """On Hopper, with more programs than multiprocessors, each walks over all heads of its keys."""
    if choose(ATTENTION).design != "hopper":
        pytest.skip("on other cards, programs of the backward do not differ")
    q, k, v = draw(70, 4, 70, 64, dtype=torch.float16), *(draw(70, 2, 150, 64, dtype=torch.float16) for _ in range(2))
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal, enable_gqa=True)


@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 8), (7, 8), (7, 8)),
        ((3, 5, 8), (3, 7, 8), (3, 7, 8)),
        ((2, 1, 2, 5, 8), (2, 1, 2, 7, 8), (2, 1, 2, 7, 8)),
        ((2, 2, 5, 8), (2, 1, 7, 8), (1, 2, 7, 8)),
        ((5, 8), (2, 7, 8), (2, 1, 7, 8)),
    ],
    ids=["2D", "3D", "5D", "broadcast", "mixed"],
)
def test_leading_dimensions(shapes, draw, compare):
    def pytorch(q, k, v):
        """With two dimensions, PyTorch computes in other steps, whose rounding no fused kernel can match."""
        if max(map(len, shapes)) > 2:
            return F.scaled_dot_product_attention(q, k, v)
        return F.scaled_dot_product_attention(*(x[None, None] for x in (q, k, v)))[0, 0]

    compare(attention, pytorch, *(draw(*shape, dtype=torch.float16) for shape in shapes))


def test_strides_are_free(causal, draw, compare):
    """Heads after rows, as a projection returns them; rows apart; a last dimension that is not dense."""
    q = draw(1, 40, 2, 16).transpose(1, 2)
    k = draw(1, 2, 100, 16)[:, :, ::2]
    v = draw(1, 2, 16, 50).mT
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal)


def test_nothing_is_copied_where_rows_are_dense(draw, monkeypatch):
    q, k, v = (draw(1, 40, 2, 16).transpose(1, 2) for _ in range(3))
    monkeypatch.setattr(torch.Tensor, "contiguous", None)
    attention(q, k, v)


def test_the_gradient_may_have_any_strides(draw, compare):
    def transposed(op):
        return lambda *args: op(*args).transpose(-1, -2)

    q, k, v = (draw(1, 2, 33, 16) for _ in range(3))
    compare(transposed(attention), transposed(F.scaled_dot_product_attention), q, k, v)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    sums = [torch.autograd.grad(op(*leaves).sum(), leaves) for op in (attention, F.scaled_dot_product_attention)]
    torch.testing.assert_close(*sums)


@pytest.mark.parametrize("shape", [(0, 2, 5, 8), (2, 0, 5, 8), (2, 2, 0, 8)], ids=str)
def test_no_batch_no_heads_no_rows(shape, draw, compare):
    leaves = [draw(*shape).requires_grad_() for _ in range(3)]
    compare(attention, F.scaled_dot_product_attention, *leaves, gradients=False)
    grads = torch.autograd.grad(attention(*leaves).sum(), leaves)  # on a GPU, PyTorch's own fails without heads
    assert [grad.shape for grad in grads] == [leaf.shape for leaf in leaves]
    assert not any(grad.any() for grad in grads)


def test_no_keys(draw):
    q, k, v = draw(1, 4, 8).requires_grad_(), draw(1, 0, 8).requires_grad_(), draw(1, 0, 8).requires_grad_()
    out = attention(q, k, v)
    assert torch.equal(out, torch.zeros_like(q))
    assert torch.equal(torch.autograd.grad(out.sum(), q)[0], torch.zeros_like(q))


def test_no_rows_give_keys_no_gradient(draw):
    q, k, v = draw(1, 0, 8), draw(1, 5, 8).requires_grad_(), draw(1, 5, 8).requires_grad_()
    assert all(not grad.any() for grad in torch.autograd.grad(attention(q, k, v).sum(), (k, v)))


@pytest.mark.parametrize("scale", [0.3, -0.3, 0.0, 5.0])
def test_scales(scale, draw, compare):
    q, k, v = (draw(1, 1, 40, 16) for _ in range(3))
    compare(attention, F.scaled_dot_product_attention, q, k, v, scale=scale)


def test_a_mask_is_no_score_whatever_the_scale(draw):
    """One of PyTorch's backends gives NaN here, because it scales the mask."""
    q, k, v = (draw(1, 1, 40, 16) for _ in range(3))
    assert torch.equal(attention(q, k, v, is_causal=True, scale=-0.3), attention(-q, k, v, is_causal=True, scale=0.3))
    means = v.cumsum(-2) / torch.arange(1, 41, device=v.device)[:, None]
    torch.testing.assert_close(attention(q, k, v, is_causal=True, scale=0.0), means)


def test_large_scores_do_not_overflow(causal, draw, compare):
    q, k, v = 40 * draw(1, 1, 40, 16), 40 * draw(1, 1, 70, 16), draw(1, 1, 70, 16)
    compare(attention, F.scaled_dot_product_attention, q, k, v, gradients=False, is_causal=causal)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    grads = [torch.autograd.grad(op(*leaves, is_causal=causal).sum(), leaves) for op in (attention, F.scaled_dot_product_attention)]
    # Scores in the tens of thousands are accurate to a hundredth, and so are the exponentials in the gradients.
    torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-2)


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # from numpy, below the interpreter
def test_nan_reaches_its_row_and_no_other(draw):
    q, k, v = (draw(1, 70, 16) for _ in range(3))
    q[0, 3, 5] = float("nan")
    out = attention(q, k, v)
    assert out[0, 3].isnan().all()
    assert out.isnan().sum() == 16


def test_a_query_does_not_see_the_future(draw):
    q, k, v = (draw(1, 70, 16) for _ in range(3))
    out = attention(q, k, v, is_causal=True)
    k[0, 40:], v[0, 40:] = 1e4, -1e4
    assert torch.equal(attention(q, k, v, is_causal=True)[0, :40], out[0, :40])


def test_it_repeats_bit_by_bit(causal, draw):
    q, k, v, grad = (draw(1, 2, 40, 16).requires_grad_() for _ in range(4))
    runs = []
    for _ in range(2):
        out = attention(q, k[:, :1], v[:, :1], is_causal=causal, enable_gqa=True)
        runs.append((out, *torch.autograd.grad(out, (q, k, v), grad)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_autocast(device, draw):
    q, k, v = (draw(1, 33, 16) for _ in range(3))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert attention(q, k, v).dtype == torch.bfloat16


def test_it_is_a_registered_op(causal, draw, registered):
    q, k, v = (draw(1, 2, 20, 16).requires_grad_() for _ in range(3))
    registered(lambda q, k, v: attention(q, k, v, is_causal=causal), _attention, (q, k, v), (q, k, v, None, None, causal, 0.25, 0.0))
    q, k, v = q.detach(), k.detach(), v.detach()
    out, lse = _attention.registered(q, k, v, None, None, causal, 0.25, 0.0)
    torch.library.opcheck(_attention_backward.registered, (draw(*out.shape), q, k, v, None, None, out, lse, causal, 0.25, 0.0))


def test_logarithms_are_natural(causal, draw):
    """Both designs must agree on this, so that either's backward can use either's forward."""
    q, k, v = (draw(1, 2, 40, 16) for _ in range(3))
    scores = 0.25 * q.double() @ k.double().mT
    if causal:
        scores = scores.masked_fill(~torch.ones(40, 40, dtype=torch.bool, device=q.device).tril(), float("-inf"))
    _, lse = _attention.registered(q, k, v, None, None, causal, 0.25, 0.0)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_what_it_does_not_take_is_refused(draw):
    x = draw(2, 4, 8)
    for kwargs in ({"dropout_p": -0.1}, {"dropout_p": 1.1}):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            attention(x, x, x, **kwargs)
    with pytest.raises(NotImplementedError, match="up to 256"):
        attention(*(draw(1, 2, 257) for _ in range(3)))
    with pytest.raises(NotImplementedError, match="fp32, fp16 and bf16"):
        attention(x.double(), x.double(), x.double())
    for wrong in ((x, x.half(), x), (x, x[..., :4], x), (x, x, x[:, :3]), (x[0, 0], x, x), (x, draw(3, 4, 8), x)):
        with pytest.raises(RuntimeError):
            attention(*wrong)
    with pytest.raises(RuntimeError, match="multiple"):
        attention(draw(3, 4, 8), x, x, enable_gqa=True)


def test_more_than_2_31_elements(roomy_device):
    """The last head starts beyond 32-bit offsets."""
    heads, rows, width = 1 << 14, 1056, 128
    q = torch.randn(1, 1, rows, width, device=roomy_device, dtype=torch.bfloat16).expand(1, heads, -1, -1)
    k, v = (torch.empty(1, heads, rows, width, device=roomy_device, dtype=torch.bfloat16).normal_() for _ in range(2))
    out = attention(q, k, v)
    torch.testing.assert_close(out[:, -1], F.scaled_dot_product_attention(q[:, -1], k[:, -1], v[:, -1]), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_key_for_groups_of_heads(dtype, causal, draw):
    """Every query sees it, so the result is its value, and only the value has a gradient. A score that is not finite makes NaN."""
    q, k, v = (x.to(dtype).requires_grad_() for x in (draw(2, 4, 8, 64), draw(2, 2, 1, 64), draw(2, 2, 1, 24)))
    out = attention(q, k, v, is_causal=causal, enable_gqa=True)
    grad = draw(2, 4, 8, 24).to(dtype)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), grad)

    assert torch.equal(out, v.repeat_interleave(2, 1).expand(-1, -1, 8, -1))
    assert not dq.any() and not dk.any()
    exact = grad.double().reshape(2, 2, 16, 24).sum(2, keepdim=True)
    torch.testing.assert_close(
        dv.double(), exact, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-2 if dtype is torch.bfloat16 else 1e-5
    )
    with torch.no_grad():
        q[0, 1, 3, 5] = float("inf")
        lost = attention(q, k, v, is_causal=causal, enable_gqa=True).isnan()
    assert lost[0, 1, 3].all() and lost.sum() == 24
