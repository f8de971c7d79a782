"""What the harness itself costs: a whole `warpwave run`, from the start of its process to its end, less the stages' own time.

Usage: python tests/bench/overhead.py [--engine local|docker] [--runs N] [-- OPTIONS OF warpwave run]
Prints each run, then minimum, median and maximum in seconds. With docker the image is built, or found, before the first counted run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TEST = "def test_nothing():\n    pass\n"


def measure(engine: str, package: Path, out: Path, options: list[str]) -> tuple[float, float]:
    """One run: its wall time, and the time that its stages took."""
    command = [sys.executable, "-m", "warpwave", "run", "cpu", "--engine", engine, "--kernels", str(package), "--out", str(out), *options]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall = time.monotonic() - started
    if done.returncode not in (0, 1):
        sys.exit(done.stderr or done.stdout)
    stages = json.loads((out / "raw" / "cpu" / "stages.json").read_text())["reports"]
    return wall, sum(stage["seconds"] for stage in stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="local", choices=["local", "docker"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        package.mkdir()
        (package / "test_nothing.py").write_text(TEST)
        # Readable by whichever user the container has.
        Path(folder).chmod(0o755)
        package.chmod(0o755)
        measure(arguments.engine, package, Path(folder) / "warm", arguments.options)
        spent = []
        for number in range(arguments.runs):
            wall, stages = measure(arguments.engine, package, Path(folder) / str(number), arguments.options)
            spent.append(wall - stages)
            print(f"run {number + 1}: {wall:.2f} s in all, {stages:.2f} s in stages, {spent[-1]:.2f} s of harness")
    print(f"{arguments.engine}: min {min(spent):.2f}  median {statistics.median(spent):.2f}  max {max(spent):.2f} s of harness")


if __name__ == "__main__":
    main()
