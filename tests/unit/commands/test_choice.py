"""The options that choose tests: what each of them comes to, and what is refused before anything runs."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic import case as passed
from synthetic import compiled, run, write_raw

from warpwave.cli.options import overridden, pytest_words
from warpwave.cli.parse import parse_options
from warpwave.cli.run import parse_run
from warpwave.config.package import find_root, import_folders, load_pytest_settings
from warpwave.config.pyproject import load_gates
from warpwave.errors import NothingRanError, UsageError, WarpwaveError
from warpwave.records import PytestSettings, Verdict

FILES = {
    "pyproject.toml": "[project]\nname = 'ops'\n",
    "ops/__init__.py": "",
    "ops/add.py": "X = 1\n",
    "ops/mul.py": "from .add import X\n",
    "tests/test_add.py": "import ops.add\n\n\ndef test_x(): ...\n",
    "tests/test_mul.py": "from ops.mul import X\n",
    "tests/deep/test_none.py": "class T:\n    def test_x(self): ...\n",
    "bench_mul.py": "import ops.mul\n",
    "bench_none.py": "",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in git with three test files and two benches; the current folder is the one around it."""
    for name, text in FILES.items():
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "p"


@pytest.fixture
def git(package):
    if shutil.which("git") is None:
        pytest.skip("there is no git")

    def run_git(*words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=package, check=True, capture_output=True)

    run_git("init", "-q")
    run_git("add", "-A")
    run_git("commit", "-qm", "one")
    return run_git


def parse(*words):
    return parse_options(parse_run(["cpu", *words]).params)


SPELLINGS = {
    "relative to the kernels": ("p/tests", "test_add.py::test_x[(1, 2)]"),
    "relative to the root": ("p/tests", "tests/test_add.py::test_x[(1, 2)]"),
    "relative to this folder": ("p/tests", "p/tests/test_add.py::test_x[(1, 2)]"),
    "with dots": ("p/tests", "./test_add.py::test_x[(1, 2)]"),
}


@pytest.mark.parametrize("how", SPELLINGS)
@pytest.mark.parametrize("option", [["--test"], []], ids=["option", "positional"])
def test_an_id_is_one_whatever_its_path_begins_at(package, how, option):
    """pytest prints it relative to its root, a shell completes it from here, and a report has it relative to --kernels."""
    kernels, nodeid = SPELLINGS[how]
    chosen = parse("--kernels", kernels, *option, nodeid).what.chosen

    assert (chosen.tests, chosen.how, chosen.must_exist) == (("test_add.py::test_x[(1, 2)]",), ("--test",), True)


def test_words_behind_two_dashes_are_pytest_s(package):
    asked = parse("--kernels", "p", "-k", "add", "--pytest-args", "--tb short", "--", "-m", "not slow", "-x", "--ignore", "tests/deep")

    assert asked.what.pytest_args == ("-k=add", "--tb=short", "-m=not slow", "-x", "--ignore=tests/deep")

    context = parse_run(["cpu", "--kernels", "p", "--", "-m", "not slow"])
    with context:
        recorded = parse_options(context.params).where.command

    assert recorded == ("warpwave", "run", "cpu", "--kernels", "p", "--pytest-args", "-m 'not slow'")
    again = parse_run([*recorded[2:], "--resume", "out"]).params
    assert (again["pytest_args"], str(again["resume"])) == (("-m=not slow",), "out")


ALLOWED = {
    "-x -v --maxfail 2": ("-x", "-v", "--maxfail=2"),
    "-kadd -Werror": ("-k=add", "-W=error"),
    "-p my.plugin -W error": ("-pmy.plugin", "-W=error"),
    "--strict-markers --my-option=3": ("--strict-markers", "--my-option=3"),
    "-o xfail_strict=true": ("-o=xfail_strict=true",),
    "-o addopts= -p no:randomly": ("-o=addopts=", "-pno:randomly"),
}


