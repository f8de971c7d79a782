"""`--resume` never passes stale results off as fresh: what decides a result is held against what it was when the run began."""

from __future__ import annotations

import json
import shutil

import pytest

from warpwave.__main__ import _run_cli
from warpwave.run import inputs as inputs_module

PACKAGE = {
    "ops/test_op.py": "from helper import VALUE\n\ndef test_op():\n    assert VALUE == 2\n",
    "ops/helper.py": "from pathlib import Path\nVALUE = int(Path(__file__).with_name('value.txt').read_text())\n",
    "ops/value.txt": "1",
    "ops/conftest.py": "",
    "ops/__init__.py": "",
    "ops/pytest.ini": "[pytest]\naddopts = -q\n",
    "targets.yml": "schema_version: 1\ntargets:\n  cpu: {interpret: false, stages: [test], environment: {A_SETTING: 'on'}}\n"
    "  other: {label: another, engine: local, stages: [test], image: {dockerfile: x, base: y}}\n",
}


RUN = ["run", "cpu", "--engine", "local", "--kernels", "ops", "--targets", "targets.yml"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished run of a small package, in which a test failed."""
    pytest.importorskip("triton", reason="the local engine needs torch and triton; `nox -s tests` installs them")
    folder = tmp_path_factory.mktemp("first")
    for name, text in PACKAGE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert _run_cli([*RUN, "--out", "first", "--quiet"]) == 1
    return folder


@pytest.fixture
def place(first, tmp_path, monkeypatch):
    """A copy of it, to be changed. `tidy` says what is on disk."""
    folder = tmp_path / "place"
    shutil.copytree(first, folder)
    monkeypatch.chdir(folder)
    return folder


def resume(*more, base=RUN):
    return _run_cli([*base, "--resume", "first", "--quiet", *more])


def contents(folder):
    """Everything below a folder, by path."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_finished_run_of_the_same_things_is_finished(place, capsys):
    """What Python, editors and other runs leave in the package is nothing that a result depends on."""
    (place / "ops" / "__pycache__").mkdir(exist_ok=True)
    (place / "ops" / "__pycache__" / "helper.pyc").write_bytes(b"x")
    (place / "ops" / ".helper.py.swp").write_bytes(b"x")
    (place / "ops" / ".cache").mkdir()
    (place / "ops" / ".cache" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    (place / "ops" / "old" / "raw" / "cpu").mkdir(parents=True)
    (place / "ops" / "old" / "raw" / "cpu" / "run.json").write_text("{}")

    assert _run_cli([*RUN, "--resume", "first"]) == 1
    assert "nothing left to do" in capsys.readouterr().err


CHANGES = {
    "a test": (lambda at: (at / "ops" / "test_op.py").write_text("def test_op(): pass\n"), "test_op.py has changed"),
    "a helper": (lambda at: (at / "ops" / "helper.py").write_text("VALUE = 2\n"), "helper.py has changed"),
    "a data file": (lambda at: (at / "ops" / "value.txt").write_text("2"), "value.txt has changed"),
    "conftest.py": (lambda at: (at / "ops" / "conftest.py").write_text("import sys\n"), "conftest.py has changed"),
    "__init__.py": (lambda at: (at / "ops" / "__init__.py").write_text("import sys\n"), "__init__.py has changed"),
    "options of pytest": (lambda at: (at / "ops" / "pytest.ini").write_text(""), "pytest.ini has changed"),
    "a file that is gone": (lambda at: (at / "ops" / "conftest.py").unlink(), "conftest.py' is gone"),
    "a new file": (lambda at: (at / "ops" / "test_new.py").write_text("def test_new(): pass\n"), "test_new.py' is new"),
    "gates above it": (lambda at: (at / "pyproject.toml").write_text("[tool.warpwave.gates]\nspills = 4\n"), "../pyproject.toml' is new"),
    "the target": (
        lambda at: (at / "targets.yml").write_text(PACKAGE["targets.yml"].replace("'on'", "'off'")),
        "variable A_SETTING has changed",
    ),
    "stages of the target": (
        lambda at: (at / "targets.yml").write_text(PACKAGE["targets.yml"].replace("[test], env", "[test, compile], env")),
        "its stages was 'test', now it is 'test compile'",
    ),
    "no record": (lambda at: (at / "first" / "raw" / "cpu" / "inputs.json").unlink(), "an older warpwave"),
    "a damaged record": (lambda at: (at / "first" / "raw" / "cpu" / "inputs.json").write_text("{"), "damaged"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_finished_run_of_something_else_is_refused(place, capsys, what):
    """Exit code 2 in three beats that name the change; not a byte of the run is touched, and nothing is started."""
    change, words = CHANGES[what]
    change(place)
    before = contents(place / "first")
    code = resume()
    lines = capsys.readouterr().err.splitlines()

    assert (code, contents(place / "first")) == (2, before)
    assert words.replace("'", "") in lines[0].replace("'", ""), lines
    assert len(lines) == 3
    assert "--out" in lines[2] or "new run" in lines[2]


OPTIONS = {
    "tests": (["-k", "op"], "its pytest args"),
    "benches": (["--bench", "speed_*.py"], "its benches"),
    "launches": (["--launches", "test"], "its launches"),
    "quick": (["--quick"], "its quick"),
    "shard": (["--shard", "1/1"], "shard has changed"),
    "gpu": (["--gpu", "1"], "gpu has changed"),
    "protections": (["--weaken", "network=host"], "protections has changed"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_other_options_are_refused(place, capsys, what):
    """Also where the target is finished and its stages would not be entered."""
    more, words = OPTIONS[what]

    assert resume(*more) == 2
    assert words in capsys.readouterr().err


def test_another_engine_is_refused(place, capsys):
    """Its results are those of another environment; no engine has to answer for that to be said."""
    assert _run_cli(["run", "cpu", "--engine", "docker", "--kernels", "ops", "--targets", "targets.yml", "--resume", "first"]) == 2
    assert "engine has changed: it was 'local', now it is 'docker'" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("TRITON_DEFAULT_FP_FUSION", "0"), ("PYTEST_ADDOPTS", "-x"), ("PYTHONOPTIMIZE", "1")])
def test_the_callers_variables_count_without_a_container(place, capsys, monkeypatch, name, value):
    """They get into a process of this machine, and decide results there. Their values are nobody else's business."""
    monkeypatch.setenv(name, value)

    assert resume() == 2
    assert f"variable {name} has changed" in capsys.readouterr().err


def test_the_packages_of_the_python_count(place, capsys):
    """A plugin of pytest may decide as much as Triton does."""
    path = place / "first" / "raw" / "cpu" / "inputs.json"
    told = json.loads(path.read_text())
    told["facts"]["package pytest"] = "1.0"
    path.write_text(json.dumps(told))

    assert resume() == 2
    assert "package pytest has changed: it was '1.0'" in capsys.readouterr().err


def test_another_warpwave_is_refused(place, capsys, monkeypatch):
    """Its own code, where the kernels run, decides as well."""
    monkeypatch.setattr(inputs_module, "_WHAT_RUNS", ("inside",))

    assert resume() == 2
    assert "warpwave has changed" in capsys.readouterr().err


def test_a_new_target_is_not_mixed_with_a_stale_one(place, capsys):
    """One run is one state of the kernels, whichever of its targets is asked for."""
    (place / "ops" / "helper.py").write_text("VALUE = 2\n")
    code = resume(base=["run", "other", *RUN[2:]])

    assert (code, [path.name for path in (place / "first" / "raw").iterdir()]) == (2, ["cpu"])
    assert "helper.py has changed" in capsys.readouterr().err.replace("'", "")


def test_the_place_of_the_package_is_free(place, capsys):
    """It may be moved, as long as it is the same."""
    (place / "elsewhere").mkdir()
    shutil.move(place / "ops", place / "elsewhere" / "ops")

    assert resume("--kernels", "elsewhere/ops") == 1


def test_two_folders_for_one_run_are_refused(place, capsys):
    """`--out` was passed over in silence beside `--resume`."""
    assert resume("--out", "second") == 2
    assert "--resume names first and --out names second" in capsys.readouterr().err
    assert resume("--out", "./first") == 1


ORDER = "\n::error::planted\x1b[2J\u202e"


@pytest.mark.parametrize(
    "change",
    [{"harness": ORDER}, {"files": {ORDER: "1"}}, {"facts": {ORDER: "1"}}, {"facts": {"image": ORDER}}],
    ids=["harness", "file", "fact", "value"],
)
def test_what_a_run_says_it_was_made_of_gives_no_orders(place, capsys, change):
    """Its folder was open to the code under test: a refusal quotes it on one line, as text."""
    path = place / "first" / "raw" / "cpu" / "inputs.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    code, said = resume(), capsys.readouterr().err

    assert (code, len(said.splitlines())) == (2, 3)
    assert all(letter.isprintable() for letter in said.replace("\n", ""))
