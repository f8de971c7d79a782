"""The language's functions under other names: imported by name, or chosen once for all kernels of a package."""

import torch
import triton
import triton.language as tl
from triton.language import load, store

exp2 = tl.math.exp2
gather = tl.gather if hasattr(tl, "gather") else None


@triton.jit
def power(x):
    return exp2(x)


@triton.jit
def power_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    store(out_ptr + offsets, power(load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def reversed_kernel(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = load(x_ptr + offsets)
    store(out_ptr + offsets, gather(x, N - 1 - offsets, axis=0))


def test_functions_under_other_names(pair):
    out = torch.empty_like(pair[0])
    power_kernel[(triton.cdiv(out.numel(), 256),)](pair[0], out, out.numel(), BLOCK=256)
    torch.testing.assert_close(out, torch.exp2(pair[0]))


def test_a_function_that_is_chosen_for_all_kernels():
    x = torch.randn(64, device="cuda")
    out = torch.empty_like(x)
    reversed_kernel[(1,)](x, out, N=64)
    assert torch.equal(out, x.flip(0))
