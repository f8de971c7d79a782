"""A single query or key, whose stride PyTorch gives as 1: no step that a kernel may take."""

import pytest
import torch
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention as attention
from kernels.attention.plain.tiles import steps


def test_a_single_row_has_the_step_of_a_dense_tensor():
    x = torch.zeros(2, 8, 80, 1).mT
    assert x.stride() == (640, 80, 1, 1) and steps(x) == (640, 80, 80)
    assert steps(torch.zeros(1, 3, 5, 7)[:, :, ::2]) == (63, 35, 14)  # the batch is single, too


@pytest.mark.parametrize("width", [80, 96])
def test_a_single_query_with_a_stride_of_one(width, draw, compare):
    q, k, v = draw(2, 4, width, 1).mT, draw(2, 2, 17, width), draw(2, 2, 17, width)
    compare(attention, F.scaled_dot_product_attention, q, k, v, enable_gqa=True)


@pytest.mark.parametrize("seen", [True, False])
def test_a_single_key_under_a_mask(seen, draw, compare):
    q, k, v = draw(2, 4, 3, 32), draw(2, 4, 1, 32), draw(2, 4, 1, 32)
    mask = torch.tensor([[True], [seen], [True]], device=q.device)
    compare(attention, F.scaled_dot_product_attention, q, k, v, attn_mask=mask)
    numbers = torch.zeros(3, 1, device=q.device).masked_fill(~mask, float("-inf"))
    compare(attention, F.scaled_dot_product_attention, q, k, v, attn_mask=numbers)


def test_the_first_query_of_many_keys_under_a_causal_mask(draw, compare):
    q, k, v = draw(1, 2, 1, 24), draw(1, 2, 9, 24), draw(1, 2, 9, 24)
    compare(attention, F.scaled_dot_product_attention, q, k, v, is_causal=True)
