"""Fixtures of the tests that run workflows: machines, and what a card leaves."""

import shutil

import pytest
from runner import HEAD_OR_BASE, NO_BASE, PYTHON, RECORDED, Runner, brings
from synthetic import record, run, write_raw


@pytest.fixture
def runner(tmp_path):
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
    write_raw(tmp_path / "green" / "cuda", run(record=record("cuda")))
    return tmp_path / "green" / "cuda"


@pytest.fixture
def card(green):
    """`run cuda` hands them over, and `doctor` finds nothing wrong."""
    return brings(green)


@pytest.fixture
def real_card(tmp_path):
    """The same with what a real card left."""
    return brings(shutil.copytree(RECORDED / "cuda", tmp_path / "real" / "cuda"))
