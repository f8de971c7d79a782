"""Undefined lanes of kernels that tests launch: in the interpreter, and where machine code is executed, which cannot show them."""

import os
import textwrap
from pathlib import Path

import command
import pytest

from warpwave.collect import collect
from warpwave.records import Defect, Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

PACKAGE = """
    import pytest
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def first(p, i, n):
        return tl.load(p + i, mask=i < n)


    @triton.jit
    def total(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(first(x, i, n)))


    @triton.jit
    def chosen(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(tl.where(i < n, first(x, i, n), 0.0)))


    def of_python(v):
        return v


    @triton.jit
    def unreadable(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(tl.where(i < n, of_python(first(x, i, n)), 0.0)))


    @pytest.mark.parametrize("kernel", [total, chosen, unreadable][:KERNELS], ids=["total", "chosen", "unreadable"][:KERNELS])
    def test_sum(kernel):
        x, y = torch.ones(50, device="cuda"), torch.zeros(1, device="cuda")
        kernel[(1,)](x, y, 50, 64)
        assert y[0] == 50
"""


@pytest.mark.parametrize("target", ["cpu", pytest.param("gfx942-emulated", marks=pytest.mark.slow)])
def test_a_launched_kernel_is_followed_into_its_helpers(target, tmp_path):
    """The result is right all the same; of the kernel that drops the lanes there is no finding. One that cannot be followed is named."""
    if target != "cpu":
        pytest.importorskip("tinygrad", reason="the emulator reads its tables from tinygrad")
    kernels = 3 if target == "cpu" else 2  # the interpreter takes what the compiler refuses
    (tmp_path / "test_sums.py").write_text(textwrap.dedent(PACKAGE).replace("KERNELS", str(kernels)))
    words = ["run", target, "--engine", "local", "--stage", "test", "--kernels", tmp_path, "--out", tmp_path / "out", "--quiet"]
    done = command.warpwave(*words, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "harness")}, timeout=300)
    collected = collect(tmp_path / "out" / "raw" / target)
    (found,) = collected.findings
    unchecked = [case for case in collected.cases if "not-followed" in case.properties]

    assert done.returncode == 1
    assert (found.case, found.defect, found.function) == ("test_sums.py::test_sum[total]", Defect.UNDEFINED, "total")
    assert (found.place, found.other.rpartition(" at ")[2]) == ("test_sums.py:10", "test_sums.py:16")
    assert [case.id.partition("[")[2] for case in unchecked] == ["unreadable]"] * (kernels - 2)
    assert all(case.properties["not-followed"].startswith("unreadable could not be compiled here") for case in unchecked)


BY_LAUNCH = """
    import pytest
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def within(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y + i, tl.load(x + i, mask=i < 40), mask=i < n)


    @triton.jit
    def beyond(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y + i, tl.load(x + i, mask=i < 40), mask=i < n)


    @triton.jit
    def varying(x, y, lengths, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(tl.load(x + i, mask=i < tl.load(lengths))))


    @pytest.mark.parametrize("kernel, n", [(within, 33), (beyond, 33), (within, 39), (beyond, 41)])
    def test_limit(kernel, n):
        kernel[(1,)](torch.ones(64, device="cuda"), torch.ones(64, device="cuda"), n, 64)


    def test_varying():
        varying[(1,)](torch.ones(64, device="cuda"), torch.ones(1, device="cuda"), torch.full((1,), 64, device="cuda"), 64)
"""


def test_the_compile_stage_judges_a_kernel_by_all_its_launches(tmp_path):
    """One row a kernel. What depends on data, which that stage has none of, is advice."""
    (tmp_path / "test_limits.py").write_text(textwrap.dedent(BY_LAUNCH))
    words = ["run", "cpu", "--engine", "local", "--stage", "compile", "--architectures", "mi300x", "--kernels", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "harness")}
    done = command.warpwave(*words, "--out", tmp_path / "out", "--quiet", env=environment, timeout=300)
    compiled = collect(tmp_path / "out" / "raw" / "cpu").compiled
    rows = {row.function: row for row in compiled}

    assert done.returncode == 1
    assert len(compiled) == len(rows) == 3
    assert {name: (row.verdict, [*row.broken], [*row.advice]) for name, row in rows.items()} == {
        "within": (Verdict.PASSED, [], []),
        "beyond": (Verdict.FAILED, ["undefined_lanes"], []),
        "varying": (Verdict.PASSED, [], ["undefined_lanes"]),
    }
