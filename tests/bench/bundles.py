"""Bundles of the worst shapes that the readers accept, and what each costs: `warpwave report` and its like, in seconds and MiB.

Usage: python tests/bench/bundles.py [--shape NAME…] [--command report,compare…] [--most-s 60] [--most-mib 1000]
Every file is as large as its caps let it be (tests/bench/shapes.py). A command that takes more processor
time, or more memory, is named, and the exit code is 1. (A command is one thread: on an idle machine the clock says the same.) Nothing in
these bundles was measured.
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from shapes import SHAPES

ROOT = Path(__file__).parents[2]
# `{}` is the bundle, and `{out}` a folder to write to. A bundle is compared with itself: then everything meets its like.
COMMANDS = {
    "report": ("report", "{}", "--out", "{out}", "--svg", "{out}/report.svg"),
    "full": ("report", "{}", "--out", "{out}", "--full"),
    "json": ("report", "{}", "--out", "{out}", "--json"),
    "compare": ("compare", "{}", "{}", "--full", "--json", "{out}/compare.json", "--markdown", "{out}/compare.md"),
    "codegen": ("codegen", "diff", "{}", "{}", "--full", "--json", "{out}/d.json", "--html", "{out}/d.html", "--markdown", "{out}/d.md"),
    "export": ("export", "{}", "--format", "pytorch", "--out", "{out}/pytorch.json"),
    "openmetrics": ("export", "{}", "--format", "openmetrics", "--out", "{out}/openmetrics.txt"),
    "plot": ("plot", "{}", "--out", "{out}/plots"),
    "ci": ("ci", "report", "{}", "--out", "{out}/ci", "--base", "{}", "--fail-on", "any", "--summary", "{out}/summary.md"),
    "comment": ("ci", "comment", "{}", "--out", "{out}/comment.md", "--base", "{}"),
    "history": ("history", "{}", "--markdown", "{out}/history.md", "--json", "{out}/history.json"),
}


def run(words: list[str], most_s: float) -> tuple[int, float, float, float]:
    """Exit status (-9 where it was ended), seconds of wall clock and of processor time, and the most memory in MiB."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([sys.executable, "-m", "warpwave", *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    timer = threading.Timer(most_s, process.kill)
    timer.start()
    peak = 0
    told = b""

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            except OSError:
                return
            peak = max(peak, int(found[1])) if found else peak
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    told = process.communicate()[1]
    timer.cancel()
    watcher.join()
    if b"Traceback" in told:
        print(told[-2000:].decode(errors="replace"), flush=True)
        return 99, 0.0, 0.0, 0.0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return process.returncode, time.monotonic() - started, cpu, peak / 1024


def main() -> int:
    """Make each bundle, run each command on it, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=list(SHAPES))
    parser.add_argument("--command", default=",".join(COMMANDS))
    parser.add_argument("--most-s", type=float, default=60.0)
    parser.add_argument("--most-mib", type=float, default=1000.0)
    parser.add_argument("--folder", type=Path, help="Keep the bundles here.")
    arguments = parser.parse_args()
    beyond = 0
    print(f"{'shape':<34} {'MiB on disk':>11} {'command':<12} {'exit':>4} {'wall s':>7} {'cpu s':>7} {'MiB':>7}")
    for name in arguments.shape or SHAPES:
        with tempfile.TemporaryDirectory() as temporary:
            bundle = (arguments.folder or Path(temporary)) / name.replace(" ", "-")
            if not bundle.exists():
                SHAPES[name](bundle)
            size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()) / (1 << 20)
            for command in arguments.command.split(","):
                places = {"out": str(Path(temporary) / "out")}
                Path(places["out"]).mkdir(exist_ok=True)
                words = [str(bundle) if word == "{}" else word.format(**places) for word in COMMANDS[command]]
                code, wall, cpu, peak = run(words, 20 * arguments.most_s)
                bad = code not in (0, 1, 2, 4, 5) or cpu > arguments.most_s or peak > arguments.most_mib
                beyond += bad
                line = f"{name:<34} {size:>11.0f} {command:<12} {code:>4} {wall:>7.1f} {cpu:>7.1f} {peak:>7.0f}"
                print(line + ("  too much" if bad else ""), flush=True)
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
