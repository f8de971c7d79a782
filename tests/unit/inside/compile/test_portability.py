"""What runs on one architecture and raises on another is a failure; what raises everywhere is not."""

import pytest

from harness.inside.compile.cases import Cases, fails_here_only
from harness.inside.process.exceptions import BY_TORCH
from harness.records import HOST_CODE, CompiledKernel, NotRun, Verdict

TEST = "test_a.py::test_a"


@pytest.mark.parametrize(
    ("elsewhere", "more", "verdict"),
    [
        (None, "", Verdict.FAILED),
        (NotRun.EMPTY, "", Verdict.FAILED),
        (NotRun.RAISED, "", Verdict.NOT_RUN),
        (NotRun.SKIPPED, "", Verdict.NOT_RUN),
        (NotRun.DATA, "", Verdict.NOT_RUN),
        (None, BY_TORCH, Verdict.NOT_RUN),
    ],
)
def test_only_what_runs_elsewhere_fails(elsewhere, more, verdict):
    """An exception on all architectures may be a gap of what is pretended, and so may what torch refuses."""
    cases = {"sm_90": Cases(), "gfx942": Cases()}
    cases["sm_90"].ended[TEST], cases["gfx942"].ended[TEST] = NotRun.RAISED, elsewhere
    row = CompiledKernel("a", HOST_CODE, "sm_90", Verdict.NOT_RUN, origin=TEST, reason=f"KeyError: 'x'{more}", not_run=NotRun.RAISED)
    found = fails_here_only(row, cases)

    assert found.verdict is verdict
    assert ("runs on gfx942 and raises on sm_90: KeyError" in found.reason) == (verdict is Verdict.FAILED)