@pytest.mark.parametrize("text", ALLOWED)
def test_options_of_pytest_pass_through(text):
    assert pytest_words([text]) == ALLOWED[text]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("-n 2", "-n "),
        ("-n2", "-n "),
        ("-nauto", "-n "),
        ("--dist=load", "--dist "),
        ("-p no:terminal", "-p no:terminal"),
        ("-pno:warpwave.inside.test.pytest_plugin", "-p no:"),
        ("--junitxml=x", "--junitxml "),
        ("-c x.ini", "-c "),
        ("--rootdir .", "--rootdir "),
        ("-o testpaths=x", "-o testpaths "),
        ("--override-ini=python_files=x", "--override-ini python_files "),
        ("--lf", "--lf "),
        ("--co", "--co "),
        ("--pdb", "--pdb "),
        ("-s", "-s "),
        ("tests/test_x.py", "'tests/test_x.py'"),
        ("--tb short test_x.py::test_y", "'test_x.py::test_y'"),
        ("'open", "No closing quotation"),
    ],
)
def test_options_that_would_break_the_harness_are_refused(text, named):
    with pytest.raises(UsageError) as refused:
        pytest_words([text])

    assert named in refused.value.happened
    assert all(beat.endswith((".", "'.")) for beat in (refused.value.happened, refused.value.meaning, refused.value.remedy))


def case(nodeid, verdict=Verdict.PASSED, seconds=0.0):
    return dataclasses.replace(passed(nodeid, verdict), seconds=seconds)


def _earlier(folder, **more):
    """A run in which one test failed, one crashed, a module did not import, and a kernel that a test launches did not compile."""
    cases = (
        case("tests/test_add.py::test_x[(1, 2)]", Verdict.FAILED, seconds=4.0),
        case("tests/test_add.py::test_y", seconds=2.0),
        case("tests/test_mul.py::test_z", Verdict.CRASHED, seconds=1.0),
        case("tests/deep/test_none.py", Verdict.ERROR),
        case("tests/test_gone.py::test_w", Verdict.FAILED),
        case("bench_none.py::module", Verdict.NOT_RUN),
    )
    kernels = (
        compiled(origin="tests/test_mul.py::test_v", verdict=Verdict.FAILED, seconds=3.0),
        compiled(origin="softmax/N=1 [triton]", verdict=Verdict.FAILED, kernel="mul", seconds=5.0),
    )
    write_raw(folder / "raw" / "alpha", run("alpha", cases=cases, compiled=kernels, **more))
    return folder


def test_what_failed_in_an_earlier_run_runs_again(package, tmp_path):
    """Of both stages; a test whose file is gone is counted; a module stands for its tests."""
    chosen = parse("--kernels", "p", "--last-failed", str(_earlier(tmp_path / "run"))).what.chosen

    assert chosen.tests == (
        *("tests/test_add.py::test_x[(1, 2)]", "tests/test_mul.py::test_z", "tests/deep/test_none.py", "tests/test_mul.py::test_v"),
    )
    assert chosen.why == (f"5 tests failed in {tmp_path / 'run'}; the files of 1 of them are gone",)
    assert (chosen.how, chosen.must_exist) == ((f"--last-failed {tmp_path / 'run'}",), False)

    # The seconds of tests, and of what they launch compiled; a point's are its kernel's.
    times = parse("--kernels", "p", "--shard", "1/2", "--shard-times", str(_earlier(tmp_path / "run"))).where.shard_times

    seconds = {"tests/test_add.py": 6.0, "tests/test_mul.py": 4.0, "mul": 5.0}
    assert {name: value for name, value in times.items() if value} == seconds


def test_a_run_without_a_failure_leaves_nothing_to_run(package, tmp_path):
    write_raw(tmp_path / "run" / "raw" / "alpha", run("alpha", cases=(case("tests/test_add.py::test_y"),), compiled=()))

    with pytest.raises(NothingRanError):
        parse("--kernels", "p", "--last-failed", str(tmp_path / "run"))


def test_a_list_of_tests_is_left_out(package, tmp_path):
    """With comments, ids that begin at the root, and some of files that are gone."""
    (tmp_path / "skip.txt").write_text("# slow\n\ntests/test_add.py::test_x[#1, 2]\n  test_mul.py  \ntests/test_gone.py::test_y\n")
    chosen = parse("--kernels", "p/tests", "--deselect-from", "skip.txt", "test_add.py").what.chosen

    assert chosen.without == ("test_add.py::test_x[#1, 2]", "test_mul.py", "tests/test_gone.py::test_y")
    assert (chosen.tests, chosen.how) == (("test_add.py",), ("--test", "--deselect-from skip.txt"))


