"""A Slurm cluster of the tests' own: real daemons, one node, two partitions, a card of each vendor's name that is no card.

`python tests/integration/own_slurm.py` starts one, prints what to export, and stops it when its standard input ends.
"""

import multiprocessing
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from engine_requests import make_options

from warpwave.cli.legs import legs_of
from warpwave.collect import collect
from warpwave.config.hosts import Host, Slurm
from warpwave.config.targets import load_targets
from warpwave.records import RunRecord, Stage
from warpwave.run import run_target
from warpwave.run.legs import Leg

_DAEMONS = ("munged", "slurmctld", "slurmd")
_CONF = """
ClusterName=warpwave
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
KillWait=5
MessageTimeout=3
NodeName=warp NodeAddr=127.0.0.1 NodeHostname={host} CPUs=128 RealMemory=1000 Gres=gpu:h100:1,gpu:mi300x:1 State=UNKNOWN
PartitionName=h100 Nodes=warp MaxTime=60 Default=YES State=UP
PartitionName=mi300x Nodes=warp MaxTime=60 State=UP
PartitionName=urgent Nodes=warp MaxTime=60 PriorityTier=10 State=UP
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PlugStackConfig={folder}/plugstack.conf
"""
# Slurm asks only that the files of cards exist.
_GRES = "NodeName=warp Name=gpu Type=h100 File=/dev/null\nNodeName=warp Name=gpu Type=mi300x File=/dev/zero\n"


# Where Slurm's plugins are. `WARPWAVE_PYXIS` names a plugin that was built elsewhere.
_PLUGINS = ("/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm")


def pyxis() -> str:
    """Return the path of the plugin pyxis; empty if this machine has none."""
    named = os.environ.get("WARPWAVE_PYXIS", "")
    return named or next((path for folder in _PLUGINS if Path(path := f"{folder}/spank_pyxis.so").exists()), "")


def missing() -> str:
    """Say why no cluster can be started here; empty if one can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    lacking = [name for name in (*_DAEMONS, "sbatch") if shutil.which(name, path=path) is None]
    if lacking:
        return f"no {', '.join(lacking)} here (Debian: apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "slurmd has to be started by root"


class OwnSlurm:
    """`slurmctld`, `slurmd` and `munged` in a folder of their own, on free ports. They see no other cluster, and none sees them."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wwslurm"))
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start it, and wait until its node is idle."""
        self.folder.chmod(0o755)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "key").write_bytes(secrets.token_bytes(128))
        (self.folder / "key").chmod(0o600)
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1], two.getsockname()[1]]
        conf = _CONF.format(host=socket.gethostname(), user="root", folder=self.folder, ports=ports)
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "gres.conf").write_text(_GRES)
        (self.folder / "plugstack.conf").write_text(f"required {plugin} runtime_path={self.folder}/pyxis\n" if (plugin := pyxis()) else "")
        names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        files = [
            f"--{name}={self.folder}/{file}" for name, file in zip(names, ("key", "munge.sock", "m.pid", "m.log", "seed"), strict=True)
        ]
        self._run("munged", "--foreground", "--force", "--num-threads=2", *files)
        self.start_controller()
        self._run("slurmd", "-D", "-c", "-N", "warp")
        until = time.monotonic() + 30
        while "idle" not in self.command("sinfo", "-h", "-o", "%T"):
            if time.monotonic() > until:
                raise RuntimeError("\n".join(path.read_text()[-1000:] for path in self.folder.glob("*.log")))
            time.sleep(0.05)

    def start_controller(self) -> None:
        self._run("slurmctld", "-D")

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def command(self, *words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **self.environment}, timeout=30).stdout.strip()

    def stop(self) -> None:
        self.command("scancel", "--user=root", "--full", "--signal=KILL")
        for name in reversed(list(self._daemons)):
            self._end(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, *words: str) -> None:
        path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert path is not None  # `missing` has looked
        with open(self.folder / f"{name}.out", "ab") as out:
            self._daemons[name] = subprocess.Popen(
                [path, *words],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def _end(self, name: str) -> None:
        process = self._daemons.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@contextmanager
def running() -> Iterator[OwnSlurm]:
    """Run a cluster that this process's environment names. The environment also has a secret of the caller, which no job may get."""
    own = OwnSlurm()
    with pytest.MonkeyPatch.context() as patch:
        try:
            own.start()
            for name, value in own.environment.items():
                patch.setenv(name, value)
            patch.setenv("A_TOKEN_OF_THE_CALLER", "secret")
            yield own
        finally:
            own.stop()


if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    cluster = OwnSlurm()
    try:
        cluster.start()
        sys.stdout.write(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.stop()


# What the tests of Slurm share: a package, a program that stands for the inside where kernels do not matter, and runs of a leg.


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
    folder: Path
    package: Path
    program: Path
    said: list[str] = field(default_factory=list)

    def leg(self, name: str, slurm: Slurm, *, resume: bool = False, shards: int = 1, python: str = "", **more: Any) -> list[Leg]:
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
        return self.wait_for(f"{name}: submitted Slurm job ").rpartition(" ")[2]

    def seen(self, name: str) -> bool:
        return (self.folder / name / "slurm" / name / "results" / "seen.json").exists()

    def release(self, name: str) -> None:
        (self.folder / name / "slurm" / name / "results" / "release").touch()

    def wait_until(self, true: Callable[[], bool], limit_s: float = 40.0) -> None:
        until = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < until, self.said[-10:]
            time.sleep(0.05)

    def wait_for(self, text: str, limit_s: float = 40.0) -> str:
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if found := [line for line in self.said if text in line]:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"{text!r} was not said, but {self.said[-10:]}")


class Beside(threading.Thread):
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
    x, y = torch.rand(300, device="cuda"), torch.rand(300, device="cuda")
    out = torch.empty_like(x)
    add[(3,)](x, y, out, 300, BLOCK=128)
    assert torch.equal(out, x + y)
"""
