"""A package that keeps its tests beside itself: its modules are found, and its own settings of pytest are in force."""

import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import command
import pytest
from engine_requests import make_job

from warpwave.config.package import import_folders, load_pytest_settings
from warpwave.config.targets import load_targets
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.workers import JOURNAL_VARIABLE
from warpwave.inside.test.budget import Pace, in_units, is_importing
from warpwave.inside.test.settings import SETTINGS_VARIABLE, Settings
from warpwave.records import Budget, Limits, Stage, to_json

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
    """The root, `pythonpath`, `addopts`, markers, warnings, patterns and conftest. Ids stay relative to `--kernels`."""
    output = run_inside(package / "tests", Stage.TEST, light=True, **job(package, package / "tests"))
    report = json.loads((output / "stages.json").read_text())["reports"][1]

    assert outcomes(output) == {f"check_import.py::check_{name}": "passed" for name in NAMES} | {"bench_x.py::module": "passed"}
    assert report["verdict"] == "passed", report
    assert report["notes"] == [
        "options of the package's addopts that were left out: "
        "-p nobody_has_this --cov=my_ops --cov-report html -n auto --timeout=10 --strict-config"
    ]


WRITTEN = ("left.txt", "tests/data/left.txt", "new/left.txt", ".cache/left.txt")
RELATIVE = {
    "pyproject.toml": "[tool.pytest.ini_options]\nnorecursedirs = ['attic']\n",  # and no more those that are hidden
    "shared.py": "from pathlib import Path\nhere = Path(__file__)\n",
    "tests/data/x.json": "[1]",
    "tools/square.py": "import pathlib, sys\nprint(pathlib.Path('tests/data/x.json').read_text(), sys.argv[1])\n",
    ".cache/old": "",
    "tests/test_paths.py": """
import importlib, os, subprocess, sys
from pathlib import Path
import pytest
ROOT = Path(__file__).parents[1]
WRITTEN = """
    + repr(WRITTEN)
    + """
first = Path("tests/data/x.json").read_text()
def test_read():
    assert first == "[1]"
    assert [str(path) for path in Path(".").rglob("*.json")] == ["tests/data/x.json"]
def test_child():
    done = subprocess.run([sys.executable, "tools/square.py", "4"], capture_output=True, text=True, check=True)
    assert done.stdout == "[1] 4\\n"
@pytest.mark.parametrize("name", WRITTEN)
def test_write(name):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("left")
    assert not (ROOT / name).exists()
def test_import(monkeypatch):
    monkeypatch.syspath_prepend(os.getcwd())
    assert importlib.import_module("shared").here == ROOT / "shared.py"
    Path("made.py").write_text("value = 3")
    importlib.invalidate_caches()
    assert importlib.import_module("made").value == 3
def test_where(pytestconfig):
    assert pytestconfig.invocation_params.dir == Path.cwd() != ROOT
""",
}


