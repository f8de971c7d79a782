"""A package that keeps its tests beside itself: its modules are found, and its own settings of pytest are in force."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import command
import pytest

from warpwave.config.package import import_folders, load_pytest_settings
from warpwave.config.targets import load_targets
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.workers import JOURNAL_VARIABLE
from warpwave.inside.test.settings import SETTINGS_VARIABLE
from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

REPOSITORY = Path(__file__).parents[4]
PACKAGE = {
    "my_ops/__init__.py": "import os\nfrom my_ops.sub import relu\n",
    "my_ops/sub.py": "relu = 'the tree'\n",
    "helpers/shared.py": "value = 3\n",
    "conftest.py": """
import pytest
def pytest_addoption(parser):
    parser.addoption("--card", default="none")
@pytest.fixture
def card(request):
    return request.config.getoption("--card")
""",
    "pyproject.toml": """
[tool.pytest.ini_options]
pythonpath = ["helpers"]
addopts = ["--card", "A", "--cov=my_ops", "--cov-report", "html", "-n", "auto", "--timeout=10", "-p", "nobody_has_this", "--strict-markers",
    "-m", "not slow", "--ignore=tests/ignored", "--strict-config"]
markers = ["slow: takes long"]
filterwarnings = ["error", "ignore:harmless"]
python_files = ["check_*.py"]
python_functions = ["check_*"]
norecursedirs = ["attic"]
timeout = 10
""",
    "tests/check_import.py": """
import subprocess, sys, warnings
import pytest
import shared
from my_ops import relu

def check_modules():
    assert (relu, shared.value) == ("the tree", 3)

def check_child():
    subprocess.run([sys.executable, "-c", "import my_ops"], check=True)

def check_options(card):
    assert card == "A"

def check_rootdir(pytestconfig):
    assert (pytestconfig.rootpath / "my_ops").is_dir()

def check_warnings():
    warnings.warn("harmless")
    with pytest.raises(UserWarning):
        warnings.warn("harmful")

@pytest.mark.slow
def check_slow():
    assert False

def test_is_no_test():
    assert False
""",
    "tests/attic/check_old.py": "def check_old(): assert False\n",
    "tests/ignored/check_ignored.py": "def check_ignored(): assert False\n",
    "tests/test_no_file.py": "def check_it(): assert False\n",
    "tests/bench_x.py": "import shared, my_ops\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def job(root: Path, kernels: Path) -> dict[str, object]:
    """What the host puts into the job for a package at `root`."""
    settings = load_pytest_settings(kernels, root)
    return {"package_root": str(root), "import_folders": import_folders(root), "pytest": settings, "benches": ("bench_*.py",)}


def outcomes(output: Path) -> dict[str, str]:
    found = {}
    for case in ElementTree.parse(output / "test" / "junit.xml").getroot().iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        identity = next(entry.get("value") for entry in case.iter("property") if entry.get("name") == "id")
        found[identity] = "passed" if bad is None else f"{bad.tag}: {bad.get('message')}"
    return found


NAMES = ("modules", "child", "options", "rootdir", "warnings")


def test_tests_run_with_the_settings_of_their_package(run_inside, package):
    """The root, `pythonpath`, `addopts`, markers, warnings, patterns and the root's conftest; ids stay relative to the kernels folder."""
    output = run_inside(package / "tests", Stage.TEST, light=True, **job(package, package / "tests"))
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert outcomes(output) == {f"check_import.py::check_{name}": "passed" for name in NAMES} | {"bench_x.py::module": "passed"}
    assert report["verdict"] == "passed", report
    assert report["notes"] == [
        "options of the package's addopts that were left out: "
        "-p nobody_has_this --cov=my_ops --cov-report html -n auto --timeout=10 --strict-config"
    ]


