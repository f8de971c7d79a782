"""Kernels that compile on one vendor's card and cannot be launched, or do not compile, on another's."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def product_kernel(x_ptr, y_ptr, out_ptr, K, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for step in tl.range(0, K, num_stages=3):
        x = tl.load(x_ptr + step * N * N + rows * N + columns)
        y = tl.load(y_ptr + step * N * N + rows * N + columns)
        total = tl.dot(x, y, total)
    tl.store(out_ptr + rows * N + columns, total)


@triton.jit
def broken_kernel(x_ptr, y_ptr):
    tl.store(y_ptr, tl.load(x_ptr) + tl.arange(0, 3))  # no power of two


LAUNCHES = {
    "32 warps": lambda x, y: copy_kernel[(1,)](x, y, 2048, num_warps=32),
    "shared memory": lambda x, y: product_kernel[(1,)](x, x, y, 4, 128, num_warps=8),
    "broken": lambda x, y: broken_kernel[(1,)](x, y),
    "after": lambda x, y: copy_kernel[(1,)](x, y, 1024, num_warps=4),
}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"], x_vals=[1 << 16], line_arg="provider", line_vals=list(LAUNCHES), line_names=list(LAUNCHES), plot_name="limits", args={}
    )
)
def benchmark(N, provider):
    x, y = torch.randn(N, device="cuda", dtype=torch.float16), torch.empty(N, device="cuda")
    return triton.testing.do_bench(lambda: LAUNCHES[provider](x, y))
