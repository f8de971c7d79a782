"""Bandwidth of vector addition, fp32, 2**12 to 2**27 elements. Bytes: two reads and one write."""

import torch
import triton
from add import add

DEVICE = "cuda"


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**i for i in range(12, 28)],
        x_log=True,
        line_arg="provider",
        line_vals=["triton", "torch"],
        line_names=["Triton", "PyTorch"],
        ylabel="GB/s",
        plot_name="add",
        args={"dtype": torch.float32},
    )
)
def benchmark(N, dtype, provider):
    x, y = (torch.randn(N, device=DEVICE, dtype=dtype) for _ in range(2))
    run = {"triton": add, "torch": torch.add}[provider]
    ms, min_ms, max_ms = triton.testing.do_bench(lambda: run(x, y), quantiles=[0.5, 0.2, 0.8])

    def gbps(ms):
        return 3 * x.numel() * x.element_size() / ms * 1e-6

    return gbps(ms), gbps(max_ms), gbps(min_ms)


if __name__ == "__main__":
    benchmark.run(print_data=True)
