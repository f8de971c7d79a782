"""Bandwidth of GELU, 4096 rows of 4096 to 32768. Bytes: forward one read and one write, backward two reads and one write."""

import functools

import torch
import triton
from torch.nn import functional as F

from kernels.gelu import gelu
from kernels.peers import LINES, bandwidth, compiled, providers

PROVIDERS = providers(triton=gelu, copy=F.gelu, torch=F.gelu, compile=compiled(F.gelu))


def benchmark_of(direction, dtypes):
    return [
        triton.testing.Benchmark(
            x_names=["N"],
            x_vals=[2**i for i in range(12, 16)],
            line_arg="provider",
            line_vals=list(PROVIDERS),
            line_names=[LINES[name] for name in PROVIDERS],
            ylabel="GB/s",
            plot_name=f"{direction}-{approximate}",
            args={"M": 4096, "dtype": dtype, "approximate": approximate},
        )
        for dtype in dtypes
        for approximate in ("none", "tanh")
    ]


@triton.testing.perf_report(benchmark_of("forward", [torch.float32, torch.bfloat16]))
@bandwidth
def forward(provider, M, N, dtype, approximate):
    x = torch.randn(M, N, device="cuda", dtype=dtype)
    return 2 * x.nbytes, functools.partial(PROVIDERS[provider], x, approximate=approximate)


@triton.testing.perf_report(benchmark_of("backward", [torch.bfloat16]))
@bandwidth
def backward(provider, M, N, dtype, approximate):
    x = torch.randn(M, N, device="cuda", dtype=dtype, requires_grad=True)
    out = PROVIDERS[provider](x, approximate=approximate)
    grad = torch.randn_like(out)
    return 3 * x.nbytes, lambda: torch.autograd.grad(out, x, grad, retain_graph=True)


if __name__ == "__main__":
    forward.run(print_data=True)
    backward.run(print_data=True)
