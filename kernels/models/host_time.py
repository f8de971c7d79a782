"""Microseconds that the host takes to start a call, beside PyTorch: `warpwave run cuda --bench host_time.py`.

Tensors are so small that the card is done before the next call comes. Each figure is the best of several series of calls: whatever else the
host does can only make one longer. The two are measured in turns. No gradient is recorded.
"""

import time

import torch
import triton
from torch.nn import functional as F

from kernels.attention import scaled_dot_product_attention
from kernels.gelu import gelu
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.peers import sweep
from kernels.rms_norm import rms_norm
from kernels.softmax import softmax

CALLS = {
    "gelu": (gelu, F.gelu),
    "softmax": (lambda x: softmax(x, -1), lambda x: torch.softmax(x, -1)),
    "layer_norm": (lambda x, w: layer_norm(x, (1024,), w, w), lambda x, w: F.layer_norm(x, (1024,), w, w)),
    "rms_norm": (lambda x, w: rms_norm(x, (1024,), w), lambda x, w: F.rms_norm(x, (1024,), w)),
    "matmul": (matmul, torch.matmul),
    "attention": (lambda q: scaled_dot_product_attention(q, q, q), lambda q: F.scaled_dot_product_attention(q, q, q)),
}
SHAPES = {
    **{"gelu": [(64, 1024)], "softmax": [(64, 1024)], "layer_norm": [(64, 1024), (1024,)], "rms_norm": [(64, 1024), (1024,)]},
    **{"matmul": [(64, 1024), (1024, 1024)], "attention": [(1, 8, 128, 128)]},
}
SERIES, LENGTH = 15, 100


@triton.testing.perf_report(sweep("host_time", "us", ["triton", "torch"], ["op"], list(CALLS)))
def host_time(provider, op):
    tensors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in SHAPES[op]]
    with torch.no_grad():
        for run in CALLS[op] * 3:  # a call that is made often takes less from the third time on
            run(*tensors)
        both = [[series(run, tensors) for run in CALLS[op]] for _ in range(SERIES)]
    return min(seconds[provider == "torch"] for seconds in both) / LENGTH * 1e6


def series(run, tensors):
    """Return the seconds of some calls, from an idle card on."""
    run(*tensors)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(LENGTH):
        run(*tensors)
    return time.perf_counter() - start


if __name__ == "__main__":
    host_time.run(print_data=True)
