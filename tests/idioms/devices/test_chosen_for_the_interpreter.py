"""Tests that take the host where kernels are interpreted."""

import os

import torch
from small_kernels import scale

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def test_a_device_by_the_interpreter():
    assert (scale(torch.ones(300, device=DEVICE), 2.0) == 2).all()


def test_a_factory_without_a_device():
    assert (scale(torch.ones(300).to(DEVICE), 2.0) == 2).all()
