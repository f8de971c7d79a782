"""With the vendor's device spelled out, as packages have it."""

import torch
from scale import scale


def test_scale():
    x = torch.randn(1000, device="xpu")

    assert x.is_xpu
    torch.testing.assert_close(scale(x), 2 * x)


def test_a_method_of_the_device():
    x = torch.ones(8).xpu()

    assert (scale(x) == 2).all()
