"""A `perf_report` that is made in a function, and made again for another mode."""

import torch
import triton
from my_ops.relu import relu


def make(mode):
    @triton.testing.perf_report(
        triton.testing.Benchmark(["N"], [1024, 2048], "provider", ["triton", "torch"], ["T", "P"], "relu", {"mode": mode}, ylabel="GB/s")
    )
    def benchmark(N, provider, mode):
        x = torch.randn(N, device="cuda")
        ms = triton.testing.do_bench(lambda: relu(x) if provider == "triton" else torch.relu(x))
        return 2 * x.numel() * 4 / ms * 1e-6

    return benchmark


if __name__ == "__main__":
    for mode in ("forward", "forward"):
        make(mode).run(print_data=True)
