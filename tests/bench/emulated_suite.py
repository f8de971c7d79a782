"""What do the bundled package's tests cost on an emulated card, cold and warm? `python tests/bench/emulated_suite.py [TARGET]`.

Cold: the caches of Triton and of the emulator are empty folders. Warm: the same command again. Prints tests by outcome, wall and CPU
seconds of all processes, the largest memory of all of them together, and wave-instructions. What stands behind `--` goes to
`warpwave run`. `--cache FOLDER` keeps the caches there: if it is not empty, only the warm run is made.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_INSTRUCTIONS = re.compile(r": (\d+) wave-instructions")
_POLL_S = 1.0


def measure(target: str, cache: Path, options: list[str], label: str) -> None:
    with tempfile.TemporaryDirectory(prefix="emulated-suite-") as out:
        caches = {"TRITON_CACHE_DIR": str(cache / "triton"), "WARPWAVE_CACHE": str(cache / "warpwave")}
        command = [sys.executable, "-m", "warpwave", "run", target, "--kernels", str(_ROOT / "kernels"), "--stage", "test"]
        before, started = _cpu_seconds(), time.perf_counter()
        process = subprocess.Popen(
            [*command, "--out", out, "--no-report", *options], cwd=_ROOT, env={**os.environ, **caches}, stdout=subprocess.DEVNULL
        )
        memory = Memory(process.pid)
        memory.start()
        code = process.wait()
        memory.over.set()
        wall, cpu = time.perf_counter() - started, _cpu_seconds() - before
        tests, instructions = _results(Path(out))
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tests.items()))
    speed = instructions / cpu / 1e6
    print(f"{target} {label}: {sum(tests.values())} tests: {outcomes}; exit code {code}")
    cost = f"{wall:.0f} s wall, {cpu:.0f} s CPU, {memory.peak / 1e9:.2f} GB"
    print(f"  {cost}, {instructions:,} wave-instructions, {speed:.1f} M a CPU second of all of it", flush=True)


class Memory(threading.Thread):
    """Keep the largest sum of the memory of a process and its descendants; what several share counts once (PSS)."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.peak, self.over, self._root = 0, threading.Event(), root

    def run(self) -> None:
        """Look once a second."""
        while not self.over.wait(_POLL_S):
            self.peak = max(self.peak, sum(_proportional(pid) for pid in _family(self._root)))


def _family(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _results(out: Path) -> tuple[Counter[str], int]:
    """Return the tests by outcome, and how many wave-instructions they executed, from the journals."""
    tests: dict[str, tuple[str, int]] = {}
    for journal in out.rglob("journal.jsonl"):
        for line in journal.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if "outcome" in event and "id" in event:
                found = _INSTRUCTIONS.search(str(event.get("properties")))
                tests[event["id"]] = event["outcome"], int(found[1]) if found else 0
    return Counter(outcome for outcome, _ in tests.values()), sum(count for _, count in tests.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("target", nargs="?", default="gfx942-emulated")
    parser.add_argument("--cache", type=Path)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = sys.argv[at + 1 :]
    given = parser.parse_args(sys.argv[1:at])
    with tempfile.TemporaryDirectory(prefix="emulated-caches-") as own:
        cache = (given.cache or Path(own)).resolve()
        if not (cache / "triton").is_dir():
            measure(given.target, cache, options, "cold")
        measure(given.target, cache, options, "warm")


if __name__ == "__main__":
    main()
