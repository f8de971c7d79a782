"""Bandwidth of GELU, fp32, over the sweep of the softmax bench: 4096 rows of 256 to 12672. One read and one write."""

import functools

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
        line_names=["Triton", "PyTorch"],
        ylabel="GB/s",
        plot_name="gelu",
        args={"M": 4096, "dtype": torch.float32},
    )
)
def benchmark(M, N, dtype, provider):
    x = torch.randn(M, N, device=DEVICE, dtype=dtype)
    run = {"triton": gelu, "torch": functools.partial(torch.nn.functional.gelu, approximate="tanh")}[provider]
    ms, min_ms, max_ms = triton.testing.do_bench(lambda: run(x), quantiles=[0.5, 0.2, 0.8])

    def gbps(ms):
        return 2 * x.numel() * x.element_size() / ms * 1e-6

    return gbps(ms), gbps(max_ms), gbps(min_ms)


if __name__ == "__main__":
    benchmark.run(print_data=True)
