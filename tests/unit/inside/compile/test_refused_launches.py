"""Kernels that compile and that no driver launches: a row for each in the compile stage, and none for what is launched rightly."""

from __future__ import annotations

import json

import pytest

from warpwave.config.targets import load_targets
from warpwave.records import Stage

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

TESTS = """\
import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def tall(out):
    tl.store(out + tl.program_id(1), 1.0)


@triton.jit
def wrapped(out):
    tl.store(out + tl.program_id(1), 2.0)


@triton.jit
def right(out):
    tl.store(out + tl.program_id(1), 3.0)


@triton.jit
def early(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]))


@triton.jit
def given(source, target, n, BLOCK: tl.constexpr):
    there = tl.make_tensor_descriptor(source, [n], [1], [BLOCK])
    tl.store(target + tl.arange(0, BLOCK), there.load([0]) + 1)


@pytest.fixture
def out():
    return torch.zeros(64, device="cuda")


@pytest.fixture
def allocator():
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    yield
    triton.set_allocator(triton.runtime._allocation.NullAllocator())


def test_good_and_tall(out):
    tall[(1, 65535)](out)


@pytest.mark.parametrize("rows", [70000, 80000])
def test_tall(out, rows):
    tall[(1, rows)](out)


def test_wrapped(out):
    try:
        wrapped[(1, 70000)](out)
    except RuntimeError as error:
        raise ValueError("no launch") from error


def test_right(out):
    right[(0, 70000)](out)
    right[lambda meta: (1, 2)](out)
    try:
        right[(1, 70000)](out)
    except RuntimeError:
        right[(70000, 1)](out)


def test_expected(out):
    if torch.version.cuda:
        with pytest.raises(RuntimeError, match="limit of y"):
            right[(1, 70000)](out)


def test_early(out):
    early.warmup(out, out, 64, BLOCK=64, grid=(1,))


def test_late(out, allocator):
    early[(1,)](out, out, 64, BLOCK=64)


def test_without(out):
    early[(1,)](out, out, 64, BLOCK=64)


def test_given(out, allocator):
    given.warmup(out, out, 64, BLOCK=64, grid=(1,))
    given[(1,)](out, out, 64, BLOCK=64)
"""


def test_a_kernel_that_no_driver_launches_has_a_row(run_inside, tmp_path):
    """One row, with the first launch that is refused, in place of that of the compilation. What the package catches is no fault."""
    (tmp_path / "test_launches.py").write_text(TESTS)
    cards = tuple(card for card in load_targets()["cpu"].architectures if card.name in ("sm_90", "gfx942"))
    output = run_inside(tmp_path, Stage.COMPILE, architectures=cards, benches=("bench_*.py",))
    rows = [json.loads(line) for line in (output / "compile" / "kernels.jsonl").read_text().splitlines()]
    found = {(row["architecture"], row["function"], row["verdict"], row["origin"].rpartition("::")[2]) for row in rows}

    assert len(found) == len(rows)
    assert found == {
        ("sm_90", "tall", "failed", "test_tall[70000]"),
        ("sm_90", "wrapped", "failed", "test_wrapped"),
        ("sm_90", "right", "passed", "test_right"),
        ("sm_90", "early", "failed", "test_without"),
        ("sm_90", "given", "passed", "test_given"),
        ("gfx942", "tall", "passed", "test_good_and_tall"),
        ("gfx942", "wrapped", "passed", "test_wrapped"),
        ("gfx942", "right", "passed", "test_right"),
        ("gfx942", "early", "passed", "test_early"),
        ("gfx942", "given", "passed", "test_given"),
    }
    said = {row["function"]: row["reason"] for row in rows if row["verdict"] == "failed"}
    assert said["tall"] == "`tall` cannot be launched on sm_90: its grid is (1, 70000, 1), the limit of y is 65535"
    assert "no allocator was set; call triton.set_allocator" in said["early"]
