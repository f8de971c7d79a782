"""Which card is current: guards by index, by device and by tensor."""

import pytest
import torch
import triton
from small_kernels import add, scale


def test_guard_by_index(pair):
    with torch.cuda.device(0):
        out = add(*pair)
    torch.testing.assert_close(out, pair[0] + pair[1])


def test_guard_by_the_tensors_device(pair):
    x, y = pair
    with torch.cuda.device(x.device):
        out = add(x, y)
    torch.testing.assert_close(out, x + y)


def test_guard_by_the_index_of_the_tensors_device(pair):
    x, y = pair
    with torch.cuda.device(x.device.index):
        out = add(x, y)
    torch.testing.assert_close(out, x + y)


def test_device_of_a_tensor(pair):
    x, y = pair
    with torch.cuda.device_of(x):
        out = add(x, y)
    torch.testing.assert_close(out, x + y)


def test_set_device_and_current_device(pair):
    torch.cuda.set_device(0)
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_set_device_by_name(pair):
    torch.cuda.set_device("cuda:0")
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_guard_as_a_decorator_of_ones_own(pair):
    def guarded(function):
        def inner(*args, **kwargs):
            tensor = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
            with torch.cuda.device(tensor.device.index):
                return function(*args, **kwargs)

        return inner

    torch.testing.assert_close(guarded(scale)(pair[0], 3.0), pair[0] * 3.0)


def test_each_visible_device():
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            x = torch.ones(300, device=f"cuda:{index}")
            assert (scale(x, 2.0) == 2).all()


def test_the_accelerator_of_any_vendor():
    if not torch.accelerator.is_available():
        pytest.skip("needs an accelerator")
    kind = torch.accelerator.current_accelerator().type
    x = torch.ones(300, device=kind)
    out = scale(x, 2.0)
    torch.accelerator.synchronize()
    assert torch.accelerator.device_count() >= 1
    assert torch.accelerator.current_device_index() == x.get_device()
    assert (out == 2).all()


def test_the_accelerators_device_index(pair):
    torch.accelerator.set_device_index(pair[0].device.index)
    torch.testing.assert_close(scale(pair[0], 2.0), pair[0] * 2)


def test_tritons_active_device():
    active = triton.runtime.driver.active.get_active_torch_device()
    x = torch.ones(300, device=active)
    assert x.device == active
    assert (scale(x, 2.0) == 2).all()


def test_tritons_device_interface(pair):
    interface = triton.runtime.driver.active.get_device_interface()
    interface.synchronize()
    with interface.device(interface.current_device()):
        out = add(*pair)
    interface.synchronize()
    torch.testing.assert_close(out, pair[0] + pair[1])
