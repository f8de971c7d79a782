"""What authors of Triton packages keep here: the device, a seed for each test, and markers by hardware."""

import random

import pytest
import torch


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


@pytest.fixture
def pair(device):
    """Two vectors whose length no block divides."""
    return torch.randn(1000, device=device), torch.randn(1000, device=device)
