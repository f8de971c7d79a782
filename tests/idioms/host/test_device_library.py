"""Functions of the vendors' device library, under the name that has no vendor."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    inner = 0.7978845608 * (value + 0.044715 * libdevice.pow(value, 3.0))
    tl.store(y + at, 0.5 * value * (1.0 + libdevice.tanh(inner)), mask=at < n)


@triton.jit
def softplus_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.extra.libdevice.log1p(tl.exp(value)), mask=at < n)


def test_a_kernel_that_calls_it_has_a_key():
    assert len(gelu_kernel.cache_key) > 32
    assert gelu_kernel.cache_key != softplus_kernel.cache_key


def test_a_module_imported_from_extra():
    x = torch.randn(300, device="cuda")
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(300, 128),)](x, y, 300, BLOCK=128)
    torch.testing.assert_close(y, torch.nn.functional.gelu(x, approximate="tanh"), rtol=1e-4, atol=1e-5)


def test_a_module_reached_through_the_language():
    x = torch.randn(300, device="cuda")
    y = torch.empty_like(x)
    softplus_kernel[(triton.cdiv(300, 128),)](x, y, 300, BLOCK=128)
    torch.testing.assert_close(y, torch.nn.functional.softplus(x), rtol=1e-4, atol=1e-5)