def test_what_a_change_touches_runs(package, git):
    """Tests and benches that need a changed module, with the reason; what was committed, edited and added, since the commit."""
    (package / "ops" / "add.py").write_text("X = 2\n")
    git("commit", "-qam", "two")
    (package / "tests" / "deep" / "test_new.py").write_text("")
    (package / "README.md").write_text("new")
    asked = parse("--kernels", "p", "--changed-since", "HEAD~1")
    later = parse("--kernels", "p", "--changed-since", "HEAD")

    assert sorted(asked.what.chosen.tests) == ["bench_mul.py", "tests/deep/test_new.py", "tests/test_add.py", "tests/test_mul.py"]
    assert asked.what.benches == ("bench_mul.py",)
    assert asked.what.chosen.why[0].startswith("4 of 6 test files and benches are touched by what has changed since HEAD~1 (")
    assert "tests/test_mul.py: needs ops/add.py" in asked.what.chosen.why
    assert "tests/deep/test_new.py: it has changed" in asked.what.chosen.why
    assert asked.what.chosen.why[-1] == "no test needs 1 of the changed files: README.md"
    assert (later.what.chosen.tests, later.what.benches) == (("tests/deep/test_new.py",), ("(no bench in this run)",))
    budget = parse("--kernels", "p/tests", "--budget", "5m", "--known-base", "HEAD~1").limits.budget
    assert sorted(budget.changed) == ["deep/test_new.py", "test_add.py", "test_mul.py"]
    assert budget.edited == ("deep/test_new.py",)


def test_what_others_changed_since_is_not_this_change(package, git):
    git("checkout", "-qb", "mine")
    (package / "ops" / "mul.py").write_text("X = 3\n")
    git("commit", "-qam", "mine")
    git("checkout", "-q", "-b", "theirs", "HEAD~1")
    (package / "tests" / "deep" / "test_none.py").write_text("#\n")
    git("commit", "-qam", "theirs")
    git("checkout", "-q", "mine")

    assert parse("--kernels", "p", "--changed-since", "theirs").what.chosen.tests == ("bench_mul.py", "tests/test_mul.py")


def test_a_change_that_touches_no_test_leaves_nothing_to_run(package, git):
    (package / "README.md").write_text("new")

    with pytest.raises(NothingRanError, match="none of the 5 test files and benches") as refused:
        parse("--kernels", "p", "--changed-since", "HEAD")
    assert "README.md" in refused.value.meaning


