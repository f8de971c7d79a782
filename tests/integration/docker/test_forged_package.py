"""Packages that forge their pass, on a real engine: what a container adds to what `tests/unit/inside/test/test_forged.py` shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

# What supervises has its memory, and the pipes on which it reports, for itself.
REACHED = """
import os
from pathlib import Path

def test_what_it_reaches():
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        command = (process / "cmdline").read_bytes()
        if b"warpwave.inside" in command and b"docker-init" not in command:  # the engine's own, which only waits
            for name in ("environ", "mem", "fd"):
                try:
                    os.listdir(process / name) if name == "fd" else open(process / name, "rb").close()
                    found.append(f"{name} of {command!r}")
                except OSError:
                    pass
    assert found == []

def test_a_module_is_planted():
    Path("dataclasses.py").write_text("raise ImportError('planted')")
"""


@pytest.fixture
def run_forged(tmp_path, wheelhouse, built, data):
    """The run of a package of tests/data/forged, or of given tests, as a user would start it; with the target of its report."""

    def run(name: str = "", text: str = "", stages: str = "test") -> tuple[subprocess.CompletedProcess[str], dict]:
        package = tmp_path / "package"
        package.mkdir()
        if name:
            shutil.copy(data / "forged" / "test_forged.py", package)
            shutil.copy(data / "forged" / f"{name}.py", package / "conftest.py")
        else:
            (package / "test_op.py").write_text(text)
        for path in (package, *package.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        words = ["run", "cpu", "--engine", "docker", "--stage", stages, "--kernels", str(package), "--out", str(tmp_path / "out")]
        words += ["--base-image", os.environ["WARPWAVE_BASE_IMAGE"], "--wheelhouse", str(wheelhouse)]
        variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(REPOSITORY / "harness")}
        done = subprocess.run([sys.executable, "-m", "warpwave", *words], cwd=tmp_path, capture_output=True, text=True, env=variables)
        return done, json.loads((tmp_path / "out" / "comparison.json").read_text())["targets"][0]

    return run


@pytest.mark.parametrize("name", ["makereport", "daemon"])
def test_a_forged_pass_is_invalid(run_forged, name):
    """In a container as without one."""
    done, target = run_forged(name)

    assert (done.returncode, target["verdict"]) == (4, "invalid"), done.stdout + done.stderr
    assert target["stages"][1]["doubts"] or target["tests"].get("invalid")


def test_what_supervises_is_out_of_reach(run_forged):
    """Neither its memory nor its open files are the package's, and what the next stage imports is not either."""
    done, target = run_forged(text=REACHED, stages="test,compile")
    stages = {stage["stage"]: stage["verdict"] for stage in target["stages"]}

    assert (stages["test"], stages["compile"]) == ("passed", "not-run"), done.stdout + done.stderr
