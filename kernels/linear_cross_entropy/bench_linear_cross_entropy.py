"""Linear cross entropy, loss and gradients, bf16, hidden 4096, vocabulary 128256: TFLOP/s of three products, and peak memory.

The floor is those three products alone, each whole. A provider that computes the logits twice does a fourth, and shows as slower.
"""

import functools

import torch
import torch.nn.functional as F
import triton

from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.peers import peer, providers, sweep, tflops


def _unfused(input, weight, target):
    return F.cross_entropy(F.linear(input, weight), target)


def _liger(input, weight, target):
    return LIGER.apply(input, weight, target)[0]


LIGER = peer("liger_kernel.ops.fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction")
PROVIDERS = providers(
    triton=linear_cross_entropy,
    low=functools.partial(linear_cross_entropy, memory="low"),
    floor=_unfused,
    torch=_unfused,
    liger=LIGER and _liger,
)


def _products(input, weight):
    logits = torch.randn(input.shape[0], weight.shape[0], device="cuda", dtype=input.dtype)
    out, of_input, of_weight = torch.empty_like(logits), torch.empty_like(input), torch.empty_like(weight)

    def run():
        torch.mm(input, weight.t(), out=out)
        torch.mm(logits, weight, out=of_input)
        torch.mm(logits.t(), input, out=of_weight)

    return run


LAYER = {"H": 4096, "V": 128256, "dtype": torch.bfloat16}


def leaves_and_step(provider, N, H, V, dtype):
    input, weight = torch.randn(N, H, device="cuda", dtype=dtype), torch.randn(V, H, device="cuda", dtype=dtype) / H**0.5
    target = torch.randint(V, (N,), device="cuda")
    leaves = (input.requires_grad_(), weight.requires_grad_())
    return leaves, lambda: torch.autograd.grad(PROVIDERS[provider](*leaves, target), leaves)


@triton.testing.perf_report(sweep("linear_cross_entropy", "TFLOP/s", PROVIDERS, "N", [4096, 16384], **LAYER))
def benchmark(N, H, V, dtype, provider):
    leaves, run = leaves_and_step(provider, N, H, V, dtype)
    if provider == "floor":
        run = _products(*(leaf.detach() for leaf in leaves))
    return tflops(6 * N * H * V, run)


@triton.testing.perf_report(sweep("memory", "GiB", [kind for kind in PROVIDERS if kind != "floor"], "N", [16384], **LAYER))
def memory(N, H, V, dtype, provider):
    """Return the peak memory above the inputs, including gradients, in GiB."""
    _, run = leaves_and_step(provider, N, H, V, dtype)
    run()  # libraries keep workspaces
    before = torch.cuda.memory_allocated()
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 2**30