REFUSED = {
    "no such file": ["--test", "tests/test_mum.py::test_x"],
    "outside of the kernels": ["--kernels", "p/tests", "--test", "../bench_mul.py"],
    "two choices": ["--test", "tests/test_add.py", "--changed-since", "HEAD"],
    "no such list": ["--deselect-from", "none.txt"],
    "an empty list": ["--deselect-from", "empty.txt"],
    "no such run": ["--last-failed", "none"],
    "times without a shard": ["--shard-times", "p"],
    "no repository": ["--changed-since", "HEAD"],
    "two expressions": ["-k", "a", "--", "-k", "b"],
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_choice_that_cannot_be_made_is_refused(package, tmp_path, what, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "empty.txt").write_text("# nothing\n\n")
    with pytest.raises(WarpwaveError) as refused:
        parse("--kernels", "p", *REFUSED[what])

    assert refused.value.exit_code in (2, 4)


@pytest.mark.parametrize("ref", ["no-such-branch", "--output=x", "HEAD~9", "HEAD:ops"])
def test_a_commit_that_git_does_not_know_is_refused(package, git, ref):
    with pytest.raises(UsageError, match="git knows no commit"):
        parse("--kernels", "p", f"--changed-since={ref}")


def test_a_target_is_always_needed(package):
    import click

    with pytest.raises(click.UsageError, match="no target before it"):
        parse_run(["tests/test_add.py::test_x"])

    settings = PytestSettings(addopts=("-m", "not gpu"))

    assert overridden(settings, pytest_words(["-o addopts="])).addopts == ()
    assert overridden(settings, pytest_words(["-o xfail_strict=true"])) == settings


# Which folder is a package's root, which folders its modules come from, and which settings of pytest are its own.


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "kernels", "root"),
    [
        ({"ops/pyproject.toml": "", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/pyproject.toml": "[project]\nname = 'ops'", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/pyproject.toml": "[tool.pytest.ini_options]", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/pyproject.toml": "[tool.warpwave]", "ops/tests/x.py": "", "setup.py": ""}, "ops/tests", "ops"),
        ({"ops/tests/pyproject.toml": "[tool.black]\nline-length = 100", "ops/setup.py": ""}, "ops/tests", "ops"),
        (
            {"ops/tests/k/setup.cfg": "[flake8]\nmax-line-length = 100", "ops/tests/pyproject.toml": "[tool.ruff]", "ops/.git": ""},
            "ops/tests/k",
            "ops",
        ),
        (
            {"ops/pyproject.toml": "[tool.black]\nline-length = 100", "ops/tests/tox/setup.cfg": "[mypy-numpy]"},
            "ops/tests/tox",
            "ops/tests/tox",
        ),
        ({"ops/setup.py": "", "ops/a/tests/x.py": ""}, "ops/a/tests", "ops"),
        ({"ops/setup.cfg": "", "ops/tests/x.py": ""}, "ops", "ops"),
        ({"ops/.git/HEAD": "", "ops/tests/x.py": ""}, "ops/tests", "ops"),
        ({"ops/.git": "gitdir: elsewhere", "ops/tests/x.py": ""}, "ops/tests", "ops"),
        ({"ops/tests/x.py": ""}, "ops/tests", "ops/tests"),
        ({"it/.git/HEAD": "", "it/w/ops-1.dist-info/METADATA": "", "it/w/ops/tests/x.py": ""}, "it/w/ops/tests", "it/w"),
        ({"it/.git/HEAD": "", "it/w/a-1.dist-info/METADATA": "", "it/w/b-1.dist-info/METADATA": "", "it/w/a/x.py": ""}, "it/w/a", "it"),
        ({".git/HEAD": "", "ops/build.toml": "", "ops/torch-ext/ops/x.py": "", "ops/tests/x.py": ""}, "ops/tests", "ops"),
        ({"pyproject.toml": "", "home/setup.py": "", "home/ops/x.py": ""}, "home/ops", "home/ops"),
        ({"home/work/setup.py": "", "home/work/tests/x.py": ""}, "home/work/tests", "home/work"),
    ],
)
def test_the_root_is_the_nearest_project(tmp_path, files, kernels, root):
    """A project file or a clone is a root, and settings of style are if there is neither; the home folder never is, nor what is above."""
    write(tmp_path, files)

    assert find_root(tmp_path / kernels, home=tmp_path / "home") == tmp_path / root


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        ({"my_ops/__init__.py": ""}, (".",)),
        ({"src/my_ops/__init__.py": ""}, (".", "src")),
        ({"src/__init__.py": "", "src/ops.py": ""}, (".",)),
        ({"src/README.md": ""}, (".",)),
        ({"build.toml": "", "torch-ext/my_ops/__init__.py": ""}, (".", "torch-ext")),
        ({"torch-ext/my_ops/__init__.py": ""}, (".",)),
        ({"python/my_ops/x.py": "", "pyproject.toml": "[tool.setuptools]\npackage-dir = {'' = 'python'}"}, (".", "python")),
        ({"lib/my_ops/x.py": "", "pyproject.toml": "[tool.setuptools.packages.find]\nwhere = ['lib']"}, (".", "lib")),
        ({"py/my_ops/x.py": "", "pyproject.toml": "[tool.hatch.build.targets.wheel]\npackages = ['py/my_ops']"}, (".", "py")),
        ({"py/my_ops/x.py": "", "pyproject.toml": "[tool.poetry]\npackages = [{include = 'my_ops', from = 'py'}]"}, (".", "py")),
        ({"py/my_ops/x.py": "", "setup.py": "setup(package_dir={'': 'py'}, packages=[])"}, (".", "py")),
        ({"py/my_ops/x.py": "", "setup.cfg": "[options]\npackage_dir =\n    = py\n"}, (".", "py")),
        ({"pyproject.toml": "[tool.setuptools.packages.find]\nwhere = ['../other', '/etc', 'gone']"}, (".",)),
        ({".git/HEAD": "", "lib/setup.py": "", "lib/src/my_ops/x.py": "", "examples/setup.py": ""}, (".", "lib", "lib/src")),
        ({"lib/setup.py": "", "other/setup.py": ""}, (".",)),
        ({"setup.py": "", "lib/setup.py": ""}, (".",)),
        ({"pyproject.toml": "[tool\n"}, (".",)),
        ({"pyproject.toml": "tool = 3\n", "setup.cfg": "no section"}, (".",)),
    ],
)
def test_modules_come_from_the_root_and_its_layout(tmp_path, files, folders):
    """`src` where packages are in it, and what the build's settings name; never a folder outside of the package."""
    assert import_folders(write(tmp_path, files)) == folders


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": "[pytest]\npythonpath = . lib\naddopts = -m 'not slow'"}, ("pytest.ini", (".", "lib"), ("-m", "not slow"))),
        ({"pytest.ini": ""}, ("pytest.ini", (), ())),
        ({"pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\naddopts = '-q'"}, ("pyproject.toml", (".",), ("-q",))),
        ({"pyproject.toml": "[tool.pytest]\naddopts = ['-q']"}, ("pyproject.toml", (), ("-q",))),
        ({"pytest.toml": "[pytest]\npythonpath = ['.']"}, ("pytest.toml", (".",), ())),
        ({"pyproject.toml": "[project]\nname = 'ops'", "tox.ini": "[pytest]\naddopts = -x"}, ("tox.ini", (), ("-x",))),
        ({"setup.cfg": "[tool:pytest]\naddopts = --cov=%(x)s"}, ("setup.cfg", (), ("--cov=%(x)s",))),
        ({"setup.cfg": "[pytest]\naddopts = -x"}, ("", (), ())),
        (
            {"tests/pytest.ini": "[pytest]\npythonpath = ../lib", "pytest.ini": "[pytest]\naddopts = -x"},
            ("tests/pytest.ini", ("tests/../lib",), ()),
        ),
    ],
)
def test_the_nearest_settings_of_pytest_count(tmp_path, files, expected):
    """Each file that pytest reads, in its order, from the kernels folder up to the root; paths are relative to the root."""
    write(tmp_path, {"tests/test_x.py": "", **files})
    found = load_pytest_settings(tmp_path / "tests", tmp_path)

    assert (found.file, found.pythonpath, found.addopts) == expected


