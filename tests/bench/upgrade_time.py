"""What an upgrade costs: `warpwave upgrade` beside a plain run on each of the two toolchains, in turns, without a card.

Usage: python tests/bench/upgrade_time.py [--from 3.8.0] [--to 3.9.0] [--kernels DIR] [--runs N] [-- OPTIONS OF warpwave run]
Prints wall and CPU seconds of all processes, and the upgrade's share of one plain run: of their mean, and of the longer one.
The environments of the toolchains are made before. Only the ratios mean something, and wall time only on an idle machine.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_WARPWAVE = [sys.executable, "-m", "harness"]


def spent(words: list[str]) -> tuple[float, float]:
    """Run warpwave once; the wall and the CPU seconds of all its processes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*_WARPWAVE, *words], capture_output=True, text=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 5):
        sys.exit(done.stderr or done.stdout)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="base", default="3.8.0")
    parser.add_argument("--to", dest="head", default="3.9.0")
    parser.add_argument("--kernels", default="kernels")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    own = ["--engine", "local", "--kernels", asked.kernels, "--quiet", *asked.options]
    commands = {release: ["run", "cpu", "--triton", release, *own] for release in (asked.base, asked.head)}
    commands["upgrade"] = ["upgrade", "cpu", "--from", asked.base, "--to", asked.head, *own]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for release in (asked.base, asked.head):  # its environment
            spent([*commands[release], "-k", "none_of_them", "--out", str(Path(folder) / f"make-{release}")])
        for number in range(asked.runs):
            for name in commands if number % 2 == 0 else reversed(commands):
                times[name].append(spent([*commands[name], "--out", str(Path(folder) / f"{name}-{number}")]))
                print(f"{name}: {times[name][-1][0]:.0f} s, {times[name][-1][1]:.0f} CPU s", flush=True)
    for kind, words in enumerate(("wall", "CPU")):
        base, head, both = (sum(one[kind] for one in times[name]) for name in commands)
        print(f"{words}: {both / ((base + head) / 2):.2f} of their mean, {both / max(base, head):.2f} of the longer one")


if __name__ == "__main__":
    main()
