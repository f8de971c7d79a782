"""The code of the compile stage against that of real launches; rows made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.fidelity import fidelity
from harness.records import HOST_CODE, CompiledKernel, RunRecord, TargetRun, Verdict

ROW = CompiledKernel(
    "softmax",
    "softmax_kernel",
    "sm_90",
    Verdict.PASSED,
    origin="softmax/N=1024 [triton]",
    signature={"x_ptr": "*fp32", "n": "i32"},
    constants={"BLOCK": 1024},
    attributes={"x_ptr": "tt.divisibility=16"},
    num_warps=4,
    num_stages=3,
    binary_hash="aa",
    binary_bytes=1000,
    registers=40,
)


def run(launched, compiled):
    record = RunRecord("r", "cuda", "NVIDIA CUDA", Verdict.PASSED, "", "", "2026-01-01T00:00:00+00:00", 1.0, "", "kernels", ())
    return TargetRun(record, compiled=tuple(compiled), launched=tuple(launched))


def test_the_same_binary_is_counted():
    """Rows of other architectures, and points that did not run, have nothing to do with it."""
    others = [replace(ROW, architecture="sm_80", binary_hash="cc"), replace(ROW, function=HOST_CODE, verdict=Verdict.NOT_RUN)]
    found = fidelity(run([ROW], [*others, ROW]))
    assert (found.same, found.different) == (1, ())


@pytest.mark.parametrize(
    ("compiled", "why"),
    [
        ({"binary_hash": "bb"}, "the same specialization gives another binary, of the same size and registers"),
        ({"binary_hash": "bb", "registers": 42}, "the same specialization gives another binary: 40 registers for 42, 1000 bytes for 1000"),
        ({"attributes": {}}, "specialized otherwise: x_ptr is tt.divisibility=16 for None"),
        ({"constants": {"BLOCK": 2048}, "num_warps": 8}, "specialized otherwise: BLOCK is 1024 for 2048, num_warps is 4 for 8"),
        ({"function": "other_kernel"}, "not launched there without a GPU"),
        ({"origin": "softmax/N=2048 [triton]", "signature": {}}, "not launched there without a GPU"),
    ],
)
def test_a_difference_is_explained(compiled, why):
    """Every launch on the card is either the same or has a reason."""
    found = fidelity(run([ROW], [replace(ROW, **compiled)]))
    assert found.same == 0
    assert [difference.why for difference in found.different] == [why]


@pytest.mark.parametrize(("launched", "compiled"), [([], [ROW]), ([ROW], []), ([ROW], [replace(ROW, architecture="gfx942")])])
def test_nothing_to_compare_is_nothing(launched, compiled):
    """A bundle without one of the two says nothing of their likeness."""
    assert fidelity(run(launched, compiled)) is None
