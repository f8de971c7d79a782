"""Tensors on the host: a launch refuses them, unless the memory is pinned; results and copies are where torch puts them."""

import pytest
import torch
from small_kernels import add_kernel, scale, scale_kernel

REFUSED = "cannot be accessed from Triton"


def test_a_tensor_that_was_forgotten_on_the_host(pair):
    with pytest.raises(ValueError, match=REFUSED):
        add_kernel[(4,)](pair[0], torch.randn(1000), torch.empty_like(pair[0]), 1000, BLOCK=256)
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_all_tensors_on_the_host():
    with pytest.raises(ValueError, match=REFUSED):
        scale(torch.ones(300), 2.0)


def test_a_result_on_the_host(pair):
    out = torch.empty(1000)
    with pytest.raises(ValueError, match=REFUSED):
        scale_kernel[(4,)](pair[0], out, 1000, 2.0, BLOCK=256)


def test_a_view_of_a_copy_on_the_host(pair):
    with pytest.raises(ValueError, match=REFUSED):
        scale(pair[0].cpu()[1:], 2.0)


def test_a_number_in_a_tensor_on_the_host(pair):
    """It is a pointer, too."""
    with pytest.raises(ValueError, match=REFUSED):
        add_kernel[(4,)](pair[0], torch.tensor(2.0), torch.empty_like(pair[0]), 1, BLOCK=256)


def test_a_parameter_of_a_module_on_the_host():
    weight = torch.nn.Linear(16, 16).weight
    with pytest.raises(ValueError, match=REFUSED):
        scale(weight.detach(), 2.0)
    assert scale(torch.nn.Linear(16, 16).cuda().weight.detach(), 2.0).is_cuda


def test_no_program_gets_a_tensor_on_the_host():
    """An empty grid is no excuse."""
    with pytest.raises(ValueError, match=REFUSED):
        scale_kernel[(0,)](torch.ones(300), torch.ones(300), 0, 2.0, BLOCK=256)


def test_pinned_memory_is_in_reach(pair):
    pinned = torch.ones(1000).pin_memory()
    assert pinned[500:].is_pinned()
    out = torch.empty(500, pin_memory=True)
    scale_kernel[(2,)](pinned[500:], out, 500, 2.0, BLOCK=256)
    torch.cuda.synchronize()
    assert (out == 2).all()


def test_an_empty_tensor_on_the_host(pair):
    """It has no address that could be wrong."""
    out = torch.empty_like(pair[0])
    add_kernel[(4,)](pair[0], torch.empty(0), out, 0, BLOCK=256)


def test_a_copy_is_where_its_source_is(pair):
    with pytest.warns(UserWarning, match="copy construct"):
        copies = [torch.tensor(pair[0]), torch.as_tensor(pair[0]), torch.asarray(pair[0])]
    for copy in copies:
        assert copy.is_cuda
        torch.testing.assert_close(scale(copy, 2.0), 2 * pair[0])
    assert pair[0].is_cuda
