"""FlagGems' ops from outside of its tree. It asks the machine which vendor it is on; without a card GEMS_VENDOR answers."""

import flag_gems
import torch
import triton


def half(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def call(op, *arguments):
    return lambda: op(*arguments)


OPS = {
    "softmax": lambda n: call(flag_gems.softmax, half(1024, n), -1),
    "rms_norm": lambda n: call(flag_gems.rms_norm, half(1024, n), [n], half(n)),
    "layer_norm": lambda n: call(flag_gems.layer_norm, half(1024, n), [n], half(n), half(n)),
    "mm": lambda n: call(flag_gems.mm, half(n, n), half(n, n)),
    "add": lambda n: call(flag_gems.add, half(1024, n), half(1024, n)),
    "gelu": lambda n: call(flag_gems.gelu, half(1024, n)),
    "sum": lambda n: call(flag_gems.sum_dim, half(1024, n), [-1]),
    "argmax": lambda n: call(flag_gems.argmax, half(1024, n), -1),
}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[1024],
        line_arg="provider",
        line_vals=list(OPS),
        line_names=list(OPS),
        ylabel="ms",
        plot_name="gems",
        args={},
    )
)
def benchmark(N, provider):
    return triton.testing.do_bench(OPS[provider](N))
