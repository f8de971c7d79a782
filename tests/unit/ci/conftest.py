"""Fixtures of the tests that run workflows: machines, and what a card leaves."""

from __future__ import annotations

import shutil

import pytest
from runner import Runner
from workflow_jobs import HEAD_OR_BASE, NO_BASE, PYTHON, REAL, RECORDED


@pytest.fixture
def runner(tmp_path):
    """A machine a job, all of one run."""
    (tmp_path / "artifacts").mkdir()

    def make(job, values, **programs):
        common = {
            HEAD_OR_BASE: "0123",
            "inputs.fork-environment": "gpu-forks",
            "github.run_attempt": 1,
            "runner.temp": tmp_path / job / "_temp",
            "github.token": "token",
            "inputs.warpwave": ".",
        }
        stubs = {"python3": PYTHON, "python": ":", "gh": NO_BASE, **programs}
        return Runner(tmp_path / job, tmp_path / "artifacts", {**common, **values}, stubs)

    return make


@pytest.fixture
def green(tmp_path):
    """The results of a real card."""
    return shutil.copytree(RECORDED / "cuda", tmp_path / "green" / "cuda")


@pytest.fixture
def card(green):
    """`run cuda` hands over what a real card left, and `doctor` finds nothing wrong."""
    return f"""
case "$1 $2 $3" in
"ci leg cuda") while [ "$1" != --out ]; do shift; done; mkdir -p "$2/raw"; cp -r {green} "$2/raw/cuda";;
*) exec {REAL} "$@";;
esac"""
