"""Kernels that a function makes, and other ways to name the language than `tl`."""

import pytest
import torch
import triton


def test_the_language_is_imported_where_the_kernel_is_made():
    import triton.language as tl

    @triton.jit
    def plus_one(x, y, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    x = torch.randn(50, device="cuda")
    y = torch.empty_like(x)
    plus_one[(1,)](x, y, 50, BLOCK=64)
    torch.testing.assert_close(y, x + 1)


@triton.jit
def negative(value):
    return -value


def make(factor, activation):
    import triton.language as tl

    scaling = tl.constexpr(factor)

    @triton.jit
    def helper(value):
        return activation(value) * scaling

    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr = 64):
        at = tl.arange(0, BLOCK)
        value = helper(tl.load(x + at, mask=at < n))
        if scaling > 2:
            value += 1
        tl.store(y + at, value, mask=at < n)

    return kernel


def test_a_kernel_from_a_factory():
    x = torch.randn(50, device="cuda")
    y = torch.empty_like(x)
    for factor in (1, 3):
        make(factor, negative)[(1,)](x, y, 50)
        torch.testing.assert_close(y, -x * factor + (factor > 2))


def test_a_tuned_kernel_with_a_constant_of_the_function_around_it():
    import triton.language as tl

    offset = tl.constexpr(3)

    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def shifted(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) + offset, mask=at < n)

    x = torch.randn(500, device="cuda")
    y = torch.empty_like(x)
    shifted[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, y, 500)
    torch.testing.assert_close(y, x + 3)


@triton.jit
def spelled_out_kernel(x, y, n, BLOCK: triton.language.constexpr):
    at = triton.language.arange(0, BLOCK)
    triton.language.store(y + at, triton.language.load(x + at, mask=at < n) * 2, mask=at < n)


def test_the_language_without_a_name_of_its_own():
    x = torch.randn(50, device="cuda")
    y = torch.empty_like(x)
    spelled_out_kernel[(1,)](x, y, 50, BLOCK=64)
    torch.testing.assert_close(y, 2 * x)


@triton.jit
def square_kernel(out, BLOCK: triton.language.constexpr):
    triton.language.static_assert(BLOCK <= 64, "BLOCK is above 64")
    triton.language.store(out + triton.language.arange(0, BLOCK), BLOCK * 1.0)


def test_a_kernel_that_refuses_its_constants():
    out = torch.zeros(128, device="cuda")
    square_kernel[(1,)](out, BLOCK=64)
    assert (out[:64] == 64).all()
    with pytest.raises(Exception, match="BLOCK is above 64"):
        square_kernel[(1,)](out, BLOCK=128)
