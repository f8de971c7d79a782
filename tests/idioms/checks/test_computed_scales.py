"""Numbers of the host that are computed from data, and passed to a kernel: what is launched does not depend on them."""

import math

import torch
from small_kernels import add, scale


def test_a_power_of_two(pair):
    out = add(*pair)
    exponent = math.floor(math.log2(out.abs().max().item()))
    torch.testing.assert_close(scale(out, math.pow(2.0, -exponent)), out / 2.0**exponent)


def test_at_least_so_much(pair):
    out = add(*pair)
    largest = max(out.abs().max().item(), 1e-12)
    smaller = min(448.0 / largest, 10_000.0)
    torch.testing.assert_close(scale(out, smaller), out * smaller)


def test_the_larger_of_two_results(pair):
    out = add(*pair)
    bound = max(out.max().item(), -out.min().item())
    torch.testing.assert_close(scale(out, 1 / bound), out / bound)


def test_a_check_with_math(pair):
    out = add(*pair)
    assert math.isfinite(out.sum().item())
    assert math.isclose(out.sum().item(), (pair[0] + pair[1]).sum().item(), rel_tol=1e-3, abs_tol=1e-3)
    torch.testing.assert_close(scale(out, 2.0), 2 * out)