def test_settings_above_the_root_do_not_count(tmp_path):
    write(tmp_path, {"pytest.ini": "[pytest]\naddopts = -x", "ops/setup.py": "", "ops/tests/test_x.py": ""})

    assert load_pytest_settings(tmp_path / "ops" / "tests", tmp_path / "ops") == PytestSettings()


def test_files_and_folders_of_tests(tmp_path):
    write(tmp_path, {"pytest.ini": "[pytest]\npython_files = check_*.py *_check.py\ntestpaths =\n    tests\n    more/tests"})

    found = load_pytest_settings(tmp_path, tmp_path)

    assert (found.python_files, found.testpaths) == (("check_*.py", "*_check.py"), ("tests", "more/tests"))


def test_waivers_of_other_packages_are_not_this_ones(tmp_path):
    """A pyproject.toml above the folder is about more than it; one in it may have stale waivers, which are reported."""
    waivers = "".join(f'[[tool.warpwave.waivers]]\ngate = "spills"\nkernel = "{name}"\nreason = "known"\n' for name in ("relu", "gelu"))
    write(tmp_path, {"pyproject.toml": waivers, "ops/relu/test_relu.py": "", "gelu/test_gelu.py": ""})

    assert [waiver.which.kernel for waiver in load_gates(tmp_path / "ops").waivers] == [("relu",)]
    assert len(load_gates(tmp_path).waivers) == 2
