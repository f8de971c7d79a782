"""git asks about a stranger's folder and starts nothing that the folder names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from warpwave.run.target import commit_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "test_one.py").write_text("def test_one(): pass\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


@pytest.mark.parametrize("key", ["core.fsmonitor", "filter.x.clean", "filter.x.process"])
def test_no_program_of_the_settings_runs(repository: Path, tmp_path: Path, key: str):
    """The commit is known, also that the work tree differs."""
    subprocess.run(["git", "config", key, f"touch {tmp_path}/marker; cat"], cwd=repository, check=True)
    (repository / ".gitattributes").write_text("*.py filter=x\n")
    (repository / "test_one.py").write_text("def test_two(): pass\n")

    assert commit_of(repository).endswith("+")
    assert not (tmp_path / "marker").exists()


def test_a_bare_repository_inside_has_no_commit(repository: Path):
    """A package can bring one; its settings are its author's."""
    package = repository / "package"
    shutil.copytree(repository / ".git", package)

    assert commit_of(package) == ""
    assert commit_of(repository) != ""