@pytest.mark.parametrize("stage", [Stage.TEST, Stage.COMPILE])
def test_paths_relative_to_the_root_work(run_inside, tmp_path, stage):
    """Also where the results are in the package, and for what a test starts; nothing is written there, or left behind."""
    for name, text in RELATIVE.items():
        (tmp_path / "a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / name).write_text(text)
    root, temporary = tmp_path / "a", tmp_path / "temporary"
    (output := root / "out" / "raw").mkdir(parents=True)
    temporary.mkdir()
    before = {path for path in root.rglob("*") if not path.is_relative_to(output)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # as engines do
        run_inside(root, stage, light=stage is Stage.TEST, output=output, **job(root, root) | {"benches": ()})
    if stage is Stage.TEST:
        found = outcomes(output)
    else:
        events = [json.loads(line) for line in (output / "compile" / "journal-sm_90.jsonl").read_text().splitlines()]
        found = {event["id"]: event["reason"] or "passed" for event in events if event["event"] == "finish"}

    assert {name.partition("::")[2]: outcome for name, outcome in found.items()} == dict.fromkeys(
        [*(f"test_{name}" for name in ("read", "child", "import", "where")), *(f"test_write[{name}]" for name in WRITTEN)], "passed"
    )
    assert {path for path in root.rglob("*") if not path.is_relative_to(output)} == before
    assert list(temporary.glob("warpwave-*")) == []


def test_a_mark_that_is_not_registered_is_an_error_where_the_package_says_so(run_inside, tmp_path):
    """But for those of plugins, which may not be installed here."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -v --strict-markers\nmarkers = slow: takes long\n")
    for name in ("slow", "slwo", "timeout"):
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n@pytest.mark.{name}\ndef test_it(): pass\n")
    found = outcomes(run_inside(tmp_path, Stage.TEST, light=True, **job(tmp_path, tmp_path)))

    assert (found.pop("test_slow.py::test_it"), found.pop("test_timeout.py::test_it")) == ("passed", "passed")
    assert "'slwo' not found in `markers`" in found["test_slwo.py"]


@pytest.mark.parametrize("words", ["-W error", "-Werror::UserWarning", "--pythonwarnings=error"])
def test_addopts_make_errors_of_warnings(words, run_inside, tmp_path):
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {words}\n")
    (tmp_path / "test_warns.py").write_text("import warnings\ndef test_it(): warnings.warn('old')\n")

    assert "UserWarning: old" in outcomes(run_inside(tmp_path, Stage.TEST, light=True, **job(tmp_path, tmp_path)))["test_warns.py::test_it"]


def test_pytests_cache_is_there_and_leaves_nothing(run_inside, tmp_path):
    (tmp_path / "conftest.py").write_text("def pytest_configure(config): config.cache.set('mine/runs', 1)\n")
    (tmp_path / "test_cached.py").write_text("def test_it(cache): assert cache.get('mine/runs', 0) == 1\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, **job(tmp_path, tmp_path))

    assert outcomes(output) == {"test_cached.py::test_it": "passed"}
    assert list(tmp_path.rglob(".pytest_cache")) == []


def test_a_module_that_pytest_collects_twice_is_reported_once(run_inside, tmp_path):
    """For tests and for doctests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --doctest-modules\n")
    (tmp_path / "test_skips.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    (tmp_path / "test_typo.py").write_text("from json import laods\n")
    (tmp_path / "test_runs.py").write_text("def test_it(): pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, **job(tmp_path, tmp_path))
    found = outcomes(output)

    assert found["test_runs.py::test_it"] == "passed"
    assert found["test_skips.py"].startswith("skipped")
    assert "cannot import name 'laods'" in found["test_typo.py"]
    assert json.loads((output / "test" / "report.json").read_text())["verdict"] == "error"


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
    told = {JOURNAL_VARIABLE: str(journal.path), SETTINGS_VARIABLE: str(tmp_path / "settings.json")}
    (tmp_path / "settings.json").write_text(to_json(Settings(make_job("r", "cpu", (), ".", "."), addopts=("--old_hooks", "--fine"))))
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


# `pytest --warpwave NAME` in an author's own repository: the outcomes are those of a run, under the author's own plugins.


pytest.importorskip("triton")

TESTS = """
import ctypes, unittest
import pytest, torch, triton
import triton.language as tl
class TestTimes(unittest.TestCase):
    def test_fast(self): self.assertLess(triton.testing.do_bench(lambda: None), 0.001)
def test_unbuilt(): ctypes.CDLL("librows.so")
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr, LIMIT: tl.constexpr):
    at = tl.arange(0, BLOCK)
    nothing = tl.sum(0 * at)  # Triton's own function, which is jitted when Triton is imported
    tl.store(out + at, nothing + 2 * tl.load(x + at, mask=at < LIMIT, other=0.0), mask=at < n)
def launched(limit):
    assert torch.cuda.is_available()
    x = torch.arange(48.0, device="cuda")
    out = torch.empty_like(x)
    double[(1,)](x, out, 48, BLOCK=64, LIMIT=limit)
    assert torch.equal(out, 2 * x)
def test_good(): launched(48)
def test_reads_too_far(): launched(64)
def test_forgotten_copy(): torch.ones(1, device="cuda").numpy()
def test_whole_numbers(): torch.ones(4, 4, device="cuda", dtype=torch.int32) @ torch.ones(4, 4, device="cuda", dtype=torch.int32)
def test_needs_a_driver(): torch.empty(1, device="cuda").untyped_storage()._share_cuda_()
def test_of_the_card(): assert torch.cuda.get_device_name() == WANTED
@pytest.mark.xfail(strict=True)
def test_expected(): launched(8)
"""
CONFTEST = "import torch\nassert torch.cuda.is_available(), 'the first conftest.py sees no card'\n"


@pytest.fixture
def package_of_pretend(tmp_path) -> Path:
    """A package with tests, whose conftest.py asks for a card."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_double.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "rows.cpp").write_text('extern "C" void rows() {}\n')
    return tmp_path


def run_pytest(package_of_pretend: Path, *words: str, wanted: str = "") -> subprocess.CompletedProcess[str]:
    (package_of_pretend / "test_double.py").write_text(f"WANTED = {wanted!r}\n{TESTS}")
    loaded = ["-p", "no:warpwave", "-p", "warpwave.pytest_entry"]  # this Python may have the entry point installed
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("WARPWAVE", "PYTEST"))}
    variables["PYTHONPATH"] = str(REPOSITORY / "harness")
    words = ("-p", "no:cacheprovider", "-rA", "--color=no", *loaded, *words)
    return command.python("-m", "pytest", *words, cwd=package_of_pretend, env=variables)


def outcomes_of_pretend(text: str) -> dict[str, str]:
    found = re.findall(r"^(PASSED|FAILED|XFAIL|ERROR) \S*::(\w+)", text, re.MULTILINE)
    return {test: outcome for outcome, test in found}


@pytest.mark.parametrize(
    ("name", "card", "how"),
    [
        ("h100", "NVIDIA H100 80GB HBM3", "sm_90 (H100), kernels run in"),
        ("gfx942", "AMD Instinct MI300X", "gfx942 (MI300X), machine code"),
    ],
)
def test_outcomes_are_those_of_a_run(package_of_pretend, name, card, how):
    """A kernel that reads too far fails its test; what is not pretended is skipped and counted; `xfail` and conftest.py work."""
    pytest.importorskip("tinygrad" if name == "gfx942" else "triton")
    done = run_pytest(package_of_pretend, "--warpwave", name, wanted=card)

    assert outcomes_of_pretend(done.stdout) == {
        "test_good": "PASSED",
        "test_reads_too_far": "FAILED",
        "test_forgotten_copy": "FAILED",
        "test_whole_numbers": "FAILED",
        "test_of_the_card": "PASSED",
        "test_expected": "XFAIL",
    }
    assert re.search(r"outside of all buffers|out-of-bounds", done.stdout), done.stdout
    assert "not checked: " in done.stdout
    assert "warpwave: 3 tests were not checked" in done.stdout
    assert f"warpwave: {how}" in done.stdout
    assert done.returncode == 1


def test_it_works_with_other_plugins(package_of_pretend):
    """xdist's workers pretend the card, too; `-k` selects, and settings of pytest may hold the option."""
    pytest.importorskip("xdist")
    (package_of_pretend / "pytest.ini").write_text("[pytest]\naddopts = --warpwave cpu -n 2\n")
    done = run_pytest(package_of_pretend, "-k", "good or far")

    assert outcomes_of_pretend(done.stdout) == {"test_good": "PASSED", "test_reads_too_far": "FAILED"}


def test_without_the_option_nothing_happens(package_of_pretend):
    (package_of_pretend / "conftest.py").write_text(
        "import sys\ndef pytest_sessionfinish():\n"
        "    print('warpwave:', [name for name in sys.modules if name.startswith(('warpwave.inside', 'warpwave.config'))])\n"
    )
    (package_of_pretend / "test_double.py").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:warpwave", "-p", "warpwave.pytest_entry"],
        cwd=package_of_pretend,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "harness")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "warpwave: []" in done.stdout


# A run with a budget: what comes first, what is left out in time, and what that means.


torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")


BUDGETED = """\
import time
import pytest
@pytest.mark.parametrize("size", range(200))
def test_slow(size):
    time.sleep(0.2)
@pytest.mark.parametrize("size", range(3))
def test_last(size):
    pass
def test_of_last_time():
    pass
"""


def _report(output, stage):
    return next(each for each in json.loads((output / "stages.json").read_text())["reports"] if each["stage"] == stage)


def _started(journal):
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    return [event["id"].partition("::")[2] for event in events if event["event"] == "start"]


@pytest.fixture
def package_of_budget(tmp_path):
    """A slow function in front, and two quick ones."""
    (tmp_path / "test_it.py").write_text(BUDGETED)
    return tmp_path


def test_a_budget_spreads_over_functions_and_leaves_out_the_rest(run_inside, package_of_budget):
    """What failed last time is first, then a small test of each function; the stage passes, and counts what is left out."""
    limits = Limits(budget=Budget(16.0, failed=("test_it.py::test_of_last_time",)))
    output = run_inside(package_of_budget, Stage.TEST, light=True, benches=(), limits=limits)
    report, started = _report(output, "test"), _started(output / "test" / "journal.jsonl")

    # Three more of each stand in for one that launches nothing.
    assert [name.partition("[")[0] for name in started[:7]] == ["test_of_last_time", *["test_slow"] * 3, *["test_last"] * 3]
    assert [started[1], started[4]] == ["test_slow[0]", "test_last[0]"]
    assert (report["verdict"], report["exit_code"], report["out_of_time"]) == ("passed", 0, True)
    assert report["counts"]["passed"] + report["left_out"] == 204
    assert (report["left_out_s"] > 1, report["functions"], report["untried"]) == (True, 3, 0)


def test_a_test_that_hangs_ends_with_the_budget(run_inside, tmp_path):
    """It is named and left out. Its own limit, if that is shorter, makes it a failure as ever."""
    (tmp_path / "test_it.py").write_text("import time\n\ndef test_hangs():\n    time.sleep(1e6)\n\n\ndef test_good():\n    pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(14.0)))
    report = _report(output, "test")
    assert (report["counts"], report["left_out"], report["out_of_time"]) == ({}, 2, True)
    assert "test_it.py::test_hangs" in report["notes"][0]

    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(test_s=1.0, budget=Budget(30.0)))
    assert _report(output, "test")["counts"] == {"passed": 1, "timeout": 1}


def test_what_a_worker_has_no_time_to_collect_after_a_crash_is_left_out(run_inside, tmp_path):
    """An earlier worker had announced it. That is no lost result."""
    (tmp_path / "conftest.py").write_text(
        "import pathlib\n\ndef pytest_collection(session):\n"
        f"    begun = pathlib.Path({str(tmp_path.with_suffix('.begun'))!r})\n"
        "    for plugin in session.config.pluginmanager.get_plugins() if begun.exists() else ():\n"
        "        if hasattr(plugin, 'enough_s'):\n            plugin.enough_s = float('inf')\n    begun.touch()\n"
    )
    (tmp_path / "test_a.py").write_text("import os\n\ndef test_crashes():\n    os.abort()\n")
    (tmp_path / "test_b.py").write_text("def test_b():\n    pass\n")
    report = _report(run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(60.0))), "test")

    assert (report["verdict"], report["counts"], report["left_out"]) == ("crashed", {"crashed": 1}, 1)
    assert report["out_of_time"]


CRASHES_LATE = """
import os, pathlib, time
import pytest
@pytest.mark.parametrize("size", range(1, 7))
def test_long(size):
    mark = pathlib.Path(__file__).with_suffix(".mark")
    if size == 2 and mark.exists():
        os.abort()
    if size == 2:
        mark.touch()
        time.sleep(1e3)
"""


def test_what_a_worker_kept_for_its_end_is_not_lost_if_it_dies(run_inside, tmp_path):
    """One of several workers ends a long test, keeps it and others of its function for later, and dies in the first of them."""
    (tmp_path / "test_a.py").write_text(CRASHES_LATE)
    (tmp_path / "test_b.py").write_text("".join(f"def test_{number}():\n    pass\n" for number in range(40)))
    limits = Limits(test_workers=2, budget=Budget(60.0))
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=limits)
    report = _report(output, "test")

    assert (report["verdict"], report["doubts"]) == ("crashed", [])
    assert (report["counts"], report["left_out"]) == ({"passed": 45, "crashed": 1}, 0)


