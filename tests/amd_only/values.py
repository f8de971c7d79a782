"""Kernels that are wrong on AMD only, in some releases of Triton. Each is compiled by the release, and executed by the emulator.

Usage: python values.py NAME ARCHITECTURE FILE   with the Triton to ask on PYTHONPATH
Writes the code object to FILE, and what a launch needs beside it to FILE.json.
"""

import json
import sys
from pathlib import Path

import pingpong
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

WAVES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}


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
def padded(a, b, c, count, M: tl.constexpr, K: tl.constexpr):
    """What is beyond `count` counts as 1 in a and as 2 in b."""
    row, k = tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M, M), tl.float32)
    for first in range(0, tl.cdiv(count, K)):
        at = first * K + k
        left = tl.load(a + row[:, None] * count + at[None, :], mask=at[None, :] < count, other=1.0)
        right = tl.load(b + at[:, None] * M + row[None, :], mask=at[:, None] < count, other=2.0)
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * M + row[None, :], total)


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


@triton.jit
def exchange(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.atomic_cas(x + at, tl.full((N,), 1, x.dtype.element_ty), tl.full((N,), 2, x.dtype.element_ty)))


CASTS = [*((eight, wide) for eight in ("fp8e4b8", "fp8e5b16") for wide in ("fp16", "bf16", "fp32")), ("fp32", "fp8e4nv"), ("fp32", "fp8e5")]
# Function, types of its arguments, constants, options.
KERNELS = {
    **{f"{source}-{target}": (cast, {"x": f"*{source}", "out": f"*{target}"}, {"N": 256}, {}) for source, target in CASTS},
    "pingpong": (pingpong.matmul, pingpong.TYPES, pingpong.TILE, pingpong.OPTIONS),
    "exchange-fp32": (exchange, {"x": "*fp32", "out": "*fp32"}, {"N": 256}, {}),
    "bf16-product": (multiply, {"x": "*bf16", "y": "*bf16", "out": "*bf16"}, {"N": 4096}, {}),
    "tf32-nan": (product, {"a": "*fp32", "b": "*fp32", "out": "*fp32"}, {"N": 32}, {"num_warps": 1}),
    "padded": (padded, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "count": "i32"}, {"M": 64, "K": 64}, {"num_stages": 3}),
    "logarithm": (logarithm, {"x": "*bf16", "y": "*i64", "out": "*bf16", "count": "i32"}, {"N": 1024}, {}),
    "scan": (scan, {"x": "*fp32", "out": "*fp32"}, {"N": 4096}, {"num_warps": 8}),
}  # fmt: skip


def main():
    """Compile one of them, and write it."""
    name, architecture, file = sys.argv[1:]
    function, types, constants, options = KERNELS[name]
    names = function.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    # Alignment, and that all of a tensor is in reach of 32 bits, as the JIT finds out of its arguments.
    hints = {"*": [["tt.divisibility", 16], ["tt.pointer_range", 32]], "i": [["tt.divisibility", 16]]}
    aligned = {(n,): hints[types[name][0]] for n, name in enumerate(names) if types.get(name, "").startswith(("*", "i"))}
    source = ASTSource(function, signature, {(names.index(key),): value for key, value in constants.items()}, aligned)
    made = triton.compile(source, target=GPUTarget("hip", architecture, WAVES[architecture]), options=options)
    Path(file).write_bytes(made.asm["hsaco"])
    needed = {"lds": made.metadata.shared, "threads": made.metadata.num_warps * WAVES[architecture], "triton": triton.__version__}
    Path(file + ".json").write_text(json.dumps(needed))


if __name__ == "__main__":
    main()
