"""TFLOP/s of attention of sequences of several lengths: two products forward, five backward, and half of each under a causal mask.

Lengths are drawn once: evenly between 1 and twice their mean. `torch` is PyTorch's `varlen_attn`, FlashAttention-2.
"""

import functools
import itertools
import random

import torch
import triton

from kernels.attention import varlen_attn
from kernels.peers import LINES, peer, providers

PROVIDERS = providers(triton=varlen_attn, torch=peer("torch.nn.attention.varlen", "varlen_attn"))  # since torch 2.10
# (sequences, mean length, heads)
SHAPES = [(64, 512, 16), (16, 1024, 16), (8, 4096, 16)]


def inputs(B, S, H, D, requires_grad):
    lengths = [random.Random(B + i).randint(1, 2 * S) for i in range(B)]
    ends = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
    tensors = [torch.randn(sum(lengths), H, D, device="cuda", dtype=torch.bfloat16, requires_grad=requires_grad) for _ in range(3)]
    return lengths, ends, tensors


@triton.testing.perf_report(
    [
        triton.testing.Benchmark(
            x_names=["B", "S", "H"],
            x_vals=SHAPES,
            line_arg="provider",
            line_vals=list(PROVIDERS),
            line_names=[LINES[name] for name in PROVIDERS],
            ylabel="TFLOP/s",
            plot_name=f"varlen-{direction}-{'causal' if causal else 'full'}",
            args={"D": 128, "causal": causal, "direction": direction},
        )
        for direction, causal in itertools.product(("forward", "backward"), (False, True))
    ]
)
def attention(provider, B, S, H, D, causal, direction):
    lengths, ends, tensors = inputs(B, S, H, D, direction == "backward")
    longest = max(lengths)
    window = (-1, 0 if causal else -1)
    run = functools.partial(PROVIDERS[provider], *tensors, ends, ends, longest, longest, window_size=window)
    if direction == "backward":
        out = run()
        run = functools.partial(torch.autograd.grad, out, tensors, torch.randn_like(out), retain_graph=True)
    median, fast, slow = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])
    products = 2 if direction == "forward" else 5
    flops = products * 2 * H * D * sum(n * n for n in lengths) / (2 if causal else 1)
    return flops / median * 1e-9, flops / slow * 1e-9, flops / fast * 1e-9


if __name__ == "__main__":
    attention.run(print_data=True)
