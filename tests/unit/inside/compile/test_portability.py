"""What runs on one architecture and raises, or ends its process, on another is a failure; what raises everywhere is not."""

import pytest

from warpwave.inside.compile.stage import Cases, fails_here_only
from warpwave.records import BY_TORCH, HOST_CODE, CompiledKernel, NotRun, Verdict

TEST = "test_a.py::test_a"


@pytest.mark.parametrize(
    ("elsewhere", "more", "verdict"),
    [
        (None, "", Verdict.FAILED),
        (NotRun.EMPTY, "", Verdict.FAILED),
        (NotRun.RAISED, "", Verdict.NOT_RUN),
        (NotRun.SKIPPED, "", Verdict.NOT_RUN),
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
    assert ("runs on gfx942 and raises KeyError on sm_90: 'x'" in found.reason) == (verdict is Verdict.FAILED)


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("KeyError: 'hip'", Verdict.FAILED),
        ("NameError: name 'block' is not defined", Verdict.FAILED),
        ("KeyError: 3", Verdict.NOT_RUN),
        ("ValueError: no such size", Verdict.NOT_RUN),
    ],
)
def test_an_error_of_the_package_counts_where_data_decides_elsewhere(reason, verdict):
    """No data decides what a dict with names has. Of another error, that is not known."""
    cases = {"sm_90": Cases(), "gfx942": Cases()}
    cases["sm_90"].ended[TEST], cases["gfx942"].ended[TEST] = NotRun.DATA, NotRun.RAISED
    row = CompiledKernel("a", HOST_CODE, "gfx942", Verdict.NOT_RUN, origin=TEST, reason=reason, not_run=NotRun.RAISED)

    assert fails_here_only(row, cases).verdict is verdict


def test_a_process_that_ends_on_one_architecture_is_named_with_both():
    """`os._exit(1)` raises nothing. Where a process died, its test has not run."""
    cases = {"sm_90": Cases(), "gfx942": Cases(), "gfx1100": Cases()}
    cases["sm_90"].note({"event": "finish", "id": TEST, "reason": "", "not_run": None})
    for name in ("gfx942", "gfx1100"):
        cases[name].note({"event": "death", "id": TEST, "verdict": "crashed", "reason": "its process exited with 1 before its end"})
    row = CompiledKernel("a", HOST_CODE, "gfx942", Verdict.CRASHED, origin=TEST, reason="its process exited with 1 before its end")
    found = fails_here_only(row, cases)

    assert found.verdict is Verdict.CRASHED
    assert found.reason == "it runs on sm_90 and on gfx942 its process exited with 1 before its end"
