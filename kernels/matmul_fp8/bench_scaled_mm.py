"""TFLOP/s of fp8 products with a scale by row or by block: a square, and layers of Llama 3.1 and DeepSeek-V3, down to few rows.

`torch` is PyTorch's own product, with sums as accurate as these; `fast` leaves whole sums to the matrix units, which keep fewer bits of
them. DeepGEMM stands beside the blocks if it is installed. Operands are random, in the encoding that the card multiplies.
"""

import functools
import unittest

import torch
import triton

from kernels.configs import choose
from kernels.configs.matmul_fp8 import MATMUL_FP8
from kernels.dispatch import cdiv
from kernels.matmul_fp8 import scaled_mm
from kernels.matmul_fp8.scaled_mm import BLOCK
from kernels.peers import LINES, REFUSALS, peer, providers, sweep, tflops

SHAPES = [(8192, 8192, 8192), (4096, 6144, 4096), (8192, 4096, 14336), (4096, 2112, 7168), (4096, 7168, 2048), (64, 7168, 2048)]
DEEPGEMM = peer("deep_gemm", "fp8_gemm_nt")


def of_pytorch(a, b, scale_a, scale_b, fast=False):
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast)


def of_deepgemm(a, b, scale_a, scale_b):
    out = a.new_empty((a.shape[0], b.shape[1]), dtype=torch.bfloat16)
    DEEPGEMM((a, scale_a), (b.t(), scale_b.t()), out)
    return out


ROWS = {"triton": scaled_mm, "torch": of_pytorch, "fast": functools.partial(of_pytorch, fast=True)}
BLOCKS = providers(triton=scaled_mm, torch=of_pytorch, deepgemm=DEEPGEMM and of_deepgemm)


def mark(name, candidates):
    return sweep(name, "TFLOP/s", candidates, ("M", "N", "K"), SHAPES, blocks=candidates is BLOCKS)


def drawn(M, N, K, blocks):
    """Return operands that are dense along K, and scales in the layout that PyTorch's product takes."""
    known = choose(MATMUL_FP8)
    encoding = (*known.native, *known.widened)[0]
    a, b = (torch.randn(size, K, device="cuda").to(encoding) for size in (M, N))
    shapes = ((cdiv(K, BLOCK), M), (cdiv(N, BLOCK), cdiv(K, BLOCK))) if blocks else ((1, M), (N, 1))
    scale_a, scale_b = (torch.rand(shape, device="cuda").add_(0.5).t() for shape in shapes)
    return a, b.t(), scale_a if blocks else scale_a.contiguous(), scale_b if blocks else scale_b.contiguous()


@triton.testing.perf_report([mark("forward-rows", ROWS), mark("forward-blocks", BLOCKS)])
def forward(provider, M, N, K, blocks):
    operands = drawn(M, N, K, blocks)
    run = functools.partial((BLOCKS if blocks else ROWS)[provider], *operands)
    try:
        run()
    except Exception as error:
        if provider == "triton" or type(error) not in (*REFUSALS, ValueError):
            raise
        raise unittest.SkipTest(f"{LINES[provider]} refuses it: {error}") from error
    return tflops(2 * M * N * K, run)
