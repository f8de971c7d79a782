"""`run --dry-run` shows what would run, on which files, and runs nothing."""

import json
import socket
import subprocess

import pytest

from warpwave.__main__ import _run_cli
from warpwave.ci.job import check_options
from warpwave.errors import UsageError

HOSTS = """
cuda: {slurm: {gpus: 1, time: "00:10:00"}, container: pyxis, image: /images/cuda.sqsh}
rocm: {ssh: me@there.example}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with secrets, a cache and a link out, and a file that says where legs run."""
    root = tmp_path / "pkg"
    for name in ("test_one.py", ".env", "sub/.git/config", "node_modules/.npmrc", "tables/a.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("def test_one(): pass\n")
    (root / "etc").symlink_to("/etc")
    (tmp_path / "hosts.yml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def nothing_starts(monkeypatch):
    """No program and no connection is made."""

    def refuse(*arguments, **more):
        raise AssertionError(f"started: {arguments}")

    def start(self, words, *rest, **more):
        return started(self, words, *rest, **more) if words[0] == "git" else refuse(words)

    started = subprocess.Popen.__init__
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", start)


def told(capsys, *words):
    assert _run_cli(["run", *words, "--kernels", "pkg", "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["dry_run"]


@pytest.mark.usefixtures("nothing_starts")
def test_what_each_leg_would_do(package, capsys):
    """The engine, the image and the command, on this machine and on others; nothing is asked or written."""
    before = sorted(package.parent.rglob("*"))
    legs = told(capsys, "cuda", "rocm", "cpu", "--hosts", "hosts.yml", "--env", "A_TOKEN=hunter2")["targets"]
    slurm, ssh, here = legs

    assert [leg["target"] for leg in legs] == ["cuda", "rocm", "cpu"]
    assert (slurm["engine"], slurm["image"]) == ("slurm", "/images/cuda.sqsh")
    assert slurm["command"].startswith("srun ")
    assert ssh["engine"] == "ssh"
    assert ssh["image"].startswith("warpwave/rocm:")
    assert "warpwave.inside.watchdog" in ssh["command"]
    assert "copy" in ssh["package"]
    assert here["engine"] == "local"
    assert "nothing of it is hidden" in here["package"]
    assert "hunter2" not in json.dumps(legs)
    assert sorted(package.parent.rglob("*")) == before


def test_which_files_and_why_not_others(package, capsys):
    """With their sizes. A container on this machine sees more than what is sent, but no secret."""
    (leg,) = (found := told(capsys, "cuda"))["targets"]

    assert found["files"] == [{"path": "tables/a.bin", "bytes": 21}, {"path": "test_one.py", "bytes": 21}]
    assert {each["path"]: each["why"] for each in found["left_out"]} == {
        ".env": "may hold a password or a key",
        "sub/.git": "is a repository, whose settings may hold a password",
        "node_modules": "was left by a tool",
        "etc": "is a link out of the package",
    }
    assert sorted(found["hidden"]) == [".env", "node_modules/.npmrc", "sub/.git"]
    assert (leg["engine"], "read-only" in leg["package"]) == ("docker", True)


def test_a_wrong_request_is_refused_as_in_a_run(package, capsys):
    assert _run_cli(["run", "cpu", "--stage", "bench", "--kernels", "pkg", "--dry-run"]) == 2


def test_no_job_of_a_workflow_is_a_dry_run(tmp_path):
    with pytest.raises(UsageError, match="nothing would have run"):
        check_options("cpu", tmp_path, {"names": ("cpu",), "dry_run": True})
