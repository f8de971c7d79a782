"""What a package sets reaches the stages that run its code; those who judge it load nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpwave.inside import __main__ as inside
from warpwave.records import Job, Stage
from warpwave.records.isolated import isolated

REPOSITORY = Path(__file__).parents[4]
PLANTED = "import sys\nwith open({seen!r}, 'a') as seen:\n    seen.write(' '.join(sys.orig_argv) + '\\n')\n"


def test_neither_guard_nor_supervisor_loads_what_is_planted(tmp_path):
    """Not by PYTHONPATH, and not from the folder in which they start. The guard starts the supervisor, which finds no job here."""
    seen = tmp_path / "seen"
    for name in ("sitecustomize", "json", "runpy", "signal"):
        (tmp_path / f"{name}.py").write_text(PLANTED.format(seen=str(seen)))
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    job = str(tmp_path / "job.json")

    def start(*words: str) -> str:
        return subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True).stderr

    said = start(*isolated(sys.executable, str(REPOSITORY / "harness"), "warpwave.inside.watchdog", "60", "5", "1000000", "100", job))
    assert f"FileNotFoundError: [Errno 2] No such file or directory: '{job}'" in said
    assert not seen.exists()
    start(sys.executable, "-c", "")
    assert seen.exists(), "another Python does load it"


class Started(Exception):  # noqa: N818 - it ends a call
    """Holds the variables of a process that is not started."""


@pytest.fixture
def variables_of(tmp_path, monkeypatch):
    """Return the variables with which a stage, or what compiles ahead of it, would start."""
    job = Job("r", "cpu", (Stage.TEST,), str(tmp_path), str(tmp_path), package_variables={"MYPKG_X": "1"})

    def refuse(command, env, **more):
        raise Started(env)

    monkeypatch.setattr(subprocess, "Popen", refuse)

    def ask(stage):
        with pytest.raises(Started) as started:
            inside._run_stage(job, tmp_path / "job.json", stage, 9.0) if stage else inside._compile_ahead(job, tmp_path / "job.json", 9.0)
        return started.value.args[0]

    return ask


@pytest.mark.parametrize("stage", [Stage.TEST, Stage.BENCH, Stage.COMPILE, None])
def test_stages_that_run_the_package_get_its_variables(variables_of, stage):
    """And what compiles for them; this process, which supervises, has none of them."""
    assert variables_of(stage).items() >= {"MYPKG_X": "1", "PATH": os.environ["PATH"]}.items()
    assert "MYPKG_X" not in os.environ


def test_facts_are_taken_without_them(variables_of):
    """The facts are about the machine."""
    assert "MYPKG_X" not in variables_of(Stage.FACTS)
