"""A release of Triton with another default is found: by bisecting releases."""

import json
from pathlib import Path

import pytest
from wheels import wrap_triton

from warpwave.__main__ import _run_cli

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
build: {wheelhouse: wheels}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A package of one kernel, and three releases of Triton: the last two have the change."""
    root = tmp_path_factory.mktemp("planted")
    (root / "ops").mkdir()
    for name, text in {"ops.py": KERNEL, "test_ops.py": LAUNCH}.items():
        (root / "ops" / name).write_text(text)
    for number in range(1, 4):
        wrap_triton(root / "wheels", f"3.9.0.post{number}", ONE_WARP if number > 1 else "")
    (root / FOLDER).write_text(TARGETS)
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
    words += ["--kernels", str(place / "ops"), "--out", str(place / "bisect")]
    code, told = ask(*words, "--markdown", str(place / "page.md"))
    (place / "cache").rename(place / "away")  # what has an answer needs no environment
    again = ask(*words)
    (place / "away").rename(place / "cache")

    assert (code, told["sentence"]) == (0, "triton-3.9.0.post2 is the first bad one; triton-3.9.0.post1 is the last good one.")
    assert [one["reply"]["answer"] for one in told["bisect"]["tried"]] == ["good", "bad", "bad"]
    assert "4 → 1 warps" in (place / "page.md").read_text()
    assert again == (code, told)
    assert ask(*[word.replace("registers", "occupancy") for word in words])[0] == 2  # another question, in the same folder
