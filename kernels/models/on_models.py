"""Every point of the list in `points.py`, beside its peers: `warpwave run cuda --bench on_models.py`.

It is a sweep of its own, because it takes longer than all others together. Units and bytes are those of each op's own benchmark.
"""

import operator

import torch
import triton
from torch.nn import functional as F

from kernels.add import add
from kernels.attention.bench_attention import FORWARD as ATTENTION
from kernels.cross_entropy import cross_entropy
from kernels.dropout import dropout
from kernels.gelu import gelu
from kernels.layer_norm import layer_norm
from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.matmul import matmul
from kernels.models.points import points
from kernels.peers import bandwidth, gradients_of, peer, providers, sweep, tflops
from kernels.rms_norm import rms_norm
from kernels.softmax import softmax

BF16 = torch.bfloat16
# Where rows are normalized or summed, peers are called with what the op's own benchmark gives them.
ROWS = {
    "layer_norm": (layer_norm, F.layer_norm, peer("liger_kernel.ops.layer_norm", "LigerLayerNormFunction"), None),
    "rms_norm": (rms_norm, F.rms_norm, peer("liger_kernel.ops.rms_norm", "LigerRMSNormFunction"), peer("quack", "rmsnorm")),
    "softmax": (softmax, torch.softmax, peer("liger_kernel.ops.softmax", "LigerSoftmaxFunction"), peer("quack.softmax", "softmax")),
    "gelu": (gelu, F.gelu, None, None),
    "add": (add, operator.add, None, None),
    "dropout": (dropout, F.dropout, None, None),
    "cross_entropy": (cross_entropy, F.cross_entropy, None, None),
}


def marks(op, direction, candidates, unit):
    """Return the benchmark of an op's points in one direction."""
    chosen = [point for point in points() if (point.op, point.direction) == (op, direction)]
    axes, values = [name for name, _ in chosen[0].sizes], list(dict.fromkeys(point.values for point in chosen))
    return sweep(f"{op}-{direction}", unit, candidates, axes, values, op=op)


def of_rows(direction, *ops):
    """Return the benchmarks of ops whose ceiling is a copy."""
    found = []
    for op in ops:
        _, _, liger, quack = ROWS[op]
        lines = providers(triton=op, copy=op, torch=op, liger=liger, quack=quack if direction == "forward" else None)
        found.append(marks(op, direction, lines, "GB/s"))
    return found


def call(provider, op, M, N):
    """Return the tensors that have a gradient, and the call of one provider on M rows of N columns, bf16."""
    ours, pytorch, liger, quack = ROWS[op]
    function = {"triton": ours, "torch": pytorch, "liger": liger and liger.apply, "quack": quack}[provider]
    x = torch.randn(M, N, device="cuda", dtype=BF16)
    leaves, rest = (x,), ()
    if op in ("layer_norm", "rms_norm"):
        leaves = (x, *torch.randn(2 if op == "layer_norm" else 1, N, device="cuda", dtype=BF16).unbind())
        shape, eps = () if provider in ("liger", "quack") else ((N,),), () if provider == "quack" else (1e-5,)
        rest = *shape, *leaves[1:], *eps
    elif op == "cross_entropy":
        rest = (torch.randint(N, (M,), device="cuda"),)
    elif op == "softmax":
        rest = () if provider in ("liger", "quack") else (-1,)
    elif op == "add":
        leaves, rest = (x, y := torch.randn_like(x)), (y,)
    elif op == "dropout":
        rest = (0.1,)
    return leaves, lambda: function(x, *rest)


@triton.testing.perf_report(of_rows("forward", *ROWS))
@bandwidth
def rows_forward(provider, op, M, N):
    leaves, run = call(provider, op, M, N)
    streams = {"add": 3, "cross_entropy": 1}.get(op, 2)
    return streams * leaves[0].nbytes, run


@triton.testing.perf_report(of_rows("backward", *(op for op in ROWS if op not in ("add", "dropout"))))
@bandwidth
def rows_backward(provider, op, M, N):
    leaves, run = call(provider, op, M, N)
    for leaf in leaves:
        leaf.requires_grad_()
    streams = 2 if op == "cross_entropy" else 3
    return streams * leaves[0].nbytes, gradients_of(run(), *leaves)


@triton.testing.perf_report(marks("matmul", "forward", {"triton": matmul, "torch": torch.matmul}, "TFLOP/s"))
def matmul_forward(provider, op, M, N, K):
    x, weight = torch.randn(M, K, device="cuda", dtype=BF16), torch.randn(N, K, device="cuda", dtype=BF16)
    function = matmul if provider == "triton" else torch.matmul
    return tflops(2 * M * N * K, lambda: function(x, weight.t()))


@triton.testing.perf_report(marks("linear_cross_entropy", "step", ("triton", "torch"), "TFLOP/s"))
def linear_cross_entropy_step(provider, op, M, H, V):
    x, weight = torch.randn(M, H, device="cuda", dtype=BF16), torch.randn(V, H, device="cuda", dtype=BF16) / H**0.5
    target = torch.randint(V, (M,), device="cuda")
    leaves = (x.requires_grad_(), weight.requires_grad_())
    loss = linear_cross_entropy if provider == "triton" else lambda x, weight, target: F.cross_entropy(F.linear(x, weight), target)
    return tflops(6 * M * H * V, lambda: torch.autograd.grad(loss(*leaves, target), leaves))


def attention_of(provider, sizes, requires_grad=False):
    """Return the inputs of a point of attention and the call. Causal: query i sees keys 0 to i, and there are as many of both."""
    B, H, KV, D, DV, S, T, causal = sizes
    shapes = (B, H, S, D), (B, KV, T, D), (B, KV, T, DV)
    leaves = [torch.randn(shape, device="cuda", dtype=BF16, requires_grad=requires_grad) for shape in shapes]
    return leaves, lambda: ATTENTION[provider](*leaves, is_causal=bool(causal), enable_gqa=H != KV)


def products(B, H, D, DV, S, T, causal, n_of_d, n_of_dv):
    return 2 * B * H * S * T * (n_of_d * D + n_of_dv * DV) / (2 if causal else 1)


@triton.testing.perf_report(marks("attention", "forward", [name for name in ATTENTION if name != "tl"], "TFLOP/s"))
def attention_forward(provider, op, B, H, KV, D, DV, S, T, causal):
    _, run = attention_of(provider, (B, H, KV, D, DV, S, T, causal))
    return tflops(products(B, H, D, DV, S, T, causal, 1, 1), run)


@triton.testing.perf_report(marks("attention", "backward", [name for name in ATTENTION if name not in ("tl", "fa3")], "TFLOP/s"))
def attention_backward(provider, op, B, H, KV, D, DV, S, T, causal):
    leaves, run = attention_of(provider, (B, H, KV, D, DV, S, T, causal), requires_grad=True)
    return tflops(products(B, H, D, DV, S, T, causal, 3, 2), gradients_of(run(), *leaves))
