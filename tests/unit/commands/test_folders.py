"""Where results go if nobody says so, and what is left alone there. All data is synthetic."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from synthetic import record, run, write_raw

from warpwave.__main__ import _run_cli
from warpwave.run.folders import RUNS, ignored_by_git


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A repository of the user's, with two runs in it."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    for name in ("a", "b"):
        write_raw(tmp_path / name / "raw" / name, run(record=record(name)))
        (tmp_path / name / "comparison.html").write_text("mine")
    return tmp_path


def untracked() -> str:
    return subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout


def test_git_ignores_the_default_folder_and_no_other(here):
    """What somebody named may be meant for a commit."""
    before = untracked()
    made = ignored_by_git(RUNS / "one")
    made.mkdir()
    (made / "comparison.md").touch()
    assert untracked() == before

    ignored_by_git(Path("recorded") / "one")
    assert not Path("recorded").exists()


def test_git_ignores_the_default_history_and_no_other(here):
    """Its neighbours may be reports for a commit."""
    before = untracked()
    assert _run_cli(["history", "add", "a"]) == 0
    assert (here / "reports" / "history.sqlite").exists()
    assert untracked() == before

    assert _run_cli(["history", "add", "a", "--file", "reports/mine.sqlite"]) == 0
    (here / "reports" / "page.html").touch()
    assert untracked() == before + "?? reports/\n"


def test_an_edited_gitignore_stays(here):
    """It is the user's."""
    ignored_by_git(RUNS / "one")
    (here / RUNS / ".gitignore").write_text("")
    ignored_by_git(RUNS / "two")

    assert (here / RUNS / ".gitignore").read_text() == ""


def test_a_report_of_several_runs_replaces_none_of_theirs(here, capsys):
    """It goes to a folder of its own, and the last line says where; so do pictures."""
    before = untracked()
    assert _run_cli(["report", "a", "b"]) == 0
    (made,) = (here / RUNS).glob("*/")

    assert f"Reports: {made.relative_to(here)}/comparison.html" in capsys.readouterr().out
    assert {path.read_text() for path in here.glob("?/comparison.html")} == {"mine"}
    assert _run_cli(["plot", "a", "b"]) == 0
    assert not (here / "a" / "plots").exists()
    assert untracked() == before


def test_the_report_of_one_run_is_written_again(here):
    """In its folder: the same files."""
    assert _run_cli(["report", "a"]) == 0
    assert (here / "a" / "comparison.html").read_text() != "mine"
