"""Slurm as sites have it: an sbatch that talks, a full shared disk, shards of which only a part works."""

import os
import shutil
import subprocess
from pathlib import Path

import own_slurm
import pytest
from slurm_runs import make_runs

from warpwave.config.hosts import Slurm
from warpwave.records import Verdict

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(own_slurm.missing()), reason=own_slurm.missing()),
]
NO_CARD = Slurm(partition="h100", gpus=0)


@pytest.fixture(scope="module")
def cluster():
    with own_slurm.running() as own:
        yield own


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("oddities"))


def wrap(monkeypatch, folder: Path, program: str, text: str) -> None:
    """Put a site's own version of a program before the real one, which is `$real` in it."""
    path = folder / "bin" / program
    path.parent.mkdir()
    path.write_text(f"#!/bin/bash\nreal={shutil.which(program)}\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def test_an_sbatch_that_talks_submits_one_job(runs, cluster, tmp_path, monkeypatch):
    """Its id is found between greetings, before and after; nothing is left in the queue."""
    text = 'echo "Your project has 7 hours left"; echo "sbatch: lua: hello" >&2; "$real" "$@" || exit; echo "2 jobs of 100 are yours"'
    wrap(monkeypatch, tmp_path, "sbatch", text)
    (leg,) = runs.leg("talks", NO_CARD)

    assert runs.run(leg).verdict is Verdict.PASSED
    assert cluster.command("squeue", "-h", "-o", "%i") == ""


def test_a_full_shared_disk_is_said_and_resumed(runs, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    try:
        (leg,) = runs.leg("full", Slurm(partition="h100", gpus=0, folder=str(full)))
        record = runs.run(leg)
        assert record.verdict is Verdict.INFRA
        assert f"could not be written to {full}" in record.reason
        assert "No space left on device" in record.reason
        assert "--resume" in record.hint
        assert list(full.iterdir()) == []

        subprocess.run(["mount", "-o", "remount,size=64m", str(full)], check=True)
        (leg,) = runs.leg("full", Slurm(partition="h100", gpus=0, folder=str(full)), resume=True)
        assert runs.run(leg).verdict is Verdict.PASSED
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)
