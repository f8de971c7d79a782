"""A sweep as Triton's tutorials write it."""

import torch
import triton
from small_kernels import add


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"],
        x_vals=[2**i for i in (10, 12)],
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "Torch"],
        ylabel="GB/s",
        plot_name="add",
        args={},
    )
)
def bench_add(n, provider):
    x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
    ms = triton.testing.do_bench(lambda: (add if provider == "triton" else torch.add)(x, y), warmup=1, rep=5)
    return 12 * n / ms * 1e-6


if __name__ == "__main__":
    bench_add.run(print_data=True)
