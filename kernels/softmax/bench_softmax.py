"""Bandwidth of row softmax, fp32, 4096 rows of 256 to 12672.

Bytes: one read and one write. A provider that moves more shows as slower, not as busier.
"""

import functools

import torch
import triton
from softmax import softmax, softmax_persistent, softmax_unfused

DEVICE = "cuda"
PROVIDERS = {
    "triton": softmax,
    "persistent": softmax_persistent,
    "torch": functools.partial(torch.softmax, dim=-1),
    "unfused": softmax_unfused,
}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[128 * i for i in range(2, 100)],
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=["Triton (a program a row)", "Triton (persistent)", "PyTorch", "PyTorch (naive, unfused)"],
        ylabel="GB/s",
        plot_name="softmax",
        args={"M": 4096, "dtype": torch.float32},
    )
)
def benchmark(M, N, dtype, provider):
    x = torch.randn(M, N, device=DEVICE, dtype=dtype)
    run = PROVIDERS[provider]
    ms, min_ms, max_ms = triton.testing.do_bench(lambda: run(x), quantiles=[0.5, 0.2, 0.8])

    def gbps(ms):
        return 2 * x.numel() * x.element_size() / ms * 1e-6

    return gbps(ms), gbps(max_ms), gbps(min_ms)


if __name__ == "__main__":
    benchmark.run(print_data=True)
