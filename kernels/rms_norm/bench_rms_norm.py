"""Bandwidth of RMS norm, bf16, 256 MB per tensor.

Bytes: one read and one write of the rows forward, two reads and one write backward.
"""

import torch
import triton
from torch.nn import functional as F

from kernels.peers import bandwidth, compiled, gradients_of, peer, providers, sweep
from kernels.rms_norm import rms_norm

liger = peer("liger_kernel.ops.rms_norm", "LigerRMSNormFunction")
PROVIDERS = providers(
    triton=rms_norm,
    copy=F.rms_norm,
    torch=F.rms_norm,
    compile=compiled(F.rms_norm),
    liger=liger and (lambda x, shape, weight, eps: liger.apply(x, weight, eps)),
)


def rows(direction):
    sizes = [256, *(2**i for i in range(10, 18))]  # 512 performs like 1024, and would be another kernel to compile
    return sweep(direction, "GB/s", PROVIDERS, "N", sizes, elements=1 << 27, dtype=torch.bfloat16)


def inputs(N, elements, dtype):
    x = torch.randn(elements // N, N, device="cuda", dtype=dtype)
    return x, (N,), torch.randn(N, device="cuda", dtype=dtype), 1e-6


@triton.testing.perf_report(rows("forward"))
@bandwidth
def forward(provider, N, elements, dtype):
    arguments = inputs(N, elements, dtype)
    return 2 * arguments[0].nbytes, lambda: PROVIDERS[provider](*arguments)


@triton.testing.perf_report(rows("backward"))
@bandwidth
def backward(provider, N, elements, dtype):
    x, shape, weight, eps = inputs(N, elements, dtype)
    leaves = x.requires_grad_(), weight.requires_grad_()
    return 3 * x.nbytes, gradients_of(PROVIDERS[provider](x, shape, weight, eps), *leaves)
