"""Tiles that are left over, when all others are dealt out, are shared; operands with rows on no line are copied where that is worth it."""

from __future__ import annotations

import pytest
import torch

from kernels.configs import Card
from kernels.configs.matmul import MATMUL
from kernels.matmul import launch, matmul
from kernels.matmul.split import shared

HOPPER = Card("sm_90", 32, 132, 232448)
WIDE = MATMUL["sm_90"].specialized[0]


@pytest.mark.parametrize(
    ("tiles", "k", "most"), [(132, 4096, 1), (120, 4096, 1), (800, 512, 1), (800, 5000, 16), (561, 4100, 4), (48, 4096, 2)]
)
def test_what_is_left_over_is_shared(tiles, k, most):
    """Of 800 tiles, eight are left over; every share has some steps, and together they are the sum."""
    count, cost = shared(WIDE, HOPPER, tiles, k)
    assert 1 <= count <= most and (count > 1) == (most > 1)
    steps = -(-k // WIDE.k)
    if count > 1:
        assert count * (tiles % HOPPER.processors) <= HOPPER.processors
        assert steps - (count - 1) * -(-steps // count) >= 8
        assert cost < shared(WIDE, HOPPER, -(-tiles // HOPPER.processors) * HOPPER.processors, k)[1]


@pytest.mark.parametrize("shape", [(200, 1032, 1024), (900, 800, 1030), (900, 803, 1024), (1100, 2056, 520), (8200, 4104, 1100)], ids=str)
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_rows_on_no_boundary_and_shares(shape, activation, device, judge):
    """Sizes off the tiles; rows of operands and output on no boundary, or on no line; on a card the last also has tiles left over."""
    m, n, k = shape if device.type == "cuda" else [size // 40 for size in shape]
    a, b = torch.randn(m, k, device=device).bfloat16(), torch.randn(n, k, device=device).bfloat16()
    bias = torch.randn(n, device=device).bfloat16()
    act = torch.nn.functional.gelu if activation else lambda x: x
    out, saved = launch.multiply(a, b.t(), bias, activation, save=True)
    exact = a.double() @ b.double().t() + bias
    expected = a.float() @ b.float().t() + bias
    judge(saved, expected.bfloat16(), exact)
    judge(out, act(expected).bfloat16(), act(exact))


@pytest.mark.parametrize("transposed", [False, True])
def test_a_copy_has_the_same_numbers(transposed, device):
    for size in (1000, 1004, 1001):
        x = torch.randn(300, size, device=device).bfloat16()
        x = x.t() if transposed else x
        copy = launch._on_lines(x, 32)
        assert copy.equal(x) and {step * 2 % 128 for step in copy.stride() if step != 1} == {0}
        assert launch._on_lines(copy, 32).data_ptr() == copy.data_ptr()


def test_a_batch_is_copied_too(device, compare):
    m, n, k = (600, 515, 1030) if device.type == "cuda" else (20, 15, 30)
    compare(matmul, torch.matmul, *(torch.randn(3, *size, device=device).bfloat16() for size in ((m, k), (k, n))), gradients=False)
