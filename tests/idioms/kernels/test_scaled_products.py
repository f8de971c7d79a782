"""Products of microscaled numbers: each group of 32 elements along K has a power of two as its scale."""

import pytest
import torch
import triton
import triton.language as tl

M, N, K = 32, 16, 128
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@triton.jit
def scaled_kernel(a, a_scale, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, BYTES: tl.constexpr):
    left = tl.load(a + tl.arange(0, M)[:, None] * BYTES + tl.arange(0, BYTES)[None, :])
    scale = tl.load(a_scale + tl.arange(0, M)[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    right = tl.load(b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    total = tl.dot_scaled(left, scale, FORMAT, right, None, "bf16")
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


def numbers(data, format_):
    if format_ != "e2m1":
        return data.view(torch.float8_e5m2 if format_ == "e5m2" else torch.float8_e4m3fn).float()
    pairs = torch.stack([data & 15, data >> 4], dim=-1).flatten(1)
    return torch.tensor(E2M1, device=data.device)[pairs.long()]


@pytest.mark.parametrize("most", [0x0B, 0x7B], ids=["tiny", "any"])
@pytest.mark.parametrize("format_", ["e5m2", "e4m3", "e2m1"])
def test_a_product_of_scaled_numbers(format_, most):
    """The smallest numbers of fp8 count, too."""
    width = K // 2 if format_ == "e2m1" else K
    a = torch.randint(256, (M, width), device="cuda", dtype=torch.uint8) & (0x80 | most)
    b = torch.randn(K, N, device="cuda", dtype=torch.bfloat16)
    scale = torch.randint(120, 134, (M, K // 32), device="cuda", dtype=torch.uint8)
    out = torch.empty(M, N, device="cuda")
    scaled_kernel[(1,)](a, scale, b, out, M, N, K, format_, width)
    expected = numbers(a, format_) * torch.exp2(scale.float() - 127).repeat_interleave(32, dim=1) @ b.float()
    torch.testing.assert_close(out / expected.abs().max(), expected / expected.abs().max(), rtol=1e-3, atol=1e-5)
