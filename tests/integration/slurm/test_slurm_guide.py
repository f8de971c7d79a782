"""The commands of docs/guides/slurm.md on a real Slurm, in order, as on a login node."""

import os
import re
import subprocess
import sys
from pathlib import Path

import own_slurm
import pytest
from own_slurm import make_runs

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "slurm.md"
FENCE = re.compile(r"^```(\w+) title=\"([^\"]*)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(bool(own_slurm.missing()), reason=own_slurm.missing())
def test_the_guide_does_what_it_says(tmp_path):
    package = make_runs(tmp_path).package
    package.rename(tmp_path / "my_ops")
    (tmp_path / "my_ops" / "test_more.py").write_text("def test_more():\n    pass\n")
    (tmp_path / "warpwave").write_text(f'#!/bin/sh\nexec {sys.executable} -m warpwave "$@"\n')
    (tmp_path / "warpwave").chmod(0o755)
    cluster = own_slurm.OwnSlurm()
    try:
        cluster.start()
        environment = {**os.environ, **cluster.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        ran = []
        for language, title, text in FENCE.findall(GUIDE.read_text()):
            if language == "yaml":
                path = tmp_path / title
                path.parent.mkdir(exist_ok=True)
                path.write_text(text.replace("/opt/torch/bin/python", sys.executable))
            for command in re.findall(r"^\$ (.*)", text, re.MULTILINE) if title == "on a login node" else ():
                done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
                ran.append(done.stdout + done.stderr)
    finally:
        cluster.stop()

    assert "h100" in ran[0]
    assert "All tests that ran pass on try" in ran[1]
    assert "All tests that ran pass on try" in ran[2]
    logs = sorted(tmp_path.glob("runs/*/logs/try-*of2.log"))  # a job a shard
    assert ["submitted Slurm job" in log.read_text() for log in logs] == [True, True]
    assert len(ran) == 3
