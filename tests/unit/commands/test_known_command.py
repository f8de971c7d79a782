"""`warpwave known update`, and the options about known failures, from the words of a command line to its exit code."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest
from synthetic import case, record, run, write_raw

from warpwave.__main__ import _run_cli
from warpwave.records import Stage, StageReport, Verdict

BAD, GOOD = "softmax/test_softmax.py::test_bad", "softmax/test_softmax.py::test_good"
LISTED = f"test alpha failed {BAD}\n"


def results(folder, *bad, good=(GOOD,)):
    """Write a run of the test stage in which these tests fail."""
    cases = [case(test, Verdict.FAILED, message="AssertionError") for test in bad] + [case(test) for test in good]
    verdict = Verdict.FAILED if bad else Verdict.PASSED
    report = StageReport(Stage.TEST, verdict, counts={"failed": len(bad), "passed": len(good)}, exit_code=0)
    own = dataclasses.replace(record("alpha"), verdict=verdict)
    made = run("alpha", record=own, cases=tuple(cases), samples=(), ceilings=(), compiled=(), stages=(report,))
    write_raw(folder / "raw" / "alpha", made)
    return str(folder)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    for name in ("GITHUB_BASE_REF", "GITHUB_REF", "GITHUB_SHA", "GITHUB_EVENT_NAME", "FAIL_ON", "KNOWN", "KERNELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_fails_is_listed_and_then_green(here, capsys):
    """From a red run over the list to a green report; a new failure is red again, and a fixed one is named with its command."""
    red = results(here / "red", BAD)
    assert _run_cli(["report", red]) == 1
    assert _run_cli(["known", "update", red]) == 0
    assert (here / "known-failures.txt").read_text().endswith(f"\n\n{LISTED}")
    listed = ["--known", "known-failures.txt"]
    assert _run_cli(["report", red, *listed]) == 0
    assert "1 known failure." in capsys.readouterr().out

    assert _run_cli(["report", results(here / "new", BAD, GOOD, good=()), *listed]) == 1
    fixed = results(here / "fixed", good=(BAD, GOOD))
    assert _run_cli(["report", fixed, *listed]) == 0
    shown = capsys.readouterr().out
    assert f"passes now on alpha: test alpha failed {BAD}" in " ".join(shown.split())
    assert "Known failures: warpwave known update fixed --prune" in shown
    assert _run_cli(["report", fixed, *listed, "--known-strict"]) == 1
    assert _run_cli(["known", "update", fixed, "--prune"]) == 0
    assert "test alpha" not in (here / "known-failures.txt").read_text()


def test_nothing_is_written_where_nothing_fails(here, capsys):
    """A list without an entry would only be another file; one that is named is there for the next run's --known."""
    good = results(here / "good")
    assert _run_cli(["known", "update", good]) == 0
    assert not (here / "known-failures.txt").exists()
    assert "nothing to list" in capsys.readouterr().out
    assert _run_cli(["known", "update", good, "--known", "list.txt"]) == 0
    assert _run_cli(["report", good, "--known", "list.txt"]) == 0


