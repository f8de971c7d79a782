"""Bandwidth of layer norm, bf16, 256 MB per tensor.

Bytes: one read and one write of the rows forward, two reads and one write backward.
"""

import torch
import triton
from torch.nn import functional as F

from kernels.layer_norm import layer_norm
from kernels.peers import LINES, bandwidth, compiled, peer, providers

liger = peer("liger_kernel.ops.layer_norm", "LigerLayerNormFunction")
PROVIDERS = providers(
    triton=layer_norm,
    copy=F.layer_norm,
    torch=F.layer_norm,
    compile=compiled(F.layer_norm),
    liger=liger and (lambda x, shape, weight, bias, eps: liger.apply(x, weight, bias, eps)),
)


def sweep(direction):
    return triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[256, *(2**i for i in range(10, 18))],  # 512 performs like 1024, and would be another kernel to compile
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=[LINES[name] for name in PROVIDERS],
        ylabel="GB/s",
        plot_name=direction,
        args={"elements": 1 << 27, "dtype": torch.bfloat16},
    )


def inputs(N, elements, dtype):
    x = torch.randn(elements // N, N, device="cuda", dtype=dtype)
    return x, (N,), *torch.randn(2, N, device="cuda", dtype=dtype).unbind(), 1e-5


@triton.testing.perf_report(sweep("forward"))
@bandwidth
def forward(provider, N, elements, dtype):
    arguments = inputs(N, elements, dtype)
    return 2 * arguments[0].nbytes, lambda: PROVIDERS[provider](*arguments)


@triton.testing.perf_report(sweep("backward"))
@bandwidth
def backward(provider, N, elements, dtype):
    x, shape, weight, bias, eps = inputs(N, elements, dtype)
    leaves = x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    out = PROVIDERS[provider](x, shape, weight, bias, eps)
    grad = torch.randn_like(out)
    return 3 * x.nbytes, lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


if __name__ == "__main__":
    forward.run(print_data=True)
    backward.run(print_data=True)
