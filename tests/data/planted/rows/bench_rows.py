"""Five faults that only the binary shows, or the compiler of the other vendor; and beside them the same kernels without."""

import torch
import triton
import triton.language as tl


@triton.jit
def held_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.arange(0, BLOCK), x - tl.max(x, 0))


@triton.jit
def product_kernel(x_ptr, y_ptr, steps, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for step in tl.range(0, steps, num_stages=3):
        total = tl.dot(tl.load(x_ptr + step * N * N + at), tl.load(x_ptr + (step + 1) * N * N + at), total)
    tl.store(y_ptr + at, total)


@triton.jit
def strided_kernel(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + columns, tl.load(x_ptr + tl.program_id(0) * stride + columns))


@triton.jit
def clock_kernel(y_ptr):
    tl.store(y_ptr, tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], dtype=tl.int32, is_pure=False, pack=1))


def halves(n):
    return torch.empty(n, device="cuda", dtype=torch.float16)


LAUNCHES = {
    "sound": lambda: held_kernel[(1,)](halves(4096), halves(4096), 4096, num_warps=4),
    "spill": lambda: held_kernel[(1,)](torch.empty(16384, device="cuda"), halves(16384), 16384, num_warps=1),
    "shared memory": lambda: product_kernel[(1,)](halves(1 << 17), halves(1 << 14), 4, 128, num_warps=8),
    "threads": lambda: held_kernel[(1,)](halves(4096), halves(4096), 4096, num_warps=32),
    "aligned": lambda: strided_kernel[(8,)](halves(1 << 14), halves(1 << 14), 2048, 2048, num_warps=4),
    "unaligned": lambda: strided_kernel[(8,)](halves(1 << 14), halves(1 << 14), 2047, 2048, num_warps=4),
    "one vendor": lambda: clock_kernel[(1,)](torch.empty(1, device="cuda", dtype=torch.int32)),
    "after": lambda: held_kernel[(1,)](halves(8192), halves(8192), 8192, num_warps=8),
}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        ["N"], [1], line_arg="provider", line_vals=list(LAUNCHES), line_names=list(LAUNCHES), plot_name="rows", args={}
    )
)
def benchmark(N, provider):
    return triton.testing.do_bench(LAUNCHES[provider])
