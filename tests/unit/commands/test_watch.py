"""`run --watch`: what an edit touches runs again, until Ctrl-C. Nothing waits: the clock of the loop makes the edits."""

import pytest

from warpwave.ci.job import check_options
from warpwave.cli import watch
from warpwave.cli.parse import parse_options
from warpwave.cli.run import run
from warpwave.errors import Outcome, UsageError

FILES = {
    "test_add.py": "import add\n\ndef test_add(): pass\n",
    "add.py": "",
    "test_mul.py": "def test_mul(): pass\n",
    "README.md": "",
    "reports/runs/1/raw/x": "",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def watched(package, monkeypatch, edits, *words):
    """What each run was asked for: its files and stages. Each poll that follows a run makes the next edit; behind the last is Ctrl-C."""
    options = run.make_context("run", ["cpu", "--watch", "--kernels", str(package), *words]).params
    assert options.pop("watch")
    asked, left = [], list(edits)

    def once(**given):
        left.insert(0, None)
        what = parse_options(given).what
        asked.append((what.chosen.tests, [stage.value for stage in what.stages or ()]))
        return Outcome()

    def sleep(seconds):
        if left and left[0] is None:  # the first poll after a run
            left.pop(0)
            if not left:
                raise KeyboardInterrupt
            name = left.pop(0)
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(FILES.get(name, "") + "\n# edited")

    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert watch.watch(options, once) == Outcome()
    return asked


def test_what_an_edit_touches_runs_again(package, monkeypatch):
    """The first run has everything; a module's edit runs the tests that import it, in the test stage."""
    asked = watched(package, monkeypatch, ["add.py", "test_mul.py"])

    assert asked[0][0] is None
    assert asked[1:] == [(("test_add.py",), ["test"]), (("test_mul.py",), ["test"])]


def test_the_stages_that_were_asked_for_stay(package, monkeypatch):
    assert watched(package, monkeypatch, ["test_mul.py"], "--stage", "compile")[1] == (("test_mul.py",), ["compile"])


def test_what_chose_the_first_run_does_not_choose_the_next(package, monkeypatch):
    assert [tests for tests, _ in watched(package, monkeypatch, ["add.py"], "--test", "test_mul.py")] == [
        ("test_mul.py",),
        ("test_add.py",),
    ]


def test_an_edit_that_touches_no_test_runs_nothing_and_goes_on(package, monkeypatch, capsys):
    assert [tests for tests, _ in watched(package, monkeypatch, ["README.md", "test_mul.py"])] == [None, ("test_mul.py",)]
    assert "none of the 2 test files and benches is touched" in capsys.readouterr().err


def test_results_and_caches_are_no_edits(package):
    before = watch._times(package)
    for name in ("reports/runs/1/raw/x", "__pycache__/a.pyc", ".git/index"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("new")

    assert watch._times(package) == before
    (package / "new.py").write_text("")
    assert watch._times(package) != before


@pytest.mark.parametrize("words", [["--out", "x"], ["--json"], ["--dry-run"], ["--resume", "x"]])
def test_what_is_for_one_run_is_refused(package, words):
    options = run.make_context("run", ["cpu", "--watch", "--kernels", str(package), *words], obj={}).params
    options.pop("watch")

    with pytest.raises(UsageError, match="were both given"):
        watch.watch(options, lambda **given: Outcome())


def test_a_job_of_a_workflow_does_not_wait_for_edits(package):
    options = run.make_context("run", ["cpu", "--watch", "--kernels", str(package)]).params

    with pytest.raises(UsageError, match="--watch"):
        check_options("cpu", package, options)
