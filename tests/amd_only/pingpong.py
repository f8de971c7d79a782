"""Reproduce triton-lang/triton#11696 without a card: an fp32 matmul whose schedule lets two halves of the waves take turns (gfx942).

Usage: python pingpong.py [ARCHITECTURE]   with the Triton to ask, e.g. `pip install --target DIR triton==3.8.0` and PYTHONPATH=DIR
Prints Triton's version and one line for each barrier with LDS accesses in flight. Exit code 1 if there is one.
"""

# ruff: noqa: T201 - a program of its own
import importlib.util
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

READER = Path(__file__).parents[2] / "harness" / "warpwave" / "inside" / "codegen" / "barriers.py"


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    a += m[:, None] * K + k[None, :]
    b += k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a), tl.load(b), total, input_precision="ieee")
        a += BK
        b += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total)


TYPES = {**dict.fromkeys("abc", "*fp32"), "N": "i32", "K": "i32"}
TILE = {"BM": 128, "BN": 128, "BK": 64}
OPTIONS = {"num_warps": 8, "num_stages": 2, "kpack": 1}


def assembly(architecture):
    """Return what Triton makes of 128 x 128 x 64 tiles with 8 warps, 2 stages and kpack 1."""
    signature = {**TYPES, **dict.fromkeys(TILE, "constexpr")}
    aligned = {(position,): [["tt.divisibility", 16]] for position in range(5)}
    source = ASTSource(matmul, signature, TILE, aligned)
    return triton.compile(source, target=GPUTarget("hip", architecture, 64), options=OPTIONS).asm["amdgcn"]


def main():
    spec = importlib.util.spec_from_file_location("in_flight", READER)
    reader = sys.modules["in_flight"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    found = reader.lds_in_flight(assembly(sys.argv[1] if len(sys.argv) > 1 else "gfx942"))
    print(triton.__version__, *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
