"""What the tests of attention share."""

import pytest
import torch


@pytest.fixture(params=[False, True], ids=["full", "causal"])
def causal(request):
    return request.param


@pytest.fixture
def draw(device):
    def draw(*shape, dtype=torch.float32):
        return torch.randn(shape, device=device).to(dtype)

    return draw
