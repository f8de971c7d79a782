"""Arithmetic in bf16 itself, not after a conversion to fp32."""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(x, gate, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0.0), tl.load(gate + at, mask=at < n, other=0.0)
    a = tl.where(a > 0, a * b, -a + b)
    tl.store(y + at, a, mask=at < n)


@triton.jit
def largest_kernel(x, y, total, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=-float("inf"))
    tl.store(y, tl.max(a, 0))
    tl.store(total, tl.sum(tl.where(at < n, a, 0.0), 0))


def test_arithmetic_and_comparisons_in_bf16():
    x, gate = (torch.randn(300, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    y = torch.empty_like(x)
    swiglu_kernel[(triton.cdiv(300, 128),)](x, gate, y, 300, BLOCK=128)
    torch.testing.assert_close(y, torch.where(x > 0, x * gate, gate - x))


def test_reductions_of_bf16():
    x = torch.randn(300, device="cuda", dtype=torch.bfloat16)
    y, total = torch.empty(1, device="cuda", dtype=torch.bfloat16), torch.empty(1, device="cuda")
    largest_kernel[(1,)](x, y, total, 300, BLOCK=512)
    assert y[0] == x.max()
    torch.testing.assert_close(total[0], x.float().sum(), rtol=1e-2, atol=1e-1)
