"""Bandwidth of cross entropy, bf16, 1 GiB of logits, at vocabulary sizes.

Bytes: one read for the loss; one read and one write for its gradient, and the same for both together, which is what writing over the logits
moves. A provider that moves more bytes therefore shows as slower.
"""

import torch
import torch.nn.functional as F
import triton

from kernels.cross_entropy import cross_entropy
from kernels.peers import bandwidth, compiled, gradients_of, peer, providers, sweep

ELEMENTS = 2**29
VOCABULARIES = [32768, 50257, 128256, 262144]


def _liger(logits, target):
    return LIGER.apply(logits, target, None, -100)[0]


LIGER = peer("liger_kernel.ops.cross_entropy", "LigerCrossEntropyFunction")
LOSS = providers(triton=cross_entropy, copy=F.cross_entropy, torch=F.cross_entropy, compile=compiled(F.cross_entropy))
GRADIENT = providers(**LOSS, liger=LIGER and _liger)


def _drawn(V, dtype):
    rows = ELEMENTS // V
    return torch.randn(rows, V, device="cuda", dtype=dtype), torch.randint(V, (rows,), device="cuda")


def _mark(name, lines):
    return triton.testing.perf_report(sweep(name, "GB/s", lines, "V", VOCABULARIES, dtype=torch.bfloat16))


@_mark("cross_entropy", LOSS)
@bandwidth
def benchmark(provider, V, dtype):
    logits, target = _drawn(V, dtype)
    return logits.nbytes, lambda: LOSS[provider](logits, target)


@_mark("cross_entropy_backward", LOSS)
@bandwidth
def benchmark_backward(provider, V, dtype):
    logits, target = _drawn(V, dtype)
    return 2 * logits.nbytes, gradients_of(LOSS[provider](logits.requires_grad_(), target), logits)


@_mark("cross_entropy_and_gradient", GRADIENT)
@bandwidth
def benchmark_gradient(provider, V, dtype):
    logits, target = _drawn(V, dtype)
    logits.requires_grad_()
    run = GRADIENT[provider]

    def step():
        options = {"inplace_backward": True} if provider == "triton" else {}
        return torch.autograd.grad(run(logits, target, **options), logits)

    return 2 * logits.nbytes, step
