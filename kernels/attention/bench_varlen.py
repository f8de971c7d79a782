"""TFLOP/s of attention of sequences of several lengths: two products forward, five backward, and half of each under a causal mask.

Lengths are drawn once: evenly between 1 and twice their mean. `torch` is PyTorch's `varlen_attn`, FlashAttention-2.
"""

import functools
import itertools
import random

import torch
import triton

from kernels.attention import varlen_attn
from kernels.peers import gradients_of, peer, providers, sweep, tflops

PROVIDERS = providers(triton=varlen_attn, torch=peer("torch.nn.attention.varlen", "varlen_attn"))  # since torch 2.10
# (sequences, mean length, heads)
SHAPES = [(64, 512, 16), (16, 1024, 16), (8, 4096, 16)]


def inputs(B, S, H, D, requires_grad):
    lengths = [random.Random(B + i).randint(1, 2 * S) for i in range(B)]
    ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
    tensors = [torch.randn(sum(lengths), H, D, device="cuda", dtype=torch.bfloat16, requires_grad=requires_grad) for _ in range(3)]
    return lengths, ends, tensors


def benchmark_of(direction, causal):
    name = f"varlen-{direction}-{'causal' if causal else 'full'}"
    return sweep(name, "TFLOP/s", PROVIDERS, ("B", "S", "H"), SHAPES, D=128, causal=causal, direction=direction)


@triton.testing.perf_report([benchmark_of(*each) for each in itertools.product(("forward", "backward"), (False, True))])
def attention(provider, B, S, H, D, causal, direction):
    lengths, ends, tensors = inputs(B, S, H, D, direction == "backward")
    longest = max(lengths)
    window = (-1, 0 if causal else -1)
    run = functools.partial(PROVIDERS[provider], *tensors, ends, ends, longest, longest, window_size=window)
    if direction == "backward":
        run = gradients_of(run(), *tensors)
    products = 2 if direction == "forward" else 5
    return tflops(products * 2 * H * D * sum(n * n for n in lengths) / (2 if causal else 1), run)
