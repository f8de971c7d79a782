"""Conversions, mathematics and products that some releases of Triton get wrong on AMD only."""

import pingpong
import triton
import triton.language as tl
from triton.language.extra.hip import libdevice


@triton.jit
def cast(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@triton.jit
def multiply(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * tl.load(y + at))


@triton.jit
def product(a, b, out, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="tf32"))


@triton.jit
def plain_product(a, b, out, N: tl.constexpr, K: tl.constexpr):
    n, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.dot(tl.load(a + n[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(out + n[:, None] * N + n[None, :], total)


@triton.jit
def chained(q, k, v, out, count, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    left, total = tl.load(q + m[:, None] * D + d[None, :]), tl.zeros((M, D), tl.float32)
    for start in range(0, count, N):
        between = tl.dot(left, tl.load(k + d[:, None] + (start + n[None, :]) * D))
        total = tl.dot(between.to(tl.float16), tl.load(v + (start + n[:, None]) * D + d[None, :]), total)
    tl.store(out + m[:, None] * D + d[None, :], total)


@triton.jit
def tanh(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, libdevice.fast_tanhf(tl.load(x + at)))


@triton.jit
def logarithm(x, y, out, count, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    mask = at < count
    value = tl.load(x + (at % 640 + 896 * (at // 640)), mask).to(tl.float32)
    other = tl.load(y + at // 640, mask, eviction_policy="evict_last").to(tl.float32)
    tl.store(out + at, value * tl.log(other + 1.0), mask)


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, add))


CASTS = [
    *((eight, wide) for eight in ("fp8e4b8", "fp8e5b16") for wide in ("fp16", "bf16", "fp32")),
    *(("fp32", "fp8e4nv"), ("fp32", "fp8e5"), ("fp16", "fp8e4nv"), ("fp8e4nv", "bf16"), ("bf16", "fp8e4b8")),
]
# Function, types of its arguments, constants, options.
KERNELS = {
    **{f"{source}-{target}": (cast, {"x": f"*{source}", "out": f"*{target}"}, {"N": 256}, {}) for source, target in CASTS},
    "pingpong": (pingpong.matmul, pingpong.TYPES, pingpong.TILE, pingpong.OPTIONS),
    "bf16-product": (multiply, {"x": "*bf16", "y": "*bf16", "out": "*bf16"}, {"N": 4096}, {}),
    "tf32-nan": (product, {"a": "*fp32", "b": "*fp32", "out": "*fp32"}, {"N": 32}, {"num_warps": 1}),
    "chained": (chained, {**dict.fromkeys("qkv", "*fp16"), "out": "*fp32", "count": "i32"}, {"M": 64, "N": 64, "D": 64}, {"num_stages": 4}),
    "tanh": (tanh, {"x": "*fp32", "out": "*fp32"}, {"N": 1024}, {}),
    **{f"{a}-by-{b}": (plain_product, {"a": f"*{a}", "b": f"*{b}", "out": "*fp32"}, {"N": 32, "K": k}, {"num_warps": 1})
       for a, b, k in (("fp8e4b8", "fp8e5b16", 32), ("fp8e4nv", "fp8e5", 16), ("fp8e5", "fp8e4nv", 32))},
    "logarithm": (logarithm, {"x": "*bf16", "y": "*i64", "out": "*bf16", "count": "i32"}, {"N": 1024}, {}),
    "scan": (scan, {"x": "*fp32", "out": "*fp32"}, {"N": 4096}, {"num_warps": 8}),
}  # fmt: skip