def test_a_plugin_that_does_not_load_is_off(tmp_path):
    """One of an older pytest, as a package's extras may pin it; its option in `addopts` goes with it, and other plugins stay."""
    hooks = {"old_hooks": "def pytest_collect_file(path, parent): pass", "fine": "import pytest\n@pytest.fixture\ndef five(): return 5"}
    for name, hook in hooks.items():
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        (tmp_path / f"{name}.py").write_text(f"def pytest_addoption(parser): parser.addoption('--{name}', action='store_true')\n{hook}\n")
        (tmp_path / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (tmp_path / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(f"[pytest11]\n{name} = {name}\n")
    (tmp_path / "test_a.py").write_text("def test_a(five): assert five == 5\n")
    journal = Journal(tmp_path / "journal")
    told = {JOURNAL_VARIABLE: str(journal.path), SETTINGS_VARIABLE: json.dumps({"addopts": ["--old_hooks", "--fine"]})}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "warpwave.inside.test.settings_plugin", "-p", "no:cacheprovider"]
    variables = {**os.environ, **told, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}

    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    notes = [event["text"] for event in journal.read()]

    assert done.returncode == 0, done.stdout + done.stderr
    assert notes[0].startswith("the plugin old_hooks does not load in pytest")
    assert "{'path'}" in notes[0]
    assert notes[1:] == ["options of the package's addopts that were left out: --old_hooks"]


def test_the_root_given_as_kernels_means_its_testpaths(run_inside, package):
    (package / "extra").mkdir()
    (package / "extra" / "check_extra.py").write_text("def check_extra(): pass\n")
    first = outcomes(run_inside(package, Stage.TEST, light=True, **job(package, package)))
    settings = package / "pyproject.toml"
    settings.write_text(settings.read_text() + 'testpaths = ["extra", "gone"]\n')
    second = outcomes(run_inside(package, Stage.TEST, light=True, **job(package, package)))

    assert {"tests/check_import.py::check_modules", "extra/check_extra.py::check_extra"} <= set(first)
    assert second == {"extra/check_extra.py::check_extra": "passed"}


def test_the_compile_stage_has_the_same_settings(run_inside, package):
    """Its workers are forked from a process that knows no package; a test or bench that cannot import would leave a row."""
    cards = load_targets()["cpu"].architectures[:1]
    output = run_inside(package / "tests", Stage.COMPILE, architectures=cards, **job(package, package / "tests"))
    rows = (output / "compile" / "kernels.jsonl").read_text() if (output / "compile" / "kernels.jsonl").exists() else ""
    journals = "".join(path.read_text() for path in (output / "compile").glob("journal-*.jsonl"))

    assert "No module named" not in rows + journals
    assert "check_import.py::check_modules" in journals
    assert "check_old" not in journals


def run(code: str, *folders: Path, **variables: str) -> str:
    """Run code after `enter` in a fresh process."""
    program = f"from warpwave.inside.environment import enter; enter({[str(folder) for folder in folders]!r})\n{code}"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "harness"), **variables}
    done = command.python("-c", program, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_package_hides_no_module_of_python(tmp_path):
    """Its root may hold a `queue.py`: that is what `import queue` finds in no process of ours."""
    (tmp_path / "queue.py").write_text("raise SystemExit('hidden')\n")

    assert run("import queue; print(queue.Queue.__name__)", tmp_path) == "Queue"


def test_the_tree_comes_before_an_installed_copy_and_borrows_what_it_lacks(tmp_path):
    """The tree's own modules are tested; an extension module or a version file that only the build makes is found in the copy."""
    tree, site = tmp_path / "tree", tmp_path / "site-packages"
    for folder, text in ((tree, "tree"), (site, "copy")):
        (folder / "my_ops").mkdir(parents=True)
        (folder / "my_ops" / "__init__.py").write_text(f"where = {text!r}\n")
    (site / "my_ops" / "_version.py").write_text("version = '1.2'\n")
    code = (
        f"import sys; sys.path.append({str(site)!r}); from my_ops import where; from my_ops._version import version; print(where, version)"
    )

    assert run(f"import sys; sys.path.append({str(site)!r})\n{code}", tree) == "tree 1.2"
