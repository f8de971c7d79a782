"""A row that no thread's registers hold, and a product that leaves its precision to the compiler."""

import torch
import triton
import triton.language as tl


@triton.jit
def wide_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x - tl.max(x, 0))


@triton.jit
def multiply(a, b):
    return tl.dot(a, b)


@triton.jit
def product_kernel(x_ptr, y_ptr, N: tl.constexpr, NAMED: tl.constexpr):
    tile = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + tile)
    half = x.to(tl.float16)
    y = tl.dot(half, half)  # the same on every card
    if NAMED:
        y += tl.dot(x, x, input_precision="ieee")
        y = tl.dot(x, y, y, "ieee")
    else:
        y += multiply(x, x)
    tl.store(y_ptr + tile, y)


LAUNCHES = {
    "wide": lambda x, y: wide_kernel[(1,)](x, y, 8192, num_warps=1),
    "named": lambda x, y: product_kernel[(1,)](x, y, 16, True),
    "unnamed": lambda x, y: product_kernel[(1,)](x, y, 16, False),
}


@triton.testing.perf_report(triton.testing.Benchmark(["N"], [8192], "provider", list(LAUNCHES), list(LAUNCHES), "wide", {}))
def benchmark(N, provider):
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    return triton.testing.do_bench(lambda: LAUNCHES[provider](x, y))
