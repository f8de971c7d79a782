"""What the width of heads and a tile decide, in attention and its gradients."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention as attention
from kernels.attention.attention import _attention
from kernels.attention.hopper import fp32
from kernels.attention.hopper.forward import shared_out
from kernels.configs import card, choose
from kernels.configs.attention import ATTENTION, Tile

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("width", [1, 24, 128, 256])
def test_widths(width, draw, compare):
    q, k, v = (draw(1, 1, n, width, dtype=torch.float16) for n in (40, 35, 35))
    compare(attention, F.scaled_dot_product_attention, q, k, v)


@pytest.mark.parametrize("width, v_width", [(24, 40), (80, 16)])
def test_values_may_have_a_width_of_their_own(width, v_width, causal, draw):
    """PyTorch then stores its scores and computes gradients from probabilities that were never rounded: no fair bar for a fused kernel."""
    leaves = [draw(1, 1, n, d).requires_grad_() for n, d in ((40, width), (35, width), (35, v_width))]
    results = []
    for op, to in ((attention, torch.float32), (F.scaled_dot_product_attention, torch.float64)):
        out = op(*(x.to(to) for x in leaves), is_causal=causal)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4, check_dtype=False)


@pytest.mark.parametrize("dtype, width", [("fp16", 64), ("bf16", 128)])
def test_several_tiles(dtype, width, causal, draw, compare):
    q, k, v = (draw(1, 1, 70, width, dtype=DTYPES[dtype]) for _ in range(3))
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal)


@pytest.mark.parametrize("how", [{"part": 16, "tma": False}, {"tma": True, "part": 0, "heads_first": True, "split": True}], ids=str)
def test_what_a_tile_may_decide(how, causal, draw, compare, monkeypatch):
    """Test it on every card, though the tables use it only on some."""
    config = choose(ATTENTION)

    def decided(tiles):
        return [replace(t, **{name: replace(getattr(t, name), **how) for name in ("forward", "query", "key_value")}) for t in tiles]

    changed = replace(config, wide=decided(config.wide), narrow=decided(config.narrow), design="tl")
    for module in ("attention", "masked"):
        monkeypatch.setattr(f"kernels.attention.{module}.choose", lambda table: changed)
    q, k, v = (draw(2, 1, n, 32, dtype=torch.float16) for n in (33, 40, 40))
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=causal)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("width, v_width", [(64, 64), (128, 128), (192, 128), (256, 256)])
def test_tiles_that_programs_share(width, v_width, rounds, draw):
    """On Hopper, the last tiles are shared out. No last block of keys or queries is full, and each run has the same bits."""
    if choose(ATTENTION).design != "hopper":
        pytest.skip("only the kernel for Hopper shares tiles")
    heads = rounds * card().processors // 3 + 4
    assert shared_out(3 * heads, card().processors, 19)
    q, k, v = (draw(1, heads, n, d, dtype=torch.bfloat16) for n, d in ((330, width), (2330, width), (2330, v_width)))
    (out, lse), again = (_attention.registered(q, k, v, None, None, False, width**-0.5, 0.0) for _ in range(2))
    scores = q.double() @ k.double().mT * width**-0.5

    torch.testing.assert_close(out.double(), scores.softmax(-1) @ v.double(), rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-4)
    assert torch.equal(out, again[0])
    assert torch.equal(lse, again[1])


@pytest.mark.parametrize(
    "tiles, blocks, shared", [(132, 99, 0), (133, 6, 133), (133, 5, 0), (1728, 24, 144), (960, 6, 0), (264, 99, 0), (133, 200_000, 0)]
)
def test_tiles_are_shared_where_a_round_would_be_half_empty(tiles, blocks, shared):
    assert shared_out(tiles, 132, blocks) == shared


def test_descriptors_hand_out_whole_rows():
    with pytest.raises(ValueError, match="part"):
        Tile(64, 64, 4, 1, tma=True, part=32)


@pytest.mark.parametrize("width", [192, 256])
@pytest.mark.parametrize("rows", [5, 130])
def test_the_logarithm_of_one_key_is_its_score(rows, width, causal, draw):
    """ptxas 12.8 reads an uninitialized register here if the number of keys is a constant: docs/kernels/attention.md, "One key"."""
    q, k, v = draw(2, 8, rows, width), draw(2, 8, 1, width), draw(2, 8, 1, width)
    scores = (q.double() @ k.double().mT)[..., 0] * 0.0625
    _, lse = _attention.registered(q, k, v, None, None, causal, 0.0625, 0.0)
    torch.testing.assert_close(lse.double(), scores, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shape, dtype, taken",
    [
        ((2, 16, 2048, 128), torch.float32, True),
        ((2, 16, 2048, 129), torch.float32, False),
        ((2, 16, 2048, 128), torch.bfloat16, False),
        ((1, 8, 128, 64), torch.float32, False),  # too little work
        ((4096, 32, 128, 64), torch.float32, False),  # more heads than a grid can have
        ((4096, 8, 64, 64), torch.float32, False),  # half of each tile would be empty
        ((1, 1, 6_000_000, 128), torch.float32, False),  # more elements in a head than 32 bits can count
    ],
    ids=str,
)
def test_what_is_split_beforehand_on_hopper(shape, dtype, taken):
    x = SimpleNamespace(shape=shape, dtype=dtype)
    assert fp32.supports(x, x, x, False) is taken
