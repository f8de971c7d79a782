"""Bandwidth of layer norm, bf16, 256 MB per tensor.

Bytes: one read and one write of the rows forward, two reads and one write backward.
"""

import torch
import triton
from torch.nn import functional as F

from kernels.layer_norm import layer_norm
from kernels.peers import bandwidth, compiled, gradients_of, peer, providers, sweep

liger = peer("liger_kernel.ops.layer_norm", "LigerLayerNormFunction")
PROVIDERS = providers(
    triton=layer_norm,
    copy=F.layer_norm,
    torch=F.layer_norm,
    compile=compiled(F.layer_norm),
    liger=liger and (lambda x, shape, weight, bias, eps: liger.apply(x, weight, bias, eps)),
)


def rows(direction):
    sizes = [256, *(2**i for i in range(10, 18))]  # 512 performs like 1024, and would be another kernel to compile
    return sweep(direction, "GB/s", PROVIDERS, "N", sizes, elements=1 << 27, dtype=torch.bfloat16)


def inputs(N, elements, dtype):
    x = torch.randn(elements // N, N, device="cuda", dtype=dtype)
    return x, (N,), *torch.randn(2, N, device="cuda", dtype=dtype).unbind(), 1e-5


@triton.testing.perf_report(rows("forward"))
@bandwidth
def forward(provider, N, elements, dtype):
    arguments = inputs(N, elements, dtype)
    return 2 * arguments[0].nbytes, lambda: PROVIDERS[provider](*arguments)


@triton.testing.perf_report(rows("backward"))
@bandwidth
def backward(provider, N, elements, dtype):
    x, shape, weight, bias, eps = inputs(N, elements, dtype)
    leaves = x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    return 3 * x.nbytes, gradients_of(PROVIDERS[provider](x, shape, weight, bias, eps), *leaves)
