"""A Slurm cluster of the tests' own: real daemons, one node, two partitions, a card of each vendor's name that is no card.

`python tests/integration/own_slurm.py` starts one, prints what to export, and stops it when its standard input ends.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
        """Start slurmctld; again, if it was stopped: it finds its jobs in its state."""
        self._run("slurmctld", "-D")

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def command(self, *words: str) -> str:
        """Return what one of Slurm's commands prints."""
        return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **self.environment}, timeout=30).stdout.strip()

    def stop(self) -> None:
        """End all jobs and daemons, and leave nothing."""
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
