"""What a person waits for: `warpwave run` beside plain pytest and the benchmarks as scripts, in turns on one machine.

Usage: python tests/bench/wall.py [--target cpu|cuda|…] [--tests 13,130,1300] [--rounds N] [--cold] [--commands]
Makes packages of as many tests, with 16 points of benchmarks, and runs each in turns with plain commands and with warpwave. On a target
without benchmarks, both sides run the tests alone, in Triton's interpreter. Each side has its own cache of Triton; `--cold` empties both
before each round. `--commands` instead times what needs no package, as multiples of an import of click and rich, and a whole run of three
tests and 16 points without a card. Prints seconds of the clock and of processors as median (lowest to highest), their ratio, and the memory
of the largest process; then what `warpwave report` takes to merge the last run and write its page. On a machine that others use, compare
the seconds of processors.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = """
import torch, triton, triton.language as tl
@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * factor, at < n)
def scale(x, factor, block=1024):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), block),)](x, out, factor, x.numel(), BLOCK=block)
    return out
"""
TEST = """
import pytest, torch
from scale import scale
@pytest.mark.parametrize("block", [256, 512, 1024])
@pytest.mark.parametrize("n", range(1, {rows} + 1))
def test_scale(n, block):
    x = torch.randn(n, device={device!r})
    torch.testing.assert_close(scale(x, 2.0, block), 2.0 * x)
"""
BENCH = """
import torch, triton
from scale import scale
@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["N"], x_vals=[1 << k for k in range(18, 26)], line_arg="provider", line_vals=["triton", "torch"],
    line_names=["Triton", "torch"], ylabel="GB/s", plot_name="scale", args={}))
def bench_scale(N, provider):
    x = torch.randn(N, device="cuda")
    ms = triton.testing.do_bench((lambda: scale(x, 2.0)) if provider == "triton" else (lambda: x * 2.0))
    return 2 * x.nbytes / ms * 1e-6
if __name__ == "__main__":
    bench_scale.run(print_data=True)
"""


def package(folder: Path, tests: int, device: str) -> None:
    """Write a package of about as many tests, in files of 300, and 16 points."""
    folder.mkdir(parents=True)
    (folder / "scale.py").write_text(KERNEL)
    (folder / "bench_scale.py").write_text(BENCH)
    for number, first in enumerate(range(0, tests, 300)):
        (folder / f"test_scale_{number}.py").write_text(TEST.format(rows=max(1, round(min(300, tests - first) / 3)), device=device))


def timed(commands: list[list[str]], where: Path, variables: dict[str, str], codes: Sequence[int] = (0,)) -> tuple[float, float]:
    """Run commands one after the other. Return their seconds together, of the clock and of processors. Other exit codes end this."""
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles what it imports, and pytest what it rewrites
    started, used = time.monotonic(), used_s()
    for command in commands:
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
        if done.returncode not in codes:
            sys.exit(f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - started, used_s() - used


def used_s() -> float:
    """Return the seconds of processors that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(seconds: Sequence[float], digits: int = 1) -> str:
    """Return median, lowest and highest."""
    return f"{statistics.median(seconds):.{digits}f} ({min(seconds):.{digits}f} to {max(seconds):.{digits}f})"


def time_commands(rounds: int) -> None:
    """Time commands in turns, and print each as a multiple of the first one."""
    ours = [sys.executable, "-m", "warpwave"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        package(folder / "package", 3, "cuda")
        run = [*ours, "run", "cpu", "--engine", "local", "--kernels", "package", "--quiet"]
        asked = {
            "import click, rich": [sys.executable, "-c", "import click, rich.console"],
            "--version": [*ours, "--version"],
            "--help": [*ours, "--help"],
            "a wrong option": [*ours, "run", "--wrong"],
            "a wrong target": [*ours, "run", "no-such-target"],
            "a run of three tests": run,
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
        for turn in range(-1, rounds):
            for name, command in asked.items():
                words = [*command, "--out", f"out{turn}"] if command is run else command
                seconds = timed([words], folder, {"TRITON_CACHE_DIR": str(folder / "cache")}, codes=(0, 2))
                found[name] += [seconds] if turn >= 0 else []
    first = [statistics.median(each) for each in zip(*found["import click, rich"], strict=True)]
    for name, seconds in found.items():
        for unit, own, base in zip(("s", "CPU s"), zip(*seconds, strict=True), first, strict=True):
            print(f"{name:20} {summary(own, 2)} {unit}, {statistics.median(own) / base:.2f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--tests", default="13,130,1300")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--commands", action="store_true")
    asked = parser.parse_args()
    if asked.commands:
        time_commands(asked.rounds)
        return
    card = asked.target != "cpu"
    plain = [[sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], *([[sys.executable, "bench_scale.py"]] if card else [])]
    interpreted = {} if card else {"TRITON_INTERPRET": "1"}
    for tests in map(int, asked.tests.split(",")):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            package(folder / "plain", tests, "cuda" if card else "cpu")
            package(folder / "ours", tests, "cuda")
            caches = {side: {"TRITON_CACHE_DIR": str(folder / f"cache-{side}")} for side in ("plain", "ours")}
            words = [sys.executable, "-m", "warpwave", "run", asked.target, "--engine", "local", "--kernels", ".", "--quiet"]
            words += ["--stage", "test,bench" if card else "test", "--no-report"]
            found: dict[str, list[tuple[float, float]]] = {"plain": [], "ours": []}
            for turn in range(-1, asked.rounds):  # the first one only fills the caches
                if asked.cold:
                    for side in found:
                        shutil.rmtree(folder / f"cache-{side}", ignore_errors=True)
                seconds = {
                    "plain": timed(plain, folder / "plain", {**caches["plain"], **interpreted}),
                    "ours": timed([[*words, "--out", str(folder / f"run{turn}")]], folder / "ours", caches["ours"]),
                }
                for side in found:
                    found[side] += [seconds[side]] if turn >= 0 else []
            report = [sys.executable, "-m", "warpwave", "report", str(folder / f"run{asked.rounds - 1}"), "--out", str(folder / "report")]
            merged = timed([report], folder, {})
        most, kind = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, "cold" if asked.cold else "warm"
        print(f"{tests} tests, {kind}, largest process {most} MiB", flush=True)
        for unit, plain_s, ours_s in zip(("s", "CPU s"), zip(*found["plain"], strict=True), zip(*found["ours"], strict=True), strict=True):
            ratio = statistics.median(ours / alone for ours, alone in zip(ours_s, plain_s, strict=True))
            print(f"  plain {summary(plain_s)} {unit}, warpwave {summary(ours_s)} {unit}, {ratio:.2f} times", flush=True)
        print(f"  merged, with its page: {merged[0]:.1f} s, {merged[1]:.1f} CPU s", flush=True)


if __name__ == "__main__":
    main()
