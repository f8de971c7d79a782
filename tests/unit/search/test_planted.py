"""A release of Triton with another default is found: by bisecting releases, by swapping parts, and a commit by bisecting commits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from light import light_python
from wheels import wrap_triton

from harness.__main__ import _run_cli

pytestmark = pytest.mark.slow
pytest.importorskip("pip", reason="the installer uses the pip of the kernels' Python")
KERNEL = """
import triton, triton.language as tl

@triton.jit
def sum_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + i), 0))
"""
LAUNCH = """
import torch
from ops import sum_kernel

def test_sum():
    sum_kernel[(1,)](torch.empty(8192, device="cuda"), torch.empty(1, device="cuda"), 8192)
"""
TEST = """
from triton.backends.nvidia.compiler import CUDAOptions

def test_the_default():
    assert CUDAOptions().num_warps == 4
"""
# What the planted releases change: a launch has one warp if it does not say how many.
ONE_WARP = """
from triton.backends.nvidia import compiler as _compiler
_plain = _compiler.CUDAOptions.__init__
def _changed(self, *words, num_warps=1, **more):
    _plain(self, *words, num_warps=num_warps, **more)
_compiler.CUDAOptions.__init__ = _changed
"""
FOLDER = "mine.yml"
TARGETS = """
schema_version: 1
targets:
  cpu: {architectures: [sm_90], quick: [sm_90]}
toolchains:
  old: {triton: 3.9.0.post1, index: %s}
  new: {triton: 3.9.0.post3, index: %s, environment: {ANOTHER: "1"}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A package of one kernel, one that asks Triton for its default, and three releases of Triton: the last two have the change."""
    root = tmp_path_factory.mktemp("planted")
    for folder, files in {"ops": {"ops.py": KERNEL, "test_ops.py": LAUNCH}, "options": {"test_options.py": TEST}}.items():
        (root / folder).mkdir()
        for name, text in files.items():
            (root / folder / name).write_text(text)
    for number in range(1, 4):
        wrap_triton(root / "wheels", f"3.9.0.post{number}", ONE_WARP if number > 1 else "")
    (root / FOLDER).write_text(TARGETS % (root / "wheels", root / "wheels"))
    return root


@pytest.fixture
def ask(place, monkeypatch, capsys):
    """Runs a search, and returns its exit code and its JSON."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))

    def run(*words: str) -> tuple[int, dict]:
        code = _run_cli([*words, "--targets", str(place / FOLDER), "--quiet", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_bisecting_releases_finds_the_planted_one(place, ask):
    """In three steps, with the generated code beside it. The second time, nothing runs."""
    words = ["bisect", "cpu", "--over", "triton", "--good", "3.9.0.post1", "--bad", "3.9.0.post3", "--worse", "registers"]
    words += ["--kernels", str(place / "ops"), "--wheelhouse", str(place / "wheels"), "--out", str(place / "bisect")]
    code, told = ask(*words, "--markdown", str(place / "page.md"))
    (place / "cache").rename(place / "away")  # what has an answer needs no environment
    again = ask(*words)
    (place / "away").rename(place / "cache")

    assert (code, told["sentence"]) == (0, "triton-3.9.0.post2 is the first bad one; triton-3.9.0.post1 is the last good one.")
    assert [one["reply"]["answer"] for one in told["bisect"]["tried"]] == ["good", "bad", "bad"]
    assert "4 → 1 warps" in (place / "page.md").read_text()
    assert again == (code, told)
    assert ask(*[word.replace("registers", "occupancy") for word in words])[0] == 2  # another question, in the same folder


def test_isolating_the_part_that_does_it(place, ask):
    """Triton alone decides, in both directions; the variable plays no part."""
    words = ["isolate", "cpu", "--from", "old", "--to", "new", "--test", "test_options.py", "--python", light_python()]
    code, told = ask(*words, "--kernels", str(place / "options"), "--out", str(place / "isolate"))

    assert (code, told["sentence"]) == (0, "triton does it: 3.9.0.post1 → 3.9.0.post3.")
    swaps = {swap["parts"][0]: (swap["good_with_bad"]["answer"], swap["bad_with_good"]["answer"]) for swap in told["isolate"]["swaps"]}
    assert swaps == {"triton": ("bad", "good"), "$ANOTHER": ("good", "bad")}


def test_bisecting_commits_finds_the_one_that_fails(place, ask):
    """git chooses what is tried. The user's folder is not touched, and no work tree stays."""
    repository = place / "repository"
    (repository / "ops").mkdir(parents=True)

    def git(*words: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", "-C", str(repository), *identity, *words], check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    for value in ("1", "2", "2 "):
        (repository / "ops" / "test_ops.py").write_text(f"def test_one():\n    assert {value}== 1\n")
        git("add", ".")
        git("commit", "--quiet", "-m", f"value {value!r}")
    commits = git("rev-list", "--reverse", "HEAD").split()
    (repository / "ops" / "test_ops.py").write_text("not saved")
    code, told = ask(
        *(
            "bisect",
            "cpu",
            "--over",
            "commits",
            "--good",
            commits[0],
            "--bad",
            "HEAD",
            "--test",
            "test_ops.py::test_one",
            "--python",
            light_python(),
        ),
        *("--kernels", str(repository / "ops"), "--out", str(place / "commits")),
    )

    assert (code, told["bisect"]["first_bad"], told["bisect"]["last_good"]) == (0, commits[1][:12], commits[0][:12])
    assert (repository / "ops" / "test_ops.py").read_text() == "not saved"
    assert git("worktree", "list").count("\n") == 1
