"""Bandwidth of dropout, bf16, 4096 rows of 8192 to 65536. Bytes: one read and one write in each direction."""

import functools

import torch
import triton
from torch.nn import functional as F

from kernels.dropout import dropout
from kernels.peers import bandwidth, compiled, gradients_of, providers, sweep

PROVIDERS = providers(triton=dropout, copy=F.dropout, torch=F.dropout, compile=compiled(F.dropout))


def rows(direction):
    return sweep(direction, "GB/s", PROVIDERS, "N", [2**i for i in range(13, 17)], M=4096, dtype=torch.bfloat16, p=0.1)


@triton.testing.perf_report(rows("forward"))
@bandwidth
def forward(provider, M, N, dtype, p):
    x = torch.randn(M, N, device="cuda", dtype=dtype)
    return 2 * x.nbytes, functools.partial(PROVIDERS[provider], x, p=p)


@triton.testing.perf_report(rows("backward"))
@bandwidth
def backward(provider, M, N, dtype, p):
    x = torch.randn(M, N, device="cuda", dtype=dtype, requires_grad=True)
    return 2 * x.nbytes, gradients_of(PROVIDERS[provider](x, p=p), x)
