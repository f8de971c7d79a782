"""Bandwidth of GELU over the row lengths of the softmax sweep: one read and one write."""

import torch
import triton
from gelu import gelu

DEVICE = "cuda"


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[128 * i for i in range(2, 100)],
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "Torch"],
        ylabel="GB/s",
        plot_name="gelu",
        args={"M": 4096, "dtype": torch.float32},
    )
)
def benchmark(M, N, dtype, provider):
    x = torch.randn(M, N, device=DEVICE, dtype=dtype)
    run = {"triton": lambda: gelu(x), "torch": lambda: torch.nn.functional.gelu(x, approximate="tanh")}[provider]
    ms, min_ms, max_ms = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])
    gbps = lambda ms: 2 * x.numel() * x.element_size() / ms * 1e-6  # noqa: E731
    return gbps(ms), gbps(max_ms), gbps(min_ms)


if __name__ == "__main__":
    benchmark.run(print_data=True)
