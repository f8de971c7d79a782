"""Five sizes; one of them kills its process."""

import os

import triton


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[1, 2, 3, 4, 5],
        line_arg="provider",
        line_vals=["mine"],
        line_names=["mine"],
        ylabel="GB/s",
        plot_name="steep",
        args={},
    )
)
def benchmark(N, provider):
    if N == 3:
        os.abort()
    return 1e-3 * N / triton.testing.do_bench(lambda: None, return_mode="median")
