"""A few rows that would start another wave of tiles are a product of their own."""

from __future__ import annotations

import pytest
import torch

from kernels.configs import Card
from kernels.configs.matmul import MATMUL
from kernels.matmul import matmul
from kernels.matmul.launch import _rows_of_another_wave

H200 = Card("sm_90", 32, 132, 232448)


@pytest.mark.parametrize(
    ("shape", "k", "last"),
    [
        ((5000, 5000), 4992, 8),  # 40 x 20 tiles are seven waves, 39 x 20 six
        ((5000, 5000), 5000, 0),  # no tile of the kernel for few rows divides the sum
        ((4992, 5000), 4992, 0),
        ((4100, 4096), 4096, 0),  # as many waves without the four rows
        ((300, 4096), 4096, 0),
        ((5000, 5000), 512, 0),  # a short sum: another launch takes longer
        ((8, 5000), 5000, 0),
        ((2, 5000, 5000), 5000, 0),
    ],
)
def test_rows_that_cost_a_wave_are_found(shape, k, last):
    assert _rows_of_another_wave(MATMUL["sm_90"], H200, shape, k) == last


@pytest.mark.parametrize("transposed", [False, True])
def test_both_parts_are_right(transposed, device, compare):
    """On an H200, 2049 rows are 2048 and one. In the interpreter, a size that it multiplies in time."""
    m, n, k = (2049, 2048, 1024) if device.type == "cuda" else (33, 24, 16)
    a = torch.randn((k, m) if transposed else (m, k), device=device, dtype=torch.bfloat16)
    b = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    a = a.t() if transposed else a
    compare(matmul, torch.matmul, a, b, gradients=False)
