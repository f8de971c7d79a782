"""What a launch costs in the interpreter: three kernels in Triton's own, and in the test stage's, which also checks memory and races.

Usage: python tests/bench/interpreted.py [--runs N]
The two alternate. Prints, for each kernel, the median processor time of a launch with its lowest and highest, in seconds, and the ratio.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    values = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + i, powers / tl.sum(powers, 0), mask=i < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
"""
TESTS = """
import time

import pytest
import torch

import kernels


def launches(device):
    x, y = torch.randn(1 << 18, device=device), torch.randn(1 << 18, device=device)
    rows = torch.randn(512, 1000, device=device)
    yield "add", lambda: kernels.add[(256,)](x, y, torch.empty_like(x), 1 << 18, B=1024)
    yield "softmax", lambda: kernels.softmax[(512,)](rows, torch.empty_like(rows), 1000, B=1024)
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randn(512, 512, device=device, dtype=dtype) for _ in range(2))
        yield f"matmul-{str(dtype)[6:]}", lambda: kernels.matmul[(8, 8)](a, b, torch.empty_like(a), 512, 512, 512, BM=64, BN=64, BK=32)


def test_launches(capsys):
    for name, launch in launches("cuda" if torch.cuda.is_available() else "cpu"):
        launch()
        started = time.process_time()
        launch()
        with capsys.disabled():
            print(f"\\nlaunch {name} {time.process_time() - started}")
"""


def measure(folder: str, *options: str) -> dict[str, float]:
    """Return the processor time of one launch of each kernel, in seconds, when it is launched the second time."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"CUDA_VISIBLE_DEVICES": ""} | ({} if options else {"TRITON_INTERPRET": "1"})
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("launch ")]
    return {name: float(seconds) for _, name, seconds in told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.py").write_text(KERNELS)
        (Path(folder) / "test_launches.py").write_text(TESTS)
        for _ in range(runs):
            for who, options in (("triton", ()), ("warpwave", ("--warpwave", "cpu"))):
                for name, seconds in measure(folder, *options).items():
                    seen[name, who].append(seconds)
    for name in dict.fromkeys(name for name, _ in seen):
        plain, ours = seen[name, "triton"], seen[name, "warpwave"]
        shown = [f"{statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})" for each in (plain, ours)]
        ratio = statistics.median(ours) / statistics.median(plain)
        print(f"{name}: triton {shown[0]}, warpwave {shown[1]}, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
