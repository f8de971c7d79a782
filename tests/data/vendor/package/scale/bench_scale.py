"""With the device that torch finds."""

import torch
import triton
from scale import scale


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[1024, 4096],
        line_arg="provider",
        line_vals=["triton"],
        line_names=["Triton"],
        ylabel="GB/s",
        plot_name="scale",
        args={},
    )
)
def benchmark(N, provider):
    device = torch.accelerator.current_accelerator()
    x = torch.randn(N, device=device)
    assert x.device.type == device.type
    ms = triton.testing.do_bench(lambda: scale(x), return_mode="median")
    return 8 * N / ms * 1e-6
