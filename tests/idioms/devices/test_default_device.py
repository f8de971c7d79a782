"""A default device for factories that name none."""

import numpy as np
import pytest
import torch
from small_kernels import add, scale


@pytest.fixture
def on_the_card():
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


def test_factories_without_a_device(on_the_card):
    x, y = torch.randn(300), torch.zeros(300)
    assert x.is_cuda
    assert y.is_cuda
    torch.testing.assert_close(add(x, y), x)


def test_get_default_device(on_the_card):
    assert torch.get_default_device().type == "cuda"
    assert (scale(torch.ones(300), 2.0) == 2).all()


def test_a_tensor_for_the_host_named_all_the_same(on_the_card):
    host = torch.ones(300, device="cpu")
    assert not host.is_cuda
    assert (scale(host.cuda(), 2.0) == 2).all()


def test_a_device_as_a_context():
    with torch.device("cuda"):
        x = torch.ones(300)
    assert x.is_cuda
    assert (scale(x, 2.0) == 2).all()


def test_a_default_dtype():
    torch.set_default_dtype(torch.float16)
    try:
        x = torch.ones(300, device="cuda")
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype == torch.float16
    assert (scale(x, 2.0) == 2).all()


def test_numpy_and_back(on_the_card):
    packed = torch.randint(0, 16, (300,)).cpu().numpy().astype("uint32") << 4
    assert (add(torch.from_numpy(packed.astype("int32")).to("cuda"), torch.zeros(300, dtype=torch.int32)) >= 0).all()


def test_a_tensor_of_numbers_on_the_card(on_the_card):
    x = torch.arange(4.0)
    chosen = torch.tensor([x[1], x[3]], device=x.device)
    assert chosen.shape == (2,)
    assert chosen.is_cuda
    assert chosen.dtype == torch.float32
    torch.testing.assert_close(scale(chosen, 2.0), torch.tensor([2.0, 6.0]))


def test_numpy_makes_an_array_of_a_tensor():
    x = torch.ones(300, device="cuda")
    array = np.asarray(scale(x, 2.0).detach().to("cpu"))
    np.testing.assert_array_equal(array, np.full(300, 2.0, dtype=np.float32))
    assert np.array(scale(x, 3.0).cpu()).sum() == 900
    assert np.mean(np.array([scale(x, 4.0).mean().item()])) == 4
    assert (scale(torch.from_numpy(array).cuda(), 2.0) == 4).all()