def test_what_had_failed_before_it_was_ended_is_not_told_apart_next_time(run_inside, tmp_path):
    """It is a failure, and may fail by more if it has more time: a list of known failures does not have it run again."""
    ended = (
        "def test_finds():\n    try:\n        time.sleep(1e6)\n    except BaseException:\n        found = pytest.fail.Exception('a race')\n"
    )
    ended += "        found.is_finding = True  # as the sanitizer marks it\n        raise found from None\n\n\n"
    (tmp_path / "test_it.py").write_text("import time\nimport pytest\n\n\n" + ended + "def test_good():\n    pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(40.0)))
    report = _report(output, "test")

    assert report["counts"] == {"passed": 1, "failed": 1}
    assert report["reached"] == {"test_it.py::test_finds": 0, "test_it.py::test_good": 1}


def test_no_test_is_ended_in_an_import(tmp_path, monkeypatch):
    """A signal would leave half of torch, and each later test that needs it would fail."""
    (tmp_path / "half_imported.py").write_text(
        "import sys\nfrom warpwave.inside.test.budget import is_importing\nseen = is_importing(sys._getframe())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert importlib.import_module("half_imported").seen
    assert not is_importing(sys._getframe())


def test_with_a_budget_compiling_comes_first(run_inside, package_of_budget):
    """It is cheap, and for every card. A stage that no time is left for says so."""
    output = run_inside(package_of_budget, Stage.TEST, Stage.COMPILE, light=True, benches=(), limits=Limits(budget=Budget(1.0)))
    reports = json.loads((output / "stages.json").read_text())["reports"]

    assert [each["stage"] for each in reports] == ["facts", "compile", "test"]
    assert [(each["verdict"], each["out_of_time"]) for each in reports[1:]] == [("not-run", True)] * 2


class Item:
    parent = None

    def __init__(self, name: str) -> None:
        self.nodeid, self.name, self.originalname, self.stash = name, name.partition("::")[2], name.partition("::")[2].partition("[")[0], {}


def test_what_a_change_touches_comes_before_the_rest():
    items = [Item(f"test_{file}.py::test_{name}[{size}]") for file in "ab" for name in "xy" for size in range(9)]
    units = in_units(items, Budget(60.0, changed=("test_b.py",)))
    order = [item.nodeid for name, unit in units.items() for item in (unit[:1] if name.startswith("try") else unit)]

    assert sorted(order) == sorted(item.nodeid for item in items)
    assert {name.partition("[")[0] for name in order[:2]} == {"test_b.py::test_x", "test_b.py::test_y"}
    assert all(name.startswith("test_b") for name in order[:18])
    assert {name.partition("[")[0] for name in order[18:20]} == {"test_a.py::test_x", "test_a.py::test_y"}


def test_the_choice_of_a_file_does_not_depend_on_others():
    """A list of known failures has counts alone: with as many tests of a function, the next run must have the same ones."""
    names = ["".join(pair) for pair in itertools.product("abcdefghij", repeat=2)]
    own, others = ([Item(f"test_{file}.py::test_{file}{name}") for name in names] for file in "ab")
    both = in_units([*own, *others], Budget(60.0))
    alone = in_units(own, Budget(60.0))

    assert {name: unit for name, unit in both.items() if unit[0] in own} == alone
    assert len(alone) == len(own)
    seen = {"it": {"test test_a.py::test_aab": 1, "test test_a.py::test_ajj": 2, "test test_a.py::test_abb": 0}}
    assert sorted(unit[0].name for unit in in_units(own, Budget(60.0, seen=seen)).values()) == ["test_aab", "test_ajj"]
    compiled = Budget(60.0, failed=(own[7].nodeid,), seen={"it": {"compile sm_90 test_a.py::test_aab": 1}})
    edited = Budget(60.0, changed=("test_a.py",), edited=("test_a.py",), seen=seen)
    assert {len(in_units(own, each, "", ())) for each in (replace(edited, edited=()), edited)} == {2, 100}
    # A list may be of other architectures than those of the run; of one that was not reached, it has seen nothing.
    among = {("sm_90", "gfx942"): (1, 0), ("sm_80", "gfx942"): (101, 101)}
    assert {names: tuple(len(in_units(own, compiled, name, names)) for name in names) for names in among} == among


class Sized(Item):
    def __init__(self, size: int) -> None:
        super().__init__(f"test_it.py::test_it[{size}]")
        self.callspec = SimpleNamespace(params={"size": size}, indices={"size": size})


def test_a_list_leaves_out_what_an_earlier_run_did_not_reach():
    """The earlier run ended the test of size 50, so larger ones came last: the two that it reached are the smallest others."""
    items = [Sized(size) for size in (80, 50, 1, 30, 99)]
    seen = {"it": {"test test_it.py::test_it": 2, "test test_it.py::test_it[50]": 0}}
    units = in_units(items, Budget(60.0, seen=seen))

    assert {item.nodeid for unit in units.values() for item in unit} == {"test_it.py::test_it[1]", "test_it.py::test_it[30]"}


def test_an_estimate_has_each_functions_own_time(monkeypatch):
    """The first test of a process also imports and compiles: it counts only if there is no other."""
    now = iter([0.0, 50.0, 50.0, 52.0, 52.0, 53.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    pace = Pace()
    for name in ("t.py::a[1]", "t.py::a[2]", "t.py::b[1]"):
        pace.note({"event": "start", "id": name})
        pace.note({"event": "finish", "id": name})

    assert pace.estimate({"t.py::a": 10, "t.py::b": 100}) == 10 * 2.0 + 100 * 1.0
    assert pace.estimate({"t.py::c": 2}) == 2 * 1.5
    assert pace.estimate({}) is None


def test_a_budget_makes_only_tests_that_it_may_reach(run_inside, tmp_path):
    """A function with a million parameters takes no memory and no time for those; they are counted, and what failed last time runs."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('b', range(100))\n@pytest.mark.parametrize('a', range(100))\n"
        "def test_many(a, b):\n    assert a < 99 or b != 77\n\n\n@pytest.mark.parametrize('c', range(3))\ndef test_few(c):\n    pass\n"
    )
    failed = "test_it.py::test_many[99-77]"
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0, failed=(failed,))))
    events = [json.loads(line) for line in (output / "test" / "journal.jsonl").read_text().splitlines()]
    report, [ids] = _report(output, "test"), [event["ids"] for event in events if event["event"] == "collected"]

    assert len(ids) == 303
    assert sum(report["counts"].values()) + report["left_out"] == 10_003
    assert (report["verdict"], report["counts"]["failed"]) == ("failed", 1)
    assert {name.partition("[")[2].partition("-")[0] for name in ids} >= {"0", "99"}

    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0)), pytest_args=("-k", "99-77"))
    assert _report(output, "test")["counts"] == {"failed": 1}


SEEN = {"test test_it.py::test_slow": 2, "test test_it.py::test_last": 1, "test test_it.py::test_last[0]": 0, "compile gfx942": 1}


def test_a_budget_goes_no_further_than_the_list_of_known_failures(run_inside, package_of_budget):
    """What fails beyond it would look new. What failed last time runs all the same."""
    (package_of_budget / "test_unseen.py").write_text("import no_such_module_of_ours as missing, test_it.wrong\n")
    budget = Budget(60.0, failed=("test_it.py::test_slow[9]",), seen={"it": SEEN})
    output = run_inside(package_of_budget, Stage.TEST, light=True, benches=(), limits=Limits(budget=budget))
    report, started = _report(output, "test"), _started(output / "test" / "journal.jsonl")

    assert (report["verdict"], report["counts"], report["left_out"], report["out_of_time"]) == ("passed", {"passed": 4}, 201, False)
    assert [*started[:2], *started[3:]] == ["test_slow[9]", "test_slow[0]", "test_last[1]"]
    assert report["reached"] == {"test_it.py::test_slow": 3, "test_it.py::test_last": 1}
    assert report["budget_s"] == 60.0


LONG = """\
import time
import unittest
import pytest


class TestOld(unittest.TestCase):
    def test_long(self):
        time.sleep(1e6)


def test_long():
    try:
        time.sleep(1e6)
    except Exception:
        pass


@pytest.mark.parametrize("size", range(20))
def test_short(size):
    if size == 0:
        pytest.skip("too small")


def test_other():
    pass

""" + "".join(f"def test_{name}():\n    pass\n" for name in "abcdef")


def test_one_long_test_does_not_use_up_the_budget(run_inside, tmp_path):
    """It is ended, named and left out, which is no failure, and begins again when all others have run."""
    (tmp_path / "test_it.py").write_text(LONG)
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0)))
    report, started = _report(output, "test"), _started(output / "test" / "journal.jsonl")

    assert (report["verdict"], report["counts"], report["left_out"]) == ("passed", {"passed": 26, "not-run": 1}, 2)
    assert report["out_of_time"]
    assert (report["reached"]["test_it.py::test_long"], report["reached"]["test_it.py::TestOld::test_long"]) == (0, 0)
    assert (report["functions"], report["untried"]) == (10, 2)
    assert [*started[:2], started[-1]] == ["TestOld::test_long", "test_long", "TestOld::test_long"]
    # One that skips itself is no try of its function.
    assert started[2] == "test_short[0]"
    assert started[3].startswith("test_short")


def test_a_budget_is_not_spent_on_collecting(run_inside, tmp_path):
    """Files that pytest comes to late are left out, and what is collected runs: one with tests at least, and what failed last time."""
    late = "import os, time, pytest\ntime.sleep((float(os.environ['WARPWAVE_UNTIL']) - time.monotonic()) * 0.45)\n"
    late += "pytest.skip('no', allow_module_level=True)\n"
    (tmp_path / "test_a.py").write_text(late)
    for name in "bcd":
        (tmp_path / f"test_{name}.py").write_text(f"def test_of_{name}():\n    pass\n")
    output = run_inside(tmp_path, Stage.TEST, light=True, benches=(), limits=Limits(budget=Budget(30.0, failed=("test_d.py::test_of_d",))))
    report = _report(output, "test")

    assert _started(output / "test" / "journal.jsonl") == ["test_of_d", "test_of_b"]
    assert (report["verdict"], report["counts"], report["left_out"]) == ("passed", {"passed": 2, "not-run": 1}, 1)
