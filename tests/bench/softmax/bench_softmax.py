"""The sweep of Triton's tutorial 02-fused-softmax: 98 row lengths, three providers, fp32, as its `perf_report` would have it."""

import torch
import triton

from kernels.softmax import softmax


def naive(x):
    shifted = x - x.max(dim=1)[0][:, None]
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum(dim=1)[:, None]


PROVIDERS = {"triton": lambda x: softmax(x, dim=-1), "torch": lambda x: torch.softmax(x, dim=-1), "naive": naive}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[128 * step for step in range(2, 100)],
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=list(PROVIDERS),
        ylabel="GB/s",
        plot_name="softmax-performance",
        args={"M": 4096},
    )
)
def benchmark(M, N, provider):
    x = torch.randn(M, N, device="cuda", dtype=torch.float32)
    ms = triton.testing.do_bench(lambda: PROVIDERS[provider](x))
    return 2 * x.nbytes * 1e-6 / ms
