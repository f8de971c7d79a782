"""Podman, through its Docker-compatible API: on this machine, and over ssh, where its service is started for the run.

Needs `podman`, and in it the base image of the other tests: `docker save $WARPWAVE_BASE_IMAGE | podman load`. A program stands in for the
inside, so the base image is enough.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from engine_requests import ask
from own_sshd import OwnSshd, missing

from warpwave.config.hosts import Host
from warpwave.config.targets import load_targets
from warpwave.engines.docker.engine import connect as connect_here
from warpwave.engines.remote.engine import connect as connect_there
from warpwave.records import Environment

BASE = os.environ.get("WARPWAVE_BASE_IMAGE", "")
PROGRAM = """
import os
print(os.getuid(), os.listdir('/sys/class/net'))
print([path for path in ('/', '/warpwave', '/warpwave/warpwave') if os.access(path, os.W_OK)])
print(open('/proc/self/status').read().split('CapEff:')[1].split()[0].strip('0'))
open(os.environ['OUT'] + '/found', 'w').write('x')
raise SystemExit(7)
"""


@pytest.fixture(scope="module", autouse=True)
def podman():
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    if not BASE or subprocess.run(["podman", "image", "exists", BASE]).returncode:
        pytest.skip("Podman has no image of the name that WARPWAVE_BASE_IMAGE gives")


@pytest.fixture
def request_(tmp_path):
    for name in ("kernels", "raw"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "raw" / "job.json").write_text("{}")
    return ask(load_targets()["cpu"], tmp_path / "kernels", tmp_path / "raw", f"podman{os.getpid()}", limit_s=60.0, grace_s=5.0)


def execute(engine, request, output: str):
    lines: list[str] = []
    environment = Environment(engine=engine.name, python="python3", image=BASE)
    _, ended = engine.execute(request, environment, lines.append, ["python3", "-c", PROGRAM.replace("os.environ['OUT']", repr(output))])
    return ended, lines, sorted(path.name for path in request.raw.iterdir())


def test_a_container_here(request_, tmp_path):
    socket = f"unix://{tmp_path}/podman.sock"
    service = subprocess.Popen(["podman", "system", "service", "--time", "60", socket], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not (tmp_path / "podman.sock").exists() and time.monotonic() < until:
            time.sleep(0.1)
        engine = connect_here(Host(name="cpu", target="cpu", engine="podman", socket=str(tmp_path / "podman.sock")))
        ended, lines, files = execute(engine, request_, "/results")
        engine.close()
    finally:
        service.terminate()
        service.wait(20)

    nobody = "0" if os.getuid() else "65534"  # without root, the user inside is root, which is the caller outside
    assert (ended.code, ended.error) == (7, "")
    assert lines == [f"{nobody} ['lo']", "[]", ""]
    assert files == ["found", "job.json"]


def test_a_container_over_ssh(request_):
    if lacking := missing():
        pytest.skip(lacking)
    server = OwnSshd()
    server.start()
    try:
        engine = connect_there(Host(name="cpu", target="cpu", ssh="card", ssh_config=server.config, engine="podman"))
        ended, lines, files = execute(engine, request_, "/results/run")
        socket = Path(engine._tunnel._there.start)
        started = list(socket.glob("warpwave-*.sock"))
        engine.close()
        until = time.monotonic() + 20
        while any(path.exists() for path in started) and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        server.stop()

    assert (ended.code, ended.error) == (7, "")
    assert lines == ["65534 ['lo']", "[]", ""]
    assert files == ["found", "job.json"]
    assert [path for path in started if path.exists()] == []
