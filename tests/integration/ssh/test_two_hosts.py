"""One command, two machines: a real ssh server with a real engine, and a real Slurm, both on this machine; the kernels are interpreted.

One run is stopped by Ctrl-C while both legs work, resumed to its end, and looked at by every test.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import own_slurm
import own_sshd
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(own_slurm.missing() or own_sshd.missing()), reason=own_slurm.missing() or own_sshd.missing()),
]
KERNEL = """
import time, torch, triton, triton.language as tl
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
def test_add():
    x, y = torch.rand(100, device="cuda"), torch.rand(100, device="cuda")
    out = torch.empty_like(x)
    add[(2,)](x, y, out, 100, BLOCK=64)
    torch.testing.assert_close(out, x + y)
def test_slow():
    time.sleep(15)
"""
HOSTS = """
far: {{target: cpu, ssh: card, ssh_config: {config}, socket: {socket}, build: {{base_image: "{base}"}}}}
batch: {{target: cpu, slurm: {{partition: h100, gres: "gpu:h100:1"}}, container: none, python: {python}}}
"""
BASE = os.environ.get("WARPWAVE_BASE_IMAGE")
LIMIT_S = 300


@pytest.fixture(scope="module")
def ran(built, offline, tmp_path_factory):
    """The folder of the run; how the stopped command and the resumed one ended; and what of Slurm and of the engine was left."""
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "package").mkdir()
    (folder / "package" / "test_add.py").write_text(KERNEL)
    slurm, sshd = own_slurm.OwnSlurm(), own_sshd.OwnSshd()
    try:
        slurm.start()
        sshd.start()
        socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        (folder / "hosts.yml").write_text(HOSTS.format(config=sshd.config, socket=socket, base=BASE, python=sys.executable))
        words = [sys.executable, "-m", "warpwave", "run", "far", "batch", "--kernels", "package", "--hosts", "hosts.yml", "--stage", "test"]
        words += offline[2:]  # the base image is in the hosts file
        environment = {**os.environ, **slurm.environment, "PYTHONPATH": str(Path.cwd() / "harness")}
        options = {"cwd": folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        stopped = subprocess.Popen([*words, "--out", "out"], **options)
        working = _wait_for_both(folder / "out" / "logs", stopped)
        stopped.send_signal(signal.SIGINT)
        _, said = stopped.communicate(timeout=LIMIT_S)
        left = slurm.command("squeue", "-h", "-o", "%i %T")
        halfway = _records(folder)
        resumed = subprocess.run([*words, "--resume", "out"], **options, timeout=LIMIT_S, check=False)
        yield {
            "folder": folder,
            "working": working,
            "stopped": (stopped.returncode, said),
            "left": left,
            "halfway": halfway,
            "resumed": resumed,
        }
    finally:
        sshd.stop()
        slurm.stop()


def _wait_for_both(logs, process):
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        working = {name: path.read_text() for name in ("far", "batch") if (path := logs / f"{name}.log").exists()}
        if len(working) == 2 and all("stage: test" in text for text in working.values()):
            time.sleep(3)  # into the tests
            return working
        time.sleep(0.1)
    raise RuntimeError("\n".join([*(path.read_text() for path in logs.glob("*.log")), *process.communicate(timeout=LIMIT_S)]))


def _records(folder):
    return {path.parent.name: json.loads(path.read_text()) for path in (folder / "out" / "raw").glob("*/run.json")}


def test_both_machines_work_at_the_same_time(ran):
    """Each leg's log says what its own machine did: an image there, a job there."""
    assert "submitted Slurm job" in ran["working"]["batch"]
    assert "submitted Slurm job" not in ran["working"]["far"]


def test_ctrl_c_stops_both_and_leaves_nothing(ran):
    code, said = ran["stopped"]

    assert code == 130, said
    assert {name: (record["verdict"], record["exit"]["interrupted"]) for name, record in ran["halfway"].items()} == {
        "far": ("incomplete", True),
        "batch": ("incomplete", True),
    }
    assert ran["left"] == ""


def test_the_resumed_run_is_one_comparison(ran):
    resumed = ran["resumed"]
    written = json.loads((ran["folder"] / "out" / "comparison.json").read_text())
    targets = {target["target"]: target for target in written["targets"]}

    assert resumed.returncode == 0, resumed.stderr + resumed.stdout
    assert {name: (target["verdict"], target["tests"]) for name, target in targets.items()} == {
        "far": ("passed", {"passed": 2}),
        "batch": ("passed", {"passed": 2}),
    }
    assert {name: target["host"] for name, target in targets.items()} == {"far": "card", "batch": "slurm h100"}
    assert len({target["snapshot"] for target in targets.values()}) == 1
    assert targets["far"]["snapshot"]
    assert all(len(target["attempts"]) == 1 for target in targets.values())
