"""A package with tests beside it, on a real engine: its root is mounted, and what it needs is in a layer on top of the image."""

from __future__ import annotations

from engine_requests import change
from wheels import make_package

from warpwave.collect import collect
from warpwave.options import Install
from warpwave.records import Stage, Verdict
from warpwave.run import attempt as attempt_module
from warpwave.run import run_target

TESTS = """
import importlib.metadata, os, pathlib, socket
import my_ops, my_ops._made
import pytest

ROOT = pathlib.Path(__file__).parents[1]

def test_the_tree_is_tested():
    assert (my_ops.where, my_ops.__file__) == ("tree", str(ROOT / "my_ops" / "__init__.py"))
    assert my_ops._made.made == "by the build"

def test_the_package_knows_its_version():
    assert importlib.metadata.version("my-ops") == "1.5"

def test_the_root_is_read_only_and_its_clone_is_hidden():
    assert os.listdir(ROOT / ".git") == []
    with pytest.raises(OSError):
        (ROOT / "new").touch()
    with pytest.raises(OSError):
        (ROOT / ".git" / "new").touch()

def test_the_variable_is_there_and_the_network_is_not():
    assert os.environ["A_SWITCH"] == "on"
    with pytest.raises(OSError):
        socket.create_connection(("192.0.2.1", 80), timeout=2)
"""


def test_a_package_beside_its_tests(engine, built, request_, tmp_path, monkeypatch):
    """Everything passes; the record names what was installed; the user's folder is as it was; the layer is found again."""
    root = make_package(tmp_path / "ops")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("a token")
    (root / "tests" / "test_ops.py").write_text(TESTS)
    for path in (tmp_path, root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    options = change(
        request_,
        kernels=root / "tests",
        root=root,
        out=tmp_path / "out",
        stages=(Stage.TEST,),
        benches=(),
        install=Install(package="alone"),
        variables={"A_SWITCH": "on"},
    ).options
    monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
    said: list[str] = []
    record = run_target(request_.target, options, said.append, lambda event: None)
    found = collect(tmp_path / "out" / "raw" / "cpu")

    assert record.verdict is Verdict.PASSED, (record.reason, said, [(case.id, case.message) for case in found.cases])
    assert len(found.cases) == 4
    assert record.environment is not None
    assert record.environment.packages == {"my-ops": "1.5"}
    assert "A_SWITCH=…" in record.environment.options["environment"]
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before

    said.clear()
    again = engine.prepare(change(request_, **{name: getattr(options, name) for name in ("kernels", "root", "install")}), said.append)
    assert (again.image_id, again.built, again.packages) == (record.environment.image_id, False, {"my-ops": "1.5"})


def test_a_requirement_that_cannot_be_installed(engine, built, request_, tmp_path, monkeypatch):
    """The target could not run, with pip's last line and the log; nothing else is lost."""
    (tmp_path / "needs.txt").write_text("no-such-package-at-all\n")
    options = change(request_, out=tmp_path / "out", install=Install((tmp_path / "needs.txt",))).options
    monkeypatch.setattr(attempt_module, "choose_engine", lambda *_: engine)
    record = run_target(request_.target, options, lambda line: None, lambda event: None)

    assert record.verdict is Verdict.INFRA
    assert "No matching distribution found for no-such-package-at-all" in record.reason
    assert "no-such-package-at-all" in (tmp_path / "out" / "raw" / "cpu" / "install.log").read_text()
