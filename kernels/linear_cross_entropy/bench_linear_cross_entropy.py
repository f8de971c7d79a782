"""Linear cross entropy, loss and gradients, bf16, hidden 4096, vocabulary 128256: TFLOP/s of its three products.

The floor is those three products and nothing else, each whole. A provider that makes the logits twice does a fourth, and shows as slower.
"""

import functools

import torch
import torch.nn.functional as F
import triton

from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.peers import peer, providers


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
NAMES = {"triton": "Triton", "low": "Triton (little memory)", "floor": "Three products", "torch": "PyTorch", "liger": "Liger"}


def _products(input, weight):
    logits = torch.randn(input.shape[0], weight.shape[0], device="cuda", dtype=input.dtype)
    out, of_input, of_weight = torch.empty_like(logits), torch.empty_like(input), torch.empty_like(weight)

    def run():
        torch.mm(input, weight.t(), out=out)
        torch.mm(logits, weight, out=of_input)
        torch.mm(logits.t(), input, out=of_weight)

    return run


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[4096, 16384],
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=[NAMES[name] for name in PROVIDERS],
        ylabel="TFLOP/s",
        plot_name="linear_cross_entropy",
        args={"H": 4096, "V": 128256, "dtype": torch.bfloat16},
    )
)
def benchmark(N, H, V, dtype, provider):
    input, weight = torch.randn(N, H, device="cuda", dtype=dtype), torch.randn(V, H, device="cuda", dtype=dtype) / H**0.5
    target = torch.randint(V, (N,), device="cuda")
    leaves = (input.requires_grad_(), weight.requires_grad_())
    if provider == "floor":
        run = _products(input.detach(), weight.detach())
    else:

        def run():
            return torch.autograd.grad(PROVIDERS[provider](*leaves, target), leaves)

    ms, fast, slow = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])

    def tflops(ms):
        return 6 * N * H * V / ms * 1e-9

    return tflops(ms), tflops(slow), tflops(fast)


if __name__ == "__main__":
    benchmark.run(print_data=True)
