"""What is released: a source distribution, the wheel that is built from it, and that wheel in a Python of its own.

(`nox -s release` does the same with the dependencies from an index; here they are those of the tests.)
"""

from __future__ import annotations

import ast
import email
import json
import os
import re
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import warpwave

ROOT = Path(__file__).parents[3]
pytest.importorskip("hatchling", reason="the wheel's build back-end; `nox -s tests` installs it")


def call(*command, cwd, **variables):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept |= {"COLUMNS": "200", "DOCKER_HOST": f"unix://{cwd}/no.sock", **variables}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from an unpacked source distribution as an index would have it."""
    folder = tmp_path_factory.mktemp("release")
    made = call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    assert call("tar", "-xzf", next(folder.glob("*.tar.gz")), cwd=folder).returncode == 0
    source = next(path for path in folder.iterdir() if path.is_dir())
    made = call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    assert made.returncode == 0, made.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """`warpwave` as a clean Python has it: the wheel is installed there, and dependencies are looked up where the tests have theirs."""
    folder = tmp_path_factory.mktemp("clean")
    assert call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder).returncode == 0
    python = folder / "bin" / "python"
    packages = call(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).stdout.strip()
    done = call(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    Path(packages, "theirs.pth").write_text("\n".join(site.getsitepackages()))
    where = call(python, "-c", "import warpwave; print(warpwave.__file__)", cwd=folder).stdout.strip()
    assert where.startswith(packages), where
    return folder / "bin" / "warpwave"


def test_the_wheel_has_the_harness_and_nothing_beside_it(wheel):
    """With the data that it needs at work, and the mark that it is typed; no kernels, no tests, nothing of this folder."""
    names = zipfile.ZipFile(wheel).namelist()
    told = email.message_from_bytes(zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("/METADATA"))))

    assert {name.split("/")[0] for name in names} == {"warpwave", f"warpwave-{warpwave.__version__}.dist-info"}
    assert {
        *("warpwave/py.typed", "warpwave/docker/targets.yml", "warpwave/docker/install.sh", "warpwave/schemas/comparison.schema.json"),
        *("warpwave/starter/.github/workflows/kernels.yml", "warpwave/starter/kernels/scale/scale.py"),
    } <= set(names)
    assert {str(path.relative_to(ROOT / "harness")) for path in (ROOT / "harness").rglob("*.py")} <= set(names)
    assert [name for name in names if "__pycache__" in name] == []
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("warpwave", warpwave.__version__, "Apache-2.0")


def test_the_version_is_in_one_place():
    """The package's; everything else asks it."""
    numbers = [
        path.name
        for path in (ROOT / "harness").rglob("*.py")
        if "__version__" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__version__"
    ]

    assert numbers == ["__init__.py"]
    assert "version" in re.search(r"dynamic = \[(.*?)\]", (ROOT / "pyproject.toml").read_text())[1]
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?\w+)?", warpwave.__version__)


@pytest.mark.slow
def test_it_runs_where_it_is_installed(program, tmp_path):
    """Outside of the repository: its version, its targets, its doctor, and what `init` writes."""
    told = json.loads(call(program, "doctor", "--json", cwd=tmp_path).stdout)
    written = call(program, "init", "--from", f"git+https://code.example/them/warpwave@{'5e' * 20}", cwd=tmp_path)

    assert call(program, "--version", cwd=tmp_path).stdout == f"warpwave, version {warpwave.__version__}\n"
    assert "gfx942" in call(program, "list", cwd=tmp_path).stdout
    assert told["findings"]
    assert (written.returncode, (tmp_path / ".github" / "workflows" / "kernels.yml").is_file()) == (0, True), written.stderr


@pytest.mark.slow
def test_the_shell_completes_commands_and_targets(program, tmp_path):
    """As the reference says: the shell asks the program itself."""
    script = call(program, cwd=tmp_path, _WARPWAVE_COMPLETE="bash_source").stdout
    commands = call(program, cwd=tmp_path, _WARPWAVE_COMPLETE="bash_complete", COMP_WORDS="warpwave co", COMP_CWORD="1").stdout
    targets = call(program, cwd=tmp_path, _WARPWAVE_COMPLETE="bash_complete", COMP_WORDS="warpwave run c", COMP_CWORD="2").stdout

    assert "complete -o nosort -F" in script
    assert "plain,codegen" in commands
    assert {"plain,cpu", "plain,cuda"} <= set(targets.split())
    assert "_WARPWAVE_COMPLETE=bash_source warpwave" in (ROOT / "docs" / "reference" / "cli.md").read_text()
