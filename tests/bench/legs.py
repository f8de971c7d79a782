"""What a leg costs the client: memory (PSS) and processor time of `warpwave run` with many legs side by side.

Usage: python tests/bench/legs.py [--legs 1,10,50,100] [--seconds 20] [--tests 200]

The legs are real, with a client process each, the local engine, and all records. Only what stands for the machine at the other end is
simulated: a small program that prints the events of `--tests` tests in `--seconds`, and uses hardly any processor. Prints, for each number
of legs, the peak of the PSS of the parent and its children in MB, their processor time in s, and both for each leg; then the report's own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from warpwave.cli.progress import LegsView
from warpwave.config.hosts import Host
from warpwave.config.targets import load_targets
from warpwave.options import Package, RunOptions, Where
from warpwave.records import Stage, StageReport, Stages, Verdict, What
from warpwave.records.writing import to_text
from warpwave.report import make_report
from warpwave.run.inputs import snapshot_of
from warpwave.run.legs import Leg, run_side_by_side

MB = 1e6
INSIDE = """#!{python} -IS
import hashlib, json, os, sys, time
def note_use():
    used = os.times()
    with open(__file__ + ".used", "a") as file:
        file.write("%f\\n" % (used.user + used.system))
if sys.argv[1] == "-c":
    print("{{}}" if len(sys.argv) == 3 else "")
    note_use()
    sys.exit()
job = json.load(open(sys.argv[-1]))
def say(**event):
    print(json.dumps(event), flush=True)
say(event="stage", stage="test")
for done in range({tests}):
    say(event="case", stage="test", id="test_op.py::test_%d" % done, done=done, total={tests})
    time.sleep({seconds} / {tests})
text = {stages!r}.replace("RUN", job["run_id"]).replace("LEG", job["target"])
path = os.path.join(job["output"], "stages.json")
open(path, "w").write(text)
say(event="stage-end", stage="test", verdict="passed", seconds={seconds})
note_use()
say(event="stages", finished=True, sha256=hashlib.sha256(text.encode()).hexdigest())
"""


def simulated(folder: Path, seconds: float, tests: int) -> Path:
    """Write what stands for the machine at the other end."""
    reports = (StageReport(Stage.FACTS, Verdict.PASSED, exit_code=0), StageReport(Stage.TEST, Verdict.PASSED, exit_code=0))
    text = INSIDE.format(
        python=os.path.realpath(sys.executable),
        seconds=float(seconds),
        tests=tests,
        stages=to_text(Stages("RUN", "LEG", finished=True, reports=reports)),
    )
    path = folder / "inside"
    path.write_text(text)
    path.chmod(0o755)
    return path


def legs_of(number: int, folder: Path, python: Path) -> list[Leg]:
    """Return legs of one package, each with a host of its own."""
    package, out = folder / "package", folder / f"out-{number}"
    package.mkdir(exist_ok=True)
    (package / "test_op.py").write_text("def test_nothing():\n    pass\n")
    options = RunOptions(Where("run-1", out, engine="local", python=str(python)), Package(package), What(stages=(Stage.TEST,)))
    options = replace(options, package=replace(options.package, snapshot=snapshot_of(options), commit="none"))
    cpu = load_targets()["cpu"]
    names = [f"leg-{position:03}" for position in range(1, number + 1)]
    return [Leg(replace(cpu, name=name, entry="cpu"), options.placed(host=Host(name=name, target="cpu", engine="local"))) for name in names]


class Meter(LegsView):
    """Shows the legs, and measures this process and its children while they run."""

    peak = 0.0
    processes = 0
    _next = 0.0

    def tick(self) -> None:
        """Draw, and measure every three seconds."""
        super().tick()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 3.0
            pids = [os.getpid(), *own_children()]
            total = sum(map(pss, pids))
            if total > self.peak:
                self.peak, self.processes = total, len(pids)


def own_children() -> list[int]:
    """Return the legs' processes, not what they started."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def pss(pid: int) -> float:
    """Return a process's share of memory in bytes: a page of n processes counts 1/n for each."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024.0
    return 0.0


def processor(who: int) -> float:
    """Return the processor time of this process, or of its ended children with theirs, in s."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def measure(number: int, folder: Path, python: Path, quiet: bool) -> None:
    """Run that many legs and print what they cost the client."""
    legs = legs_of(number, folder, python)
    before = [processor(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    started = time.monotonic()
    with Meter(Console(stderr=True), legs, quiet=quiet) as meter:
        records, refused = run_side_by_side([[leg] for leg in legs], meter)
    wall = time.monotonic() - started
    own, children = (processor(who) - past for who, past in zip((resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN), before, strict=True))
    passed = sum(record.verdict is Verdict.PASSED for record in records)
    if passed != number:
        sys.exit(f"{passed} of {number} legs passed: {[record.reason for record in records][:3]} {refused[:1]}")
    began = time.process_time()
    make_report([legs[0].options.where.out], legs[0].options.where.out, [leg.name for leg in legs], records)
    report = time.process_time() - began
    # The children's time has that of the program that stands for other machines, which has written it down.
    used = python.with_name(f"{python.name}.used")
    insides = sum(map(float, used.read_text().split()))
    used.unlink()
    client = own + children - insides
    print(
        f"{number:4} legs: {meter.peak / MB:7.1f} MB in {meter.processes} processes, {client:6.2f} s of processor, {wall:5.1f} s"
        f"  |  each: {meter.peak / MB / number:6.1f} MB, {client / number:5.3f} s  |  report: {report:.2f} s",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--legs", default="1,10,50,100")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--show", action="store_true", help="Show the live view.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = simulated(Path(folder), arguments.seconds, arguments.tests)
        for number in map(int, arguments.legs.split(",")):
            measure(number, Path(folder), python, quiet=not arguments.show)


if __name__ == "__main__":
    main()
