"""The part of docs/guides/hosts.md on ssh, run as it is written: its machine is this one, behind a real ssh server with a real engine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_sshd import OwnSshd, missing

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "hosts.md"
FENCE = re.compile(r"^```(\w+) title=\"([^\"]*)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def machine(engine, tmp_path):
    """A folder to work in, where `ssh h100-01` reaches this machine and its engine, which has the image of the tests."""
    if lacking := missing():
        pytest.skip(lacking)
    server = OwnSshd()
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    server.start(f"SetEnv DOCKER_HOST={address}")
    config = Path(server.configuration("config-guide"))
    config.write_text(config.read_text().replace("Host card", "Host h100-01"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    _program(tmp_path / "bin" / "ssh", f'exec {shutil.which("ssh")} -F {config} "$@"')
    yield tmp_path
    server.stop()


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_guide_does_what_it_says(machine, built, offline):
    """The machine answers, the doctor finds it fit to run, and a kernel passes its test there."""
    more = shlex.join(offline)
    _program(
        machine / "bin" / "warpwave",
        f'case $1 in run) exec {sys.executable} -m warpwave "$@" {more} ;; esac\nexec {sys.executable} -m warpwave "$@"',
    )
    environment = {**os.environ, "PATH": f"{machine / 'bin'}:{os.environ['PATH']}", "DOCKER_HOST": f"unix://{machine}/no.sock"}
    work, ran = machine / "work", []
    for language, title, text in FENCE.findall(GUIDE.read_text()):
        if language != "console":
            path = work / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        for line in (line[2:] for line in text.splitlines() if line.startswith("$ ") and title == "with a machine h100-01"):
            done = subprocess.run(["bash", "-euc", line], cwd=work, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            ran.append(line.split()[0:2])

    record = json.loads((work / "run" / "raw" / "cpu" / "run.json").read_text())
    assert ran == [["ssh", "h100-01"], ["warpwave", "doctor"], ["warpwave", "run"]]
    assert (record["verdict"], record["host"], record["environment"]["engine"]) == ("passed", "h100-01", "ssh")
