"""Bandwidth of softmax and log_softmax: rows of any length in 2**29 elements, and many short rows.

Bytes: forward one read and one write, backward two reads and one write.
"""

import functools

import torch
import triton

from kernels.peers import PEERS, bandwidth, compiled, gradients_of, peer, providers, sweep
from kernels.softmax import log_softmax, softmax


def of_pytorch(op):
    return getattr(torch, op)


def of_triton(op):
    return {"softmax": softmax, "log_softmax": log_softmax}[op]


def of_compile(op):
    return compiled(getattr(torch, op))


def of_peer(module, name):
    """Peers only have softmax over the last dimension."""
    function = peer(module, name)
    return function and (lambda op: lambda x, dim: getattr(function, "apply", function)(x))


PROVIDERS = providers(
    triton=of_triton,
    copy=of_pytorch,
    torch=of_pytorch,
    compile=of_compile,
    liger=of_peer("liger_kernel.ops.softmax", "LigerSoftmaxFunction"),
    quack=of_peer("quack.softmax", "softmax"),
)


def benchmark_of(name, op, dtype, shapes):
    candidates = [name for name in PROVIDERS if op == "softmax" or name not in PEERS]
    return sweep(name, "GB/s", candidates, ("M", "N"), shapes, op=op, dtype=dtype)


def rows_of(*lengths):
    return [(2**29 // length, length) for length in lengths]


@triton.testing.perf_report(
    [
        benchmark_of("forward-fp32", "softmax", torch.float32, rows_of(64, 1024, 8192, 32768, 65536, 262144)),
        benchmark_of("forward-bf16", "softmax", torch.bfloat16, rows_of(256, 4096, 16384, 32768, 50257, 65536, 131072, 262144)),
        benchmark_of("forward-short", "softmax", torch.float32, [(2048 * length, length) for length in (16, 64, 512)]),
        benchmark_of("forward-log", "log_softmax", torch.bfloat16, rows_of(4096, 32768, 131072)),
    ]
)
@bandwidth
def forward(provider, M, N, op, dtype):
    x = torch.randn(M, N, device="cuda", dtype=dtype)
    return 2 * x.nbytes, functools.partial(PROVIDERS[provider](op), x, dim=-1)


@triton.testing.perf_report(
    [
        # Only lengths from the forward sweep above: another length would be one more kernel to compile for every card.
        benchmark_of("backward-bf16", "softmax", torch.bfloat16, rows_of(256, 4096, 16384, 65536, 262144)),
        benchmark_of("backward-log", "log_softmax", torch.bfloat16, rows_of(4096, 131072)),
    ]
)
@bandwidth
def backward(provider, M, N, op, dtype):
    x = torch.randn(M, N, device="cuda", dtype=dtype, requires_grad=True)
    return 3 * x.nbytes, gradients_of(PROVIDERS[provider](op)(x, dim=-1), x)
