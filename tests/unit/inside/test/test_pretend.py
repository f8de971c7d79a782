"""`pytest --warpwave NAME` in an author's own repository: the outcomes are those of a run, under the author's own plugins."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

TESTS = """
import pytest, torch, triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr, LIMIT: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < LIMIT, other=0.0), mask=at < n)

def launched(limit):
    assert torch.cuda.is_available()
    x = torch.arange(48.0, device="cuda")
    out = torch.empty_like(x)
    double[(1,)](x, out, 48, BLOCK=64, LIMIT=limit)
    torch.testing.assert_close(out, 2 * x)

def test_good(): launched(48)
def test_reads_too_far(): launched(64)
def test_needs_a_driver(): torch.empty(1, device="cuda").untyped_storage()._share_cuda_()
def test_of_the_card(): assert torch.cuda.get_device_name() == WANTED
@pytest.mark.xfail(strict=True)
def test_expected(): launched(8)
"""
CONFTEST = "import torch\nassert torch.cuda.is_available(), 'the first conftest.py sees no card'\n"


@pytest.fixture
def package(tmp_path) -> Path:
    """A package with tests, whose conftest.py asks for a card."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_double.py").write_text(TESTS)
    return tmp_path


def run(package: Path, *words: str, wanted: str = "", plugin: bool = True) -> subprocess.CompletedProcess[str]:
    (package / "test_double.py").write_text(f"WANTED = {wanted!r}\n{TESTS}")
    loaded = ["-p", "no:warpwave", "-p", "warpwave.pytest_entry"] if plugin else []  # this Python may have the entry point installed
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--color=no", *loaded, *words]
    harness = str(Path(__file__).parents[4] / "harness")
    env = {**{name: value for name, value in os.environ.items() if not name.startswith(("WARPWAVE", "PYTEST"))}, "PYTHONPATH": harness}
    return subprocess.run(command, cwd=package, env=env, capture_output=True, text=True, timeout=300, check=False)


def outcomes(text: str) -> dict[str, str]:
    found = re.findall(r"^(PASSED|FAILED|XFAIL|ERROR) \S*::(\w+)", text, re.MULTILINE)
    return {test: outcome for outcome, test in found}


@pytest.mark.parametrize(
    ("name", "card", "how"),
    [("h100", "NVIDIA H100 80GB HBM3", "sm_90 (H100), kernels run in"), ("gfx942", "AMD Instinct MI300X", "gfx942 (MI300X), machine code")],
)
def test_outcomes_are_those_of_a_run(package, name, card, how):
    """A kernel that reads too far fails its test; what is not pretended is skipped and counted; `xfail` and conftest.py work."""
    pytest.importorskip("tinygrad" if name == "gfx942" else "triton")
    done = run(package, "--warpwave", name, wanted=card)

    assert outcomes(done.stdout) == {
        "test_good": "PASSED",
        "test_reads_too_far": "FAILED",
        "test_of_the_card": "PASSED",
        "test_expected": "XFAIL",
    }
    assert re.search(r"outside of all buffers|out-of-bounds", done.stdout), done.stdout
    assert "not checked: " in done.stdout
    assert "warpwave: 1 test was not checked" in done.stdout
    assert f"warpwave: {how}" in run(package, "--warpwave", name, "--collect-only", "-v").stdout
    assert done.returncode == 1


def test_it_works_with_other_plugins(package):
    """xdist's workers pretend the card, too; `-k` selects, and settings of pytest may hold the option."""
    pytest.importorskip("xdist")
    (package / "pytest.ini").write_text("[pytest]\naddopts = --warpwave cpu -n 2\n")
    done = run(package, "-k", "good or far")

    assert outcomes(done.stdout) == {"test_good": "PASSED", "test_reads_too_far": "FAILED"}


def test_without_the_option_nothing_happens(package):
    (package / "conftest.py").write_text(
        "import sys\ndef pytest_sessionfinish():\n"
        "    print('warpwave:', [name for name in sys.modules if name.startswith(('warpwave.inside', 'warpwave.config'))])\n"
    )
    (package / "test_double.py").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:warpwave", "-p", "warpwave.pytest_entry"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "harness")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "warpwave: []" in done.stdout