def test_an_update_as_json(here, capsys):
    """What was added and removed, and where the list is."""
    (here / "known-failures.txt").write_text(f"test alpha failed {GOOD}\n")
    assert _run_cli(["known", "update", results(here / "red", BAD), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert (document["added"], document["removed"]) == ([LISTED.strip()], [f"test alpha failed {GOOD}"])
    assert (document["entries"], document["file"]) == (1, str(here / "known-failures.txt"))


@pytest.mark.parametrize(("words", "code"), [([], 1), (["nothing"], 0), (["new"], 1), (["worse"], 1), (["any"], 1)])
def test_the_last_word_on_the_exit_code(here, words, code):
    red = results(here / "red", BAD)
    options = [word for each in words for word in ("--fail-on", each)]
    assert _run_cli(["report", red, *options, "--json", "out.json"]) == code
    document = json.loads((here / "out.json").read_text())
    assert (document["exit_code"], document["comparison"]["exit_code"]) == (code, code)


def test_a_run_in_place_of_a_list(here):
    earlier, red = results(here / "earlier", BAD), results(here / "red", BAD)
    assert _run_cli(["report", red, "--known", earlier]) == 0
    assert _run_cli(["report", results(here / "good", good=(BAD, GOOD)), "--known", earlier, "--known-strict"]) == 0
    assert _run_cli(["report", red, "--known", earlier, "--fail-on", "any"]) == 1


def test_a_list_that_is_wrong_is_named(here, capsys):
    (here / "known-failures.txt").write_text(f"{LISTED}tset alpha failed x\n")
    red = results(here / "red", BAD)

    assert _run_cli(["report", red, "--known", "known-failures.txt"]) == 2
    assert "known-failures.txt, line 2" in capsys.readouterr().err
    assert _run_cli(["known", "update", red]) == 2
    assert _run_cli(["report", red, "--known", "nowhere.txt"]) == 2
    (here / "known-failures.txt").write_bytes(b"test alpha failed \xff\n")
    assert _run_cli(["report", red, "--known", "known-failures.txt"]) == 2


# On a pull request.


@pytest.fixture
def repository(here, monkeypatch):
    """A repository whose base branch has an empty list, and whose current branch lists a failure."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")

    def git(*words):
        settings = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main")
        return subprocess.run(["git", *settings, *words], cwd=here / "p", check=True, capture_output=True, text=True).stdout.strip()

    (here / "p").mkdir()
    git("init", "-q")
    (here / "p" / "known-failures.txt").write_text("# none\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "change")
    (here / "p" / "known-failures.txt").write_text(LISTED)
    git("commit", "-qam", "two")
    monkeypatch.chdir(here / "p")
    return git


def test_the_base_branch_decides_what_is_known(repository, here, monkeypatch, capsys):
    """An entry that the change adds is shown, and excuses nothing; after the merge it counts."""
    red = results(here / "red", BAD)
    listed = ["report", red, "--known", "known-failures.txt"]

    assert _run_cli(listed) == 0
    assert _run_cli([*listed, "--known-base", "main"]) == 1
    assert f"is added by this change on alpha: {LISTED.strip()}" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    assert _run_cli(listed) == 1
    assert _run_cli(["ci", "report", red, "--kernels", ".", "--out", str(here / "out")]) == 1
    assert "::warning title=known failure added::" in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_BASE_REF", "change")
    assert _run_cli(listed) == 0


def test_a_base_branch_that_is_not_here_is_an_error(repository, here, capsys):
    listed = ["report", results(here / "red", BAD), "--known", "known-failures.txt"]
    assert _run_cli([*listed, "--known-base", "release"]) == 2
    assert "fetch-depth: 2" in capsys.readouterr().err
    assert _run_cli([*listed, "--known-base", "--output=x"]) == 2


def test_the_parent_of_a_merge_is_the_base_only_if_the_runner_made_it(repository, here, monkeypatch):
    repository("checkout", "-q", "--detach", "main")
    repository("merge", "-q", "--no-ff", "-m", "merged", "change")
    repository("branch", "-D", "main")
    listed = ["report", results(here / "red", BAD), "--known", "known-failures.txt"]
    monkeypatch.setenv("GITHUB_BASE_REF", "main")

    assert _run_cli(listed) == 2
    monkeypatch.setenv("GITHUB_REF", "refs/pull/7/merge")
    monkeypatch.setenv("GITHUB_SHA", "0" * 40)
    assert _run_cli(listed) == 2
    monkeypatch.setenv("GITHUB_SHA", repository("rev-parse", "HEAD"))
    assert _run_cli(listed) == 1


def test_a_base_run_is_known_to_a_pull_request_only(here, monkeypatch):
    base, red = results(here / "base", BAD), results(here / "red", BAD)
    report = ["ci", "report", red, "--base", base, "--out", str(here / "out")]

    assert _run_cli(["ci", "report", red, "--out", str(here / "out")]) == 1
    assert _run_cli(report) == 0
    assert _run_cli([*report, "--fail-on", "any"]) == 1
    assert _run_cli([*report, "--fail-on", "nothing"]) == 0
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    assert _run_cli(report) == 1
    assert _run_cli([*report, "--fail-on", "nothing"]) == 0


# With a package.


@pytest.mark.slow
def test_a_package_with_an_old_failure_becomes_green(here, capfd):
    """`run`, `known update` and the same `run`: the list of the package is found, and kept beside the results for later reports."""
    (here / "test_old.py").write_text("def test_wrong():\n    assert 1 == 2\n\n\ndef test_right():\n    pass\n")
    command = [sys.executable, "-m", "warpwave", "run", "cpu", "--kernels", ".", "--stage", "test", "--quiet", "--out"]

    def warpwave(*words):
        return subprocess.run(words, cwd=here, capture_output=True, text=True, check=False)

    results_at = here.parent / f"{here.name}-out"
    assert warpwave(*command, results_at / "1").returncode == 1
    updated = warpwave(sys.executable, "-m", "warpwave", "known", "update", results_at / "1")
    assert (updated.returncode, "1 added" in updated.stdout) == (0, True), updated.stderr
    again = warpwave(*command, results_at / "2")
    assert again.returncode == 0, again.stderr
    assert "1 known failure." in again.stdout
    assert warpwave(*command, results_at / "3", "--no-report").returncode == 0
    assert warpwave(sys.executable, "-m", "warpwave", "report", results_at / "2").returncode == 0
    (here / "test_old.py").write_text("def test_wrong():\n    assert 1 == 2\n\n\ndef test_right():\n    assert not 1\n")
    worse = warpwave(*command, results_at / "4")
    assert (worse.returncode, "1 test fails on cpu; 1 known failure." in worse.stdout) == (1, True)
    shutil.rmtree(results_at)
