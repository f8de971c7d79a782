"""nox sessions come from docker/targets.yml, and a third vendor's with them."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nox")
REPOSITORY = Path(__file__).parents[2]


def sessions(folder: Path) -> str:
    command = [sys.executable, "-m", "nox", "--list", "--script-mode", "none", "-f", str(folder / "noxfile.py")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_target_has_a_session():
    """With its label, and `cpu` is what a bare `nox` runs."""
    listed = sessions(REPOSITORY)

    assert "* cpu -> " in listed
    assert "- cuda -> Run the kernels on NVIDIA CUDA." in listed
    assert "- rocm -> Run the kernels on AMD ROCm." in listed


def test_one_entry_in_the_yaml_is_one_more_session(tmp_path):
    """The noxfile is not edited."""
    (tmp_path / "docker").mkdir()
    for name in ("noxfile.py", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    text = (REPOSITORY / "docker" / "targets.yml").read_text()
    (tmp_path / "docker" / "targets.yml").write_text(text + "\n  xpu:\n    label: Intel XPU\n    stages: [test]\n")

    assert "- xpu -> Run the kernels on Intel XPU." in sessions(tmp_path)


def test_a_run_has_time_to_stop():
    """nox would kill its child 0.5 s after Ctrl-C; every rung of the ladder fits into what it is given instead, for every run."""
    from harness.engines import Request, lifecycle

    text = (REPOSITORY / "noxfile.py").read_text()
    patience = ast.literal_eval(re.search(r"^PATIENCE = (.*)$", text, re.MULTILINE).group(1))
    ladder = Request.grace_s + lifecycle._TERMINATE_S + lifecycle._KILL_S + lifecycle._DRAIN_S
    runs = [line for line in text.splitlines() if '"warpwave", "run"' in line]

    assert patience["interrupt_timeout"] > ladder
    assert patience["terminate_timeout"] > lifecycle._KILL_S + lifecycle._DRAIN_S
    assert runs
    assert all("**PATIENCE" in line for line in runs)
