"""Bandwidth of GELU, 4096 rows of 4096 to 32768. Bytes: forward one read and one write, backward two reads and one write."""

import functools

import torch
import triton
from torch.nn import functional as F

from kernels.gelu import gelu
from kernels.peers import bandwidth, compiled, gradients_of, providers, sweep

PROVIDERS = providers(triton=gelu, copy=F.gelu, torch=F.gelu, compile=compiled(F.gelu))


def rows(direction, *dtypes):
    sizes = [2**i for i in range(12, 16)]
    return [
        sweep(f"{direction}-{form}", "GB/s", PROVIDERS, "N", sizes, M=4096, dtype=dtype, approximate=form)
        for dtype in dtypes
        for form in ("none", "tanh")
    ]


@triton.testing.perf_report(rows("forward", torch.float32, torch.bfloat16))
@bandwidth
def forward(provider, M, N, dtype, approximate):
    x = torch.randn(M, N, device="cuda", dtype=dtype)
    return 2 * x.nbytes, functools.partial(PROVIDERS[provider], x, approximate=approximate)


@triton.testing.perf_report(rows("backward", torch.bfloat16))
@bandwidth
def backward(provider, M, N, dtype, approximate):
    x = torch.randn(M, N, device="cuda", dtype=dtype, requires_grad=True)
    return 3 * x.nbytes, gradients_of(PROVIDERS[provider](x, approximate=approximate), x)
