"""Bandwidth of dropout, bf16, 4096 rows of 8192 to 65536. Bytes: one read and one write in each direction."""

import functools

import torch
import triton
from torch.nn import functional as F

from kernels.dropout import dropout
from kernels.peers import LINES, bandwidth, compiled, providers

PROVIDERS = providers(triton=dropout, copy=F.dropout, torch=F.dropout, compile=compiled(F.dropout))


def sweep(direction):
    return triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**i for i in range(13, 17)],
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=[LINES[name] for name in PROVIDERS],
        ylabel="GB/s",
        plot_name=direction,
        args={"M": 4096, "dtype": torch.bfloat16, "p": 0.1},
    )


@triton.testing.perf_report(sweep("forward"))
@bandwidth
def forward(provider, M, N, dtype, p):
    x = torch.randn(M, N, device="cuda", dtype=dtype)
    return 2 * x.nbytes, functools.partial(PROVIDERS[provider], x, p=p)


@triton.testing.perf_report(sweep("backward"))
@bandwidth
def backward(provider, M, N, dtype, p):
    x = torch.randn(M, N, device="cuda", dtype=dtype, requires_grad=True)
    out = PROVIDERS[provider](x, p=p)
    grad = torch.randn_like(out)
    return 2 * x.nbytes, lambda: torch.autograd.grad(out, x, grad, retain_graph=True)


if __name__ == "__main__":
    forward.run(print_data=True)
    backward.run(print_data=True)
