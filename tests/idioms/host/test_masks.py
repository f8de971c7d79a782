"""Masks, scans and locks that the interpreter and the compiler must read alike."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def choose_kernel(x_ptr, y_ptr, out_ptr, split_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    from_x = (row < tl.load(split_ptr)) & (row >= 0)
    x = tl.load(x_ptr + row * BLOCK + columns, mask=from_x & (columns < BLOCK - 1), other=0.0)
    y = tl.load(y_ptr + row * BLOCK + columns, mask=~from_x & (columns < BLOCK - 1), other=0.0)
    tl.store(out_ptr + row * BLOCK + columns, x + y, mask=(from_x | (row == 3)) & (columns >= 0))


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scan_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    _, b = tl.associative_scan((tl.load(a_ptr + offsets), tl.load(b_ptr + offsets)), 0, affine)
    tl.store(out_ptr + offsets, b)


@triton.jit
def lock_kernel(x_ptr, out_ptr, lock_ptr, count_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offsets)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    if count == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        x += tl.load(out_ptr + offsets)
    tl.store(out_ptr + offsets, x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def test_a_mask_of_a_row(device):
    x, y = torch.randn(4, 32, device=device), torch.randn(4, 32, device=device)
    out = torch.zeros_like(x)
    choose_kernel[(4,)](x, y, out, torch.tensor([2], device=device), BLOCK=32)
    expected = torch.cat((x[:2], torch.zeros_like(x[:1]), y[3:]))
    expected[:, -1] = 0
    torch.testing.assert_close(out, expected)


def test_a_scan_of_pairs(device):
    a, b = torch.rand(16, device=device), torch.randn(16, device=device)
    out = torch.empty(16, device=device)
    scan_kernel[(1,)](a, b, out, BLOCK=16)
    state, expected = torch.zeros((), device=device), []
    for index in range(16):
        state = a[index] * state + b[index]
        expected.append(state)
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_a_lock(device):
    x = torch.randn(4, 64, device=device)
    out, lock = torch.empty(64, device=device), torch.zeros(2, dtype=torch.int32, device=device)
    lock_kernel[(4,)](x, out, lock, lock[1:], BLOCK=64)
    torch.testing.assert_close(out, x.sum(0))


@triton.jit
def lower_kernel(x_ptr, half_ptr, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)[:, None]
    at = row * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(half_ptr + at, tl.load(x_ptr + at), mask=row >= tl.arange(0, BLOCK)[None, :])


@triton.jit
def square_kernel(half_ptr, out_ptr, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)[:, None]
    at = row * BLOCK + tl.arange(0, BLOCK)[None, :]
    half = tl.load(half_ptr + at).to(tl.float32)
    tl.store(out_ptr + at, tl.where(row >= tl.arange(0, BLOCK)[None, :], half, 0.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_triangle_that_is_masked_after_the_load(dtype, device):
    x = torch.randn(16, 16, device=device).to(dtype)
    half, out = torch.empty_like(x), torch.empty(16, 16, device=device)
    lower_kernel[(1,)](x, half, BLOCK=16)
    square_kernel[(1,)](half, out, BLOCK=16)
    torch.testing.assert_close(out, x.tril().float())
