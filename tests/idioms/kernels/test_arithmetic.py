"""Arithmetic whose ends matter: signs of zeros, NaN, numbers that do not fit, and what type a comparison has."""

import pytest
import torch
import triton
import triton.language as tl

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@triton.jit
def compared_kernel(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, (a > b).to(tl.float32))
    tl.store(out + N + at, tl.reshape(a == b, (N // 4, 4)).reshape((N,)).to(tl.float32) + (a != b).to(tl.int32))
    tl.store(out + 2 * N + at, ((a > 0) + (b > 0)).to(tl.float32))
    tl.store(out + 3 * N, tl.sum((a <= b).to(tl.int32), axis=0).to(tl.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_comparison_is_of_one_bit(dtype):
    x, y = torch.randn(64, device="cuda").to(dtype), torch.randn(64, device="cuda").to(dtype)
    y[::5] = x[::5]
    out = torch.zeros(4 * 64, device="cuda")
    compared_kernel[(1,)](x, y, out, N=64)
    found = out.view(4, 64)
    torch.testing.assert_close(found[0], (x > y).float())
    torch.testing.assert_close(found[1], torch.ones(64, device="cuda"))
    torch.testing.assert_close(found[2], ((x > 0) ^ (y > 0)).float())
    assert found[3, 0] == (x <= y).sum()


@triton.jit
def extremes_kernel(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.minimum(a, b))
    tl.store(out + N + at, tl.maximum(a, b))
    tl.store(out + 2 * N + at, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 3 * N + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_smaller_of_zeros_and_nan(dtype):
    nan = float("nan")
    x = torch.tensor([nan, 2.0, -0.0, 0.0, 1.0, nan, -3.0, 5.0], device="cuda", dtype=dtype)
    y = torch.tensor([1.0, nan, 0.0, -0.0, 2.0, nan, -4.0, 5.0], device="cuda", dtype=dtype)
    out = torch.empty(4 * 8, device="cuda", dtype=dtype)
    extremes_kernel[(1,)](x, y, out, N=8)
    found = out.view(4, 8).float()
    expected = [
        [1.0, 2.0, -0.0, -0.0, 1.0, nan, -4.0, 5.0],
        [1.0, 2.0, 0.0, 0.0, 2.0, nan, -3.0, 5.0],
        [nan, nan, -0.0, -0.0, 1.0, nan, -4.0, 5.0],
        [nan, nan, 0.0, 0.0, 2.0, nan, -3.0, 5.0],
    ]
    expected = torch.tensor(expected, device="cuda")
    torch.testing.assert_close(found, expected, equal_nan=True)
    torch.testing.assert_close(found.signbit()[:, 2:4], expected.signbit()[:, 2:4])


@triton.jit
def converted_kernel(x, signed, unsigned, wide, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    tl.store(signed + at, a.to(tl.int32))
    tl.store(unsigned + at, a.to(tl.uint32).to(tl.int64))
    tl.store(wide + at, a.to(tl.int64))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_number_that_does_not_fit_is_the_largest(dtype):
    """NaN is 0 in 32 bits."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -7.5, 2.75, 0.0, 300.0, -0.5], device="cuda", dtype=dtype)
    signed = torch.empty(8, device="cuda", dtype=torch.int32)
    unsigned, wide = (torch.empty(8, device="cuda", dtype=torch.int64) for _ in range(2))
    converted_kernel[(1,)](x, signed, unsigned, wide, N=8)
    assert signed.tolist() == [0, 2**31 - 1, -(2**31), -7, 2, 0, 300, 0]
    assert unsigned.tolist() == [0, 2**32 - 1, 0, 0, 2, 0, 300, 0]
    assert wide.tolist()[3:] == [-7, 2, 0, 300, 0]
    if torch.version.hip is None:  # others compute 64 bits from two halves
        assert wide.tolist()[1:3] == [2**63 - 1, -(2**63)]


@triton.jit
def bits_kernel(x, y, inverted, high, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(inverted + at, ~a)
    tl.store(high + at, tl.umulhi(a, b))


def test_the_high_half_of_a_product():
    """Of signed numbers too, it is that of their bits."""
    x = torch.tensor([-1, 5, -(2**31), 2**31 - 1, 7, -9, 0, 123456789], device="cuda", dtype=torch.int32)
    y = torch.tensor([2, -3, -1, 2**31 - 1, 1, -9, 5, 987654321], device="cuda", dtype=torch.int32)
    inverted, high = torch.empty_like(x), torch.empty_like(x)
    bits_kernel[(1,)](x, y, inverted, high, N=8)
    products = [(a % 2**32) * (b % 2**32) >> 32 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert [value % 2**32 for value in high.tolist()] == products
    torch.testing.assert_close(inverted, ~x)


@triton.jit
def inverted_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, ~tl.load(x + at))


def test_the_bits_of_an_unsigned_number():
    x = torch.arange(0, 256, 8, device="cuda", dtype=torch.uint8)
    out = torch.empty_like(x)
    inverted_kernel[(1,)](x, out, N=32)
    torch.testing.assert_close(out, ~x)


@triton.jit
def fused_kernel(x, y, z, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.fma(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


def test_a_fused_product_is_rounded_once():
    x, y, z = (torch.randn(256, device="cuda").half() for _ in range(3))
    out = torch.empty_like(x)
    fused_kernel[(1,)](x, y, z, out, N=256)
    torch.testing.assert_close(out, (x.double() * y.double() + z.double()).half(), rtol=0, atol=0)
