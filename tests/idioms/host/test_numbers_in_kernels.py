"""Numbers that are tensors within a kernel: arguments of the host, and the variables of loops."""

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add


@triton.jit
def scaled_kernel(x, y, scale, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    tl.store(y + at, a * scale.to(a.dtype), mask=at < n)


@triton.jit
def promoted_kernel(x, y, scale, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * scale, mask=at < n)


@triton.jit
def rows_kernel(x, y, rows, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + row.to(tl.int64) * stride + at)
    tl.store(y + at, total)


@triton.jit
def staged_kernel(x, y, rows, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(0, rows, 1, num_stages=2):
        total += tl.load(x + (row * stride).to(tl.int64) + at)
    for row in range(0, rows, num_stages=2):
        if row == 0:
            total += 1.0
    tl.store(y + at, total)


@triton.jit
def static_kernel(x, y, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.static_range(ROWS):
        if row % 2 == 0:
            total += tl.load(x + row * stride + at)
    tl.store(y + at, total)


@triton.jit
def doubled_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    two = tl.full((), 2.0, tl.bfloat16)
    tl.store(y + at, tl.load(x + at, mask=at < n) * two, mask=at < n)


def test_a_constant_in_bf16():
    x = torch.randn(100, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    doubled_kernel[(1,)](x, y, 100, BLOCK=128)
    torch.testing.assert_close(y, x * 2)


def test_a_float_of_the_host_is_converted():
    x = torch.randn(100, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)
    scaled_kernel[(1,)](x, y, 0.5, 100, BLOCK=128)
    torch.testing.assert_close(y, x * 0.5)


def test_a_float_of_the_host_is_fp32():
    x = torch.randn(100, device="cuda", dtype=torch.float16)
    y = torch.empty(100, device="cuda")
    promoted_kernel[(1,)](x, y, 0.3, 100, BLOCK=128)
    torch.testing.assert_close(y, x.float() * torch.tensor(0.3), rtol=1e-6, atol=0)


def test_a_loop_variable_is_converted():
    x, y = torch.randn(5, 64, device="cuda"), torch.empty(64, device="cuda")
    rows_kernel[(1,)](x, y, 5, x.stride(0), BLOCK=64)
    torch.testing.assert_close(y, x.sum(0))


def test_loops_with_options():
    x, y = torch.randn(5, 64, device="cuda"), torch.empty(64, device="cuda")
    staged_kernel[(1,)](x, y, 5, x.stride(0), BLOCK=64)
    torch.testing.assert_close(y, x.sum(0) + 1)


def test_a_loop_that_is_unrolled():
    x, y = torch.randn(5, 64, device="cuda"), torch.empty(64, device="cuda")
    static_kernel[(1,)](x, y, x.stride(0), ROWS=5, BLOCK=64)
    torch.testing.assert_close(y, x[::2].sum(0))


@pytest.mark.filterwarnings("error")
def test_numbers_that_become_too_large():
    x = torch.tensor([3e38, float("inf"), 1.0], device="cuda")
    y = torch.tensor([3e38, float("-inf"), 2.0], device="cuda")
    expected = torch.tensor([float("inf"), float("nan"), 3.0], device="cuda")
    torch.testing.assert_close(add(x, y), expected, equal_nan=True)
