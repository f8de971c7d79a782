"""A test worker imports torch's compiler before it waits for the card, if the package names something that needs it."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from warpwave.inside import environment as imports
from warpwave.inside.test import pytest_plugin


@pytest.fixture(autouse=True)
def _no_word(monkeypatch):
    monkeypatch.delenv(imports._VARIABLE, raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))


@pytest.mark.parametrize(
    ("text", "needs_card", "told"),
    [
        ("torch.compile(f)", True, "1"),
        ("torch.library.opcheck(op, ())", True, "1"),
        ("assert f(x) == x", True, ""),
        ("torch.compile(f)", False, ""),
    ],
)
def test_it_is_imported_if_a_file_names_what_needs_it(text, needs_card, told, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "test_it.py").write_text(text)
    imports.tell_workers(SimpleNamespace(kernels=str(tmp_path), package_root="", needs_card=needs_card))
    assert os.environ[imports._VARIABLE] == told


def test_a_worker_imports_it_before_it_waits_for_the_card(monkeypatch):
    calls = []
    monkeypatch.setattr(pytest_plugin, "import_compiler", lambda: calls.append("import"))
    monkeypatch.setattr(pytest_plugin, "await_card", lambda journal: calls.append("card"))
    monkeypatch.setattr(pytest_plugin.Journal, "from_environment", lambda: None)
    for items in ([], ["a test"]):
        pytest_plugin.pytest_runtestloop(SimpleNamespace(items=items, config=SimpleNamespace(option=SimpleNamespace(collectonly=False))))
    assert calls == ["import", "card"]


@pytest.mark.parametrize(("told", "names"), [("1", [imports._MODULE]), ("", [])])
def test_it_is_imported_if_the_stage_says_so(told, names, monkeypatch):
    monkeypatch.setenv(imports._VARIABLE, told)
    found = []
    monkeypatch.setattr(imports.importlib, "import_module", found.append)
    imports.import_compiler()
    assert found == names


@pytest.mark.slow
@pytest.mark.parametrize("told", ["1", ""])
def test_what_is_imported(told):
    code = "import sys, warpwave.inside.environment as i; i.import_compiler(); print(i._MODULE in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, imports._VARIABLE: told}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == str(bool(told))
