"""Liger-Kernel's ops, forward and backward, from outside of its tree: what its users call, in bf16."""

import torch
import triton
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.sparsemax import LigerSparsemaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.ops.tvd import LigerTVDLossFunction


def tensor(*shape, grad=True, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def both(function, *arguments):
    """The op and its backward."""

    def run():
        out = function.apply(*arguments)
        out = out[0] if isinstance(out, tuple) else out
        out.backward(torch.ones_like(out))

    return run


def rope(n):
    heads, kv_heads, length, size = 32, 8, 512, 128
    q, k = tensor(1, heads, length, size, grad=False), tensor(1, kv_heads, length, size, grad=False)
    cos, sin = (tensor(1, length, size, grad=False) for _ in range(2))
    return lambda: LigerRopeFunction.apply(q, k, cos, sin)


def dyt(n):
    return both(LigerDyTFunction, tensor(2048, n), *(tensor(size, dtype=torch.float32) for size in (1, n, n)))


def group_norm(n):
    x, weight, bias = (tensor(*shape, dtype=torch.float32) for shape in ((8, 64, n), (64,), (64,)))
    return both(LigerGroupNormFunction, x, weight, bias, 64, 8, 1e-6)


def cross_entropy(n):
    return both(LigerCrossEntropyFunction, tensor(2048, n), torch.zeros(2048, device="cuda", dtype=torch.int64), None)


OPS = {
    "rms_norm": lambda n: both(LigerRMSNormFunction, tensor(2048, n), tensor(n), 1e-6),
    "layer_norm": lambda n: both(LigerLayerNormFunction, tensor(2048, n), tensor(n), tensor(n), 1e-6),
    "softmax": lambda n: both(LigerSoftmaxFunction, tensor(2048, n)),
    "swiglu": lambda n: both(LigerSiLUMulFunction, tensor(2048, n), tensor(2048, n)),
    "geglu": lambda n: both(LigerGELUMulFunction, tensor(2048, n), tensor(2048, n)),
    "cross_entropy": cross_entropy,
    "rope": rope,
    "dyt": dyt,
    "tvd": lambda n: both(LigerTVDLossFunction, tensor(2048, n), tensor(2048, n), None, "batchmean", -100),
    "kl_div": lambda n: both(LigerKLDivLossFunction, tensor(2048, n), tensor(2048, n), "batchmean", False, 1e-10),
    "jsd": lambda n: both(LigerJSDFunction, tensor(2048, n), tensor(2048, n), None, 0.5, -100),
    "group_norm": group_norm,
    "relu_squared": lambda n: both(LigerReLUSquaredFunction, tensor(2048, n)),
    "sparsemax": lambda n: both(LigerSparsemaxFunction, tensor(2048, n), -1),
}


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[4096],
        line_arg="provider",
        line_vals=list(OPS),
        line_names=list(OPS),
        ylabel="ms",
        plot_name="liger",
        args={},
    )
)
def benchmark(N, provider):
    return triton.testing.do_bench(OPS[provider](N))
