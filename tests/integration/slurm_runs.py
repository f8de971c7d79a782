"""What the tests of Slurm share: a package, a program that stands for the inside where kernels do not matter, and runs of a leg."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine_requests import make_options

from warpwave.cli.legs import legs_of
from warpwave.collect import collect
from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.records import RunRecord, Stage
from warpwave.run import run_target
from warpwave.run.legs import Leg

# Works through two cases as the inside does, and takes up what an earlier attempt has written. It imports the harness that travels with the
# job. With MODE, its second case takes until someone stops or releases it.
PROGRAM = """#!{python}
import json, os, signal, sys, time
from pathlib import Path
from warpwave.records import Stage, StageReport, Stages, Verdict, to_text
results = Path(sys.argv[-1]).parent
job = json.loads((results / "job.json").read_text())
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
print(json.dumps({{"event": "stage", "stage": "test"}}), flush=True)
kept = (results / "journal").read_text() if (results / "journal").exists() else ""
(results / "journal").write_text(kept + "one\\n")
(results / "seen.json").write_text(json.dumps(dict(os.environ)))
def leave(finished):
    verdict = Verdict.PASSED if finished else Verdict.NOT_RUN
    code = 0 if finished else None
    reports = [StageReport(stage, verdict, counts={{"passed": 1}}, exit_code=code) for stage in (Stage.FACTS, Stage.TEST)]
    text = to_text(Stages(job["run_id"], job["target"], finished, tuple(reports)))
    (results / "stages.json").write_text(text)
try:
    while os.environ.get("MODE") and not kept and not (results / "release").exists():
        time.sleep(0.02)
except KeyboardInterrupt:
    leave(False)
    (results / "written-on-stop").write_text("x")
    sys.exit(130)
leave(True)
"""


@dataclass
class Runs:
    """Runs of one package on one cluster, each in a folder of its own."""

    folder: Path
    package: Path
    program: Path
    said: list[str] = field(default_factory=list)

    def leg(self, name: str, slurm: Slurm, *, resume: bool = False, shards: int = 1, python: str = "", **more: Any) -> list[Leg]:
        """The legs of a run, as the command line makes them: one for each shard."""
        options = {key: more.pop(key) for key in ("grace_s", "target_s", "cap", "weaken") if key in more}
        host = Host(
            name=name, target="cpu", slurm=slurm, **{"container": "none", "python": python or str(self.program), "shards": shards, **more}
        )
        target = load_targets()["cpu"]
        asked = make_options(f"run-{name}", self.folder / name, self.package, stages=(Stage.TEST,), resume=resume, **options)
        return legs_of([(replace(target, name=name, entry="cpu"), host)], asked)

    def run(self, leg: Leg) -> RunRecord:
        return run_target(leg.target, leg.options, self.said.append, lambda event: None)

    def job(self, name: str) -> str:
        """The id of a leg's job, once it was submitted."""
        return self.wait_for(f"{name}: submitted Slurm job ").rpartition(" ")[2]

    def seen(self, name: str) -> bool:
        return (self.folder / name / "slurm" / name / "results" / "seen.json").exists()

    def release(self, name: str) -> None:
        """Let a leg's program go on to its end."""
        (self.folder / name / "slurm" / name / "results" / "release").touch()

    def wait_until(self, true: Callable[[], bool], limit_s: float = 40.0) -> None:
        until = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < until, self.said[-10:]
            time.sleep(0.05)

    def wait_for(self, text: str, limit_s: float = 40.0) -> str:
        """The first line with `text` that a run said."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if found := [line for line in self.said if text in line]:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"{text!r} was not said, but {self.said[-10:]}")


class Beside(threading.Thread):
    """A call in a thread of its own, and what it returns."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._outcome: list[Any] = []
        self.start()

    def run(self) -> None:
        self._outcome.append(self._call())

    def outcome(self, but: Callable[[], Any] = lambda: None) -> Any:
        """What the call returned. If it takes long, do something about it."""
        self.join(4)
        but()
        self.join(90)
        return self._outcome[0]


class Client:
    """A client in a process of its own, to be stopped or killed. What it says is in a file beside its results."""

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        shard = leg.options.where.shard
        self.said = leg.options.where.folder.parent / f"{leg.target.name}{shard.number if shard else ''}.said"
        self.process = multiprocessing.get_context("spawn").Process(target=_run, args=(leg, self.said), daemon=True)
        self.process.start()

    def wait_for(self, text: str, limit_s: float = 40.0) -> None:
        """Wait until the client has said something."""
        until = time.monotonic() + limit_s
        while not self.said.exists() or text not in self.said.read_text():
            assert time.monotonic() < until, self.said.read_text()
            time.sleep(0.05)

    def ends(self, by: int = 0) -> RunRecord:
        """End the client with a signal, if one is given, and return the record that it left."""
        if by:
            os.kill(self.process.pid, by)
        self.process.join(60)
        return collect(self.leg.raw).record


def _run(leg: Leg, said: Path) -> None:
    with said.open("w", buffering=1) as file:
        run_target(leg.target, leg.options, lambda line: print(line, file=file), lambda event: None)


def make_runs(folder: Path) -> Runs:
    """A package of one kernel, in a folder with a hostile name; and the program."""
    package = folder / "my $(touch pwned) ops"
    package.mkdir()
    (package / "test_add.py").write_text(_TEST)
    program = folder / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return Runs(folder, package, program)


_TEST = """
import os
import torch, triton, triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

def test_add(record_property):
    record_property("cards", os.environ.get("CUDA_VISIBLE_DEVICES", "") + "/" + os.environ.get("ROCR_VISIBLE_DEVICES", ""))
    x, y = torch.rand(300), torch.rand(300)
    out = torch.empty_like(x)
    add[(3,)](x, y, out, 300, BLOCK=128)
    assert torch.equal(out, x + y)
"""
