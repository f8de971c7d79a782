"""What `--sanitize` costs: the test stage of a package with it and without it, in turns, in seconds of CPU time.

Usage: python tests/bench/sanitize.py [--kernels DIR] [--runs N] [-- OPTIONS OF warpwave run]
Prints each pair and its ratio, and the ratio of the sums. A shared machine is not of one speed, so only the ratio means something.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path


def seconds(kernels: str, choice: str, out: Path, options: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "warpwave", "run", "cpu", "--engine", "local", "--stage", "test", "--kernels", kernels]
    done = subprocess.run([*command, "--out", str(out), "--quiet", choice, *options], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr or done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="kernels")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    spent: dict[str, list[float]] = {"--no-sanitize": [], "--sanitize": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.runs):
            for choice, times in spent.items():
                times.append(seconds(arguments.kernels, choice, Path(folder) / f"{number}{choice}", arguments.options))
            without, with_it = (times[-1] for times in spent.values())
            print(f"pair {number + 1}: {without:.1f} s without, {with_it:.1f} s with, {with_it / without:.3f}", flush=True)
    without, with_it = (sum(times) for times in spent.values())
    print(f"all: {with_it / without:.3f}")


if __name__ == "__main__":
    main()
