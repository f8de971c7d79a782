"""Bandwidth of addition with 12 MiB to 1.5 GiB of memory traffic: two reads and one write."""

import operator

import torch
import triton

from kernels.add import add
from kernels.peers import bandwidth, compiled, providers, sweep

PROVIDERS = providers(triton=add, copy=torch.add, torch=torch.add, compile=compiled(operator.add))


@triton.testing.perf_report(sweep("add", "GB/s", PROVIDERS, "N", [2**i for i in range(20, 28)], dtype=torch.float32))
@bandwidth
def benchmark(provider, N, dtype):
    x, y = (torch.randn(N, device="cuda", dtype=dtype) for _ in range(2))
    return 3 * x.nbytes, lambda: PROVIDERS[provider](x, y)
