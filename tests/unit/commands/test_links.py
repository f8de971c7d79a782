"""No command writes through a link that came with a package or with results."""

import subprocess
from pathlib import Path

import click
import pytest

from warpwave.__main__ import _run_cli, cli
from warpwave.cli.options import OUT_FILE, OUT_FOLDER
from warpwave.errors import UsageError
from warpwave.records import write_text
from warpwave.run.folders import check_no_links


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A repository, in which the user is, and a folder outside of it."""
    root = tmp_path / "repository"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.chdir(root)
    return root


def link(path: Path, *, tracked: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(Path.cwd().parent / "outside")
    if tracked:
        subprocess.run(["git", "add", str(path)], cwd=path.parent, check=True)
    return path


def test_a_link_of_the_repository_is_refused_and_ones_own_is_not(repository):
    """git knows the first. The second, to a disk with more room, is the user's own."""
    check_no_links(link(repository / "own") / "run")
    with pytest.raises(UsageError, match="leads through the link"):
        check_no_links(link(repository / "theirs", tracked=True) / "run")


def test_a_link_that_nobody_knows_is_refused(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    monkeypatch.chdir(tmp_path / "package")
    link(Path("reports").absolute())

    with pytest.raises(UsageError, match="leads through the link"):
        check_no_links(Path("reports") / "runs")


def test_a_link_in_results_is_refused(tmp_path):
    (tmp_path / "run" / "raw" / "cpu").mkdir(parents=True)
    (tmp_path / "run" / "raw" / "cpu" / "run.json").write_text("{}")
    (tmp_path / "run" / "plots").symlink_to(tmp_path)

    with pytest.raises(UsageError, match="leads through the link"):
        check_no_links(tmp_path / "run" / "plots")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "cpu", "--kernels", "kernels"],
        ["run", "cpu", "--kernels", "kernels", "--out", "reports/x"],
        ["report", "run", "--out", "reports/x"],
        ["export", "run", "--out", "reports/x.csv"],
        ["plot", "run", "--out", "reports/x"],
        ["compare", "run", "run", "--markdown", "reports/x.md"],
        ["codegen", "diff", "run", "run", "--html", "reports/x.html"],
        ["init", "reports/x"],
        ["list", "--json", "reports/x.json"],
    ],
    ids=" ".join,
)
def test_every_command_that_writes_looks(repository, capsys, words):
    (repository / "kernels").mkdir()
    (repository / "kernels" / "test_one.py").write_text("def test_one(): pass\n")
    link(repository / "reports", tracked=True)

    assert _run_cli(words) == 2
    assert "leads through the link" in " ".join(capsys.readouterr().err.split())
    assert list((repository.parent / "outside").iterdir()) == []


def test_a_run_enters_no_link_in_its_results(repository, capsys):
    (repository / "kernels").mkdir()
    (repository / "kernels" / "test_one.py").write_text("def test_one(): pass\n")
    for name in ("raw", "logs"):
        link(repository.parent / "o" / name)
        assert _run_cli(["run", "cpu", "--engine", "local", "--kernels", "kernels", "--out", "../o"]) == 2
        (repository.parent / "o" / name).unlink()
    assert list((repository.parent / "outside").iterdir()) == []


@pytest.mark.parametrize("content", ["text", b"picture"])
def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path, content):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "page").symlink_to("mine")
    write_text(tmp_path / "page", content)

    assert (tmp_path / "mine").read_text() == "kept"
    assert not (tmp_path / "page").is_symlink()


def commands(group: click.Group, name: str = ""):
    for key, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {key}")
        else:
            yield f"{name} {key}".strip(), command


WRITTEN = {"out", "markdown", "html_file", "svg", "summary", "json", "resume"}


def test_every_option_that_names_a_place_to_write_is_checked():
    unchecked = {
        f"{name} {parameter.name}"
        for name, command in commands(cli)
        for parameter in command.params
        if parameter.name in WRITTEN and isinstance(parameter.type, click.Path) and parameter.type not in (OUT_FILE, OUT_FOLDER)
    }

    assert unchecked == set()
