"""TFLOP/s of the matrix product, and of the linear layer with its activation: square matrices, and layers of language models.

`torch` is the vendor's library, with GELU as a separate kernel. Operands are random: constants draw less power and run faster.
"""

import functools

import torch
import triton
from torch.nn import functional as F

from kernels.matmul import linear, matmul
from kernels.peers import compiled, gradients_of, sweep, tflops

SQUARES = [(n, n, n) for n in (1024, 2048, 4096, 8192, 16384)]
LAYERS = [(4096, 4096, 14336), (8192, 28672, 8192), (16384, 4096, 4096), (4096, 128256, 4096)]
# An inner dimension that prevents vector loads, and few tiles.
AWKWARD = [(4096, 4096, 4093), (512, 512, 4096)]
# One token through layers of 4096 and 14336: what counts is to read the weights.
ROWS = [(1, 4096, 4096), (1, 14336, 4096), (1, 4096, 14336)]


def torch_linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


MATMUL = {"triton": matmul, "torch": torch.matmul}
LINEAR = {"triton": functools.partial(linear, activation="gelu"), "torch": torch_linear_gelu, "compile": compiled(torch_linear_gelu)}
# The product alone: the ideal time of the fused layer.
FORWARD = LINEAR | {"plain": lambda x, weight, bias: matmul(x, weight.t())}


def mark(name, shapes, providers, **args):
    return sweep(name, "TFLOP/s", providers, ("M", "N", "K"), shapes, **args)


def operands(M, N, K, dtype):
    """Return the rows of an input and of a weight, both dense along K, as in layers."""
    return torch.randn(M, K, device="cuda", dtype=dtype), torch.randn(N, K, device="cuda", dtype=dtype)


@triton.testing.perf_report(
    [
        mark("forward", SQUARES + LAYERS + AWKWARD, MATMUL, dtype=torch.bfloat16),
        mark("forward-fp16", [(4096, 4096, 4096)], MATMUL, dtype=torch.float16),
        mark("forward-fp32", [(4096, 4096, 4096)], MATMUL, dtype=torch.float32),
        mark("one-row", ROWS, MATMUL, dtype=torch.bfloat16),
    ]
)
def forward(provider, M, N, K, dtype):
    x, weight = operands(M, N, K, dtype)
    return tflops(2 * M * N * K, lambda: MATMUL[provider](x, weight.t()))


@triton.testing.perf_report([mark("batched", [(2048, 2048, 128), (1024, 1024, 1024)], MATMUL, batch=32)])
def batched(provider, M, N, K, batch):
    a, b = torch.randn(batch, M, K, device="cuda", dtype=torch.bfloat16), torch.randn(batch, K, N, device="cuda", dtype=torch.bfloat16)
    return tflops(2 * batch * M * N * K, lambda: MATMUL[provider](a, b))


@triton.testing.perf_report([mark("forward-linear-gelu", [(4096, 4096, 4096), (4096, 14336, 4096), (8192, 28672, 8192)], FORWARD)])
def forward_linear_gelu(provider, M, N, K):
    x, weight = operands(M, N, K, torch.bfloat16)
    bias = torch.randn(N, device="cuda", dtype=torch.bfloat16)
    return tflops(2 * M * N * K, lambda: FORWARD[provider](x, weight, bias))


@triton.testing.perf_report([mark("backward-linear-gelu", [(4096, 4096, 4096), (4096, 14336, 4096), (8192, 28672, 8192)], LINEAR)])
def backward_linear_gelu(provider, M, N, K):
    x, weight = (operand.requires_grad_() for operand in operands(M, N, K, torch.bfloat16))
    bias = torch.randn(N, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    return tflops(4 * M * N * K, gradients_of(LINEAR[provider](x, weight, bias), x, weight, bias))
