"""One command for two machines, of which one takes connections and says nothing: it is absent, and the other's results are whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import own_slurm
import own_sshd
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(own_slurm.missing() or own_sshd.missing()), reason=own_slurm.missing() or own_sshd.missing()),
]
HOSTS = """
gone: {{target: cpu, ssh: card, ssh_config: {config}}}
lost: {{target: cpu, ssh: no-such-host.invalid}}
batch: {{target: cpu, slurm: {{partition: h100, gpus: 0}}, container: none, python: {python}}}
"""
SOON_S = 15.0


def test_a_machine_that_hangs_is_absent_within_15_s_and_the_other_runs(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "test_ones.py").write_text("import torch\ndef test_ones(): assert torch.ones(2).sum() == 2\n")
    slurm, sshd = own_slurm.OwnSlurm(), own_sshd.OwnSshd()
    try:
        slurm.start()
        sshd.start()
        sshd.hang()
        (tmp_path / "hosts.yml").write_text(HOSTS.format(config=sshd.config, python=sys.executable))
        words = ["--kernels", "ops", "--hosts", "hosts.yml", "--stage", "test", "--out", "out"]
        done = subprocess.run(
            [sys.executable, "-m", "warpwave", "run", "gone", "lost", "batch", *words],
            cwd=tmp_path,
            env={**os.environ, **slurm.environment, "PYTHONPATH": str(Path.cwd() / "harness")},
            capture_output=True,
            text=True,
            timeout=200,
        )
    finally:
        sshd.stop()
        slurm.stop()
    records = {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "out" / "raw").glob("*/run.json")}

    assert done.returncode == 3, done.stdout + done.stderr
    assert {name: record["verdict"] for name, record in records.items()} == {"gone": "absent", "lost": "absent", "batch": "passed"}
    assert "card cannot be reached with ssh: Connection timed out" in records["gone"]["reason"]
    assert max(records[name]["seconds"] for name in ("gone", "lost")) <= SOON_S
    assert "gone is absent" in (tmp_path / "out" / "comparison.md").read_text()
