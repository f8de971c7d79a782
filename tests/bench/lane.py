"""What the lane without a GPU costs: the compile stage of this checkout's kernels, without Triton's cache and with it.

Usage: python tests/bench/lane.py [--runs N] [--warm N] [--against DIRECTORY] [-- OPTIONS OF warpwave run]
`--against` is another checkout (`git worktree add`), with its harness and its kernels; the two take turns, since a shared machine is not
of one speed. Prints the stage's seconds, the processors' (of the whole machine, which has to be idle; and what its host took away), and the
largest memory of all its processes together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
POLL_S = 1.0


def processors() -> tuple[float, float]:
    """Seconds since the start of the machine that its processors worked, and that its host gave to somebody else."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


def memory(mark: str) -> float:
    """MB of all processes that have `mark` in their environment; what they share is counted once."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if mark.encode() in (process / "environ").read_bytes():
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def watched(command: list[str], checkout: Path, cache: str) -> float:
    """Run a command; the largest memory that was seen."""
    ended, peak = threading.Event(), [0.0]

    def watch() -> None:
        while not ended.wait(POLL_S):
            peak[0] = max(peak[0], memory(f"TRITON_CACHE_DIR={cache}"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "TRITON_CACHE_DIR": cache}
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    finally:
        ended.set()
        watcher.join()
    if done.returncode not in (0, 1):
        sys.exit(done.stderr or done.stdout)
    return peak[0]


def measure(checkout: Path, cache: str, options: list[str], title: str) -> float:
    """One compile stage: its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "harness", "run", "cpu", "--stage", "compile", "--no-report", "--out", folder, *options]
        worked, stolen = processors()
        peak = watched(command, checkout, cache)
        worked, stolen = (now - before for now, before in zip(processors(), (worked, stolen), strict=True))
        raw = Path(folder) / "raw" / "cpu"
        reports = json.loads((raw / "stages.json").read_text())["reports"]
        seconds = next(report["seconds"] for report in reports if report["stage"] == "compile")
        kernels = len((raw / "compile" / "kernels.jsonl").read_text().splitlines())
    print(f"{title}: {kernels} kernels in {seconds:.1f} s; processors {worked:.0f} s, stolen {stolen:.0f} s; {peak:.0f} MB", flush=True)
    return float(seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--against", type=Path)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    checkouts = {"this": ROOT} | ({"other": arguments.against.resolve()} if arguments.against else {})
    spent: dict[str, list[float]] = {}
    for _ in range(arguments.runs):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as cache:
                for temperature in ["cold"] + ["warm"] * arguments.warm:
                    title = f"{name}, {temperature}"
                    spent.setdefault(title, []).append(measure(checkout, cache, arguments.options, title))
    for title, seconds in spent.items():
        print(f"{title}: min {min(seconds):.1f}  median {statistics.median(seconds):.1f}  max {max(seconds):.1f} s")


if __name__ == "__main__":
    main()
