"""A thousand JUnit files of a thousand cases: `warpwave report` over them, and `junitparser merge` beside it.

Usage: python tests/bench/scale.py [--files 50,200,1000] [--merge 50,200] [--cases 1000]
Each file is a target's raw folder, with the same tests and a property on each. Prints wall time, processor time and the largest memory of
either program at each number of files; `junitparser merge` grows with the square, so its list of numbers is a shorter one.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from harness.records import Job, RunRecord, Stage, StageReport, Stages, Verdict, dump  # noqa: E402

# What `junitparser merge` does, and no more: many JUnit files into one.
MERGE = """
import sys
from pathlib import Path
from harness import report
report.WRITERS = {"junit.xml": report.WRITERS["junit.xml"]}
report.write_report([Path(sys.argv[1])], Path(sys.argv[2]))
"""


def lay_out(root: Path, files: int, cases: int) -> list[Path]:
    """Synthetic raw folders; nothing in them was measured."""
    found = []
    for number in range(files):
        target = f"target{number:04}"
        folder = root / "raw" / target
        (folder / "test").mkdir(parents=True)
        dump(Job("run", target, (Stage.TEST,), kernels="/kernels", output="/out"), folder / "job.json")
        dump(
            RunRecord("run", target, target, Verdict.PASSED, "", "", "2026-01-01T00:00:00+00:00", 1.0, "", "kernels", ()),
            folder / "run.json",
        )
        reports = (StageReport(Stage.TEST, Verdict.PASSED, 1.0, counts={"passed": cases}),)
        dump(Stages("run", target, True, reports), folder / "stages.json")
        rows = "".join(
            f'<testcase classname="softmax.test_softmax" name="test_softmax[bf16-{case}x781]" time="0.012"><properties>'
            f'<property name="id" value="softmax/test_softmax.py::test_softmax[bf16-{case}x781]"/>'
            f'<property name="max_ulp" value="{(case * 7 + number) % 100 / 10}"/></properties></testcase>\n'
            for case in range(cases)
        )
        head = f'<testsuite name="pytest" tests="{cases}" failures="0" errors="0" skipped="0" time="12" hostname="host{number}">'
        path = folder / "test" / "junit.xml"
        path.write_text(f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>{head}{rows}</testsuite></testsuites>\n')
        found.append(path)
    return found


def measure(command: list[str]) -> tuple[float, float, float]:
    """Wall time and processor time in seconds, and the largest resident memory in MiB."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[:4]} ended with exit code {process.returncode}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="50,200,1000")
    parser.add_argument("--merge", default="50,200")
    parser.add_argument("--cases", type=int, default=1000)
    arguments = parser.parse_args()
    merged = set(map(int, filter(None, arguments.merge.split(","))))
    print(f"{'files':>6} {'cases':>9}  {'program':<44} {'wall s':>8} {'cpu s':>8} {'MiB':>7}")
    for files in sorted({*map(int, arguments.files.split(",")), *merged}):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            paths = lay_out(folder, files, arguments.cases)
            tell = functools.partial(show, files, files * arguments.cases)
            whole = [sys.executable, "-m", "harness", "report", str(folder), "--out", str(folder / "out"), "--quiet"]
            tell("warpwave report, all files and the terminal", measure(whole))
            ours = measure([sys.executable, "-c", MERGE, str(folder), str(folder / "merged")])
            tell("warpwave, junit.xml only", ours)
            if files in merged:
                code = "from junitparser.cli import main; raise SystemExit(main())"
                theirs = measure([sys.executable, "-c", code, "merge", *map(str, paths), str(folder / "merged.xml")])
                tell("junitparser merge", theirs)
                wall, cpu = theirs[0] / ours[0], theirs[1] / ours[1]
                print(f"{'':>16}  to one JUnit file: {cpu:.1f} times the processor time, {wall:.1f} times the wall time", flush=True)


def show(files: int, cases: int, program: str, found: tuple[float, float, float]) -> None:
    """A line of the table."""
    print(f"{files:>6} {cases:>9}  {program:<44} {found[0]:>8.1f} {found[1]:>8.1f} {found[2]:>7.0f}", flush=True)


if __name__ == "__main__":
    main()
