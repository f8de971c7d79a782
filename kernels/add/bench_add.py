"""Bandwidth of addition with 12 MiB to 1.5 GiB of memory traffic: two reads and one write."""

import operator

import torch
import triton

from kernels.add import add
from kernels.peers import LINES, bandwidth, compiled, providers

PROVIDERS = providers(triton=add, copy=torch.add, torch=torch.add, compile=compiled(operator.add))


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**i for i in range(20, 28)],
        x_log=True,
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=[LINES[name] for name in PROVIDERS],
        ylabel="GB/s",
        plot_name="add",
        args={"dtype": torch.float32},
    )
)
@bandwidth
def benchmark(provider, N, dtype):
    x, y = (torch.randn(N, device="cuda", dtype=dtype) for _ in range(2))
    return 3 * x.nbytes, lambda: PROVIDERS[provider](x, y)


if __name__ == "__main__":
    benchmark.run(print_data=True)
