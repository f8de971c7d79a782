"""Bandwidth of row softmax over row lengths, 4096 rows: one read and one write."""

import torch
import triton
from softmax import softmax, softmax_persistent, softmax_unfused

DEVICE = "cuda"
PROVIDERS = {
    "triton": softmax,
    "persistent": softmax_persistent,
    "torch": lambda x: torch.softmax(x, dim=-1),
    "unfused": softmax_unfused,
}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[128 * i for i in range(2, 100)],
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=["Triton, a program a row", "Triton, persistent", "Torch", "Torch, unfused"],
        ylabel="GB/s",
        plot_name="softmax",
        args={"M": 4096, "dtype": torch.float32},
    )
)
def benchmark(M, N, dtype, provider):
    x = torch.randn(M, N, device=DEVICE, dtype=dtype)
    ms, min_ms, max_ms = triton.testing.do_bench(lambda: PROVIDERS[provider](x), quantiles=[0.5, 0.2, 0.8])
    gbps = lambda ms: 2 * x.numel() * x.element_size() / ms * 1e-6  # noqa: E731
    return gbps(ms), gbps(max_ms), gbps(min_ms)


if __name__ == "__main__":
    benchmark.run(print_data=True)
