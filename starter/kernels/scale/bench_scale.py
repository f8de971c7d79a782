"""Benchmarks are Triton's `perf_report`, as in its tutorials: `python bench_scale.py` runs this one by itself."""

import torch
import triton
from scale import scale


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**i for i in range(20, 28)],
        x_log=True,
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "PyTorch"],
        ylabel="GB/s",
        plot_name="scale",
        args={},
    )
)
def benchmark(N, provider):
    x = torch.randn(N, device="cuda")
    run = {"triton": lambda: scale(x, 3.0), "torch": lambda: 3.0 * x}[provider]
    ms, fastest, slowest = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])
    moved = 2 * x.nbytes  # one read, one write

    return tuple(moved / time * 1e-6 for time in (ms, slowest, fastest))


if __name__ == "__main__":
    benchmark.run(print_data=True)
