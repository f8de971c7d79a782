"""A package beside its tests, and a module beside the test."""

import sys

import flat_ops
import torch
from flat_ops import DEVICE, activated

from . import references


def test_the_package_beside_tests():
    x = torch.randn(1000, device=DEVICE)
    torch.testing.assert_close(activated(x), references.activated(x))


def test_a_submodule_with_a_replaced_function(monkeypatch):
    monkeypatch.setattr(sys.modules["flat_ops.activated"], "block_size", lambda: 128)
    x = torch.randn(300, device=DEVICE)
    assert flat_ops.cdiv(300, 128) == 3
    torch.testing.assert_close(flat_ops.activated(x), x.clamp(min=0))
