"""Tests are pytest's; with TRITON_INTERPRET=1 they run without a GPU. torch calls every vendor's GPU `cuda`."""

import pytest
import torch
from scale import scale

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 100_000])
def test_scale(size, record_property):
    x = torch.randn(size, device=DEVICE)
    error = (scale(x, 3.0) - 3.0 * x).abs().max().item() if size else 0.0
    record_property("max_abs_err", error)

    assert error == 0.0
