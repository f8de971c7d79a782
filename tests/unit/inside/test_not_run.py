"""Why something did not run, found out from the exception that ended it."""

from __future__ import annotations

import unittest

import pytest

from harness.records import NotRun, Stage, StageReport, Verdict

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from harness.inside.fake_gpu import streams, torch_device  # noqa: E402
from harness.inside.process.exceptions import DecidedByData, NotPretended  # noqa: E402
from harness.inside.process.not_run import why_not_run, with_reasons  # noqa: E402


def _raised(function):
    with pytest.raises(BaseException) as caught:
        function()
    return caught.value


def _from_a_cause():
    try:
        raise DecidedByData("how many rows")
    except DecidedByData as error:
        raise ValueError("no such shape") from error


def _module_skip():
    pytest.skip("needs two GPUs")


CASES = {
    "skip": (_module_skip, NotRun.SKIPPED),
    "unittest": (lambda: (_ for _ in ()).throw(unittest.SkipTest("no")), NotRun.SKIPPED),
    "data": (lambda: (_ for _ in ()).throw(DecidedByData("a size")), NotRun.DATA),
    "behind another exception": (_from_a_cause, NotRun.DATA),
    "no number": (lambda: torch.empty(1, device="meta").item(), NotRun.DATA),
    "no copy": (lambda: torch.empty(1, device="meta").cpu(), NotRun.DATA),
    "no array": (lambda: torch.empty(1, device="meta").numpy(), NotRun.DATA),
    "no size": (lambda: torch.empty(1, device="meta").nonzero(), NotRun.DATA),
    "gap": (lambda: (_ for _ in ()).throw(NotPretended("torch.cuda.graph")), NotRun.NOT_PRETENDED),
    "no such attribute": (lambda: torch.cuda.no_such_thing, NotRun.NOT_PRETENDED),
    "nor of a stand-in": (lambda: streams.Stream().no_such_thing, NotRun.NOT_PRETENDED),
    "no such parameter": (lambda: torch_device.torch_device("cuda", 1, 2), NotRun.NOT_PRETENDED),
    "no card": (lambda: torch.empty(1, device="cuda"), NotRun.NOT_PRETENDED),
    "no import": (lambda: __import__("no_such_module"), NotRun.IMPORT),
    "its own": (lambda: [].pop(), NotRun.RAISED),
    "its own attribute": (lambda: torch.nn.no_such_thing, NotRun.RAISED),
    "its own argument": (lambda: sorted(1, 2, 3), NotRun.RAISED),
}


@pytest.mark.parametrize("name", CASES)
def test_an_exception_says_why(name):
    """Whose fault it is decides what a reader does next."""
    function, why = CASES[name]

    assert why_not_run(_raised(function)) is why


def test_a_gap_of_the_harness_is_never_green():
    """The stage is incomplete, and says how much of it and what; a graver verdict stays."""
    report = StageReport(Stage.COMPILE, Verdict.PASSED)
    reasons = {NotRun.NOT_PRETENDED: 2, NotRun.SKIPPED: 1}

    found = with_reasons(report, reasons, "launch", "test_a: torch.cuda.graph")
    assert (found.verdict, found.not_run) == (Verdict.INCOMPLETE, {"skipped": 1, "not-pretended": 2})
    assert found.reason.startswith("2 launches need")
    assert "test_a: torch.cuda.graph" in found.reason
    assert with_reasons(report, {NotRun.DATA: 5}, "launch", "").verdict is Verdict.PASSED
    lost = with_reasons(StageReport(Stage.TEST, Verdict.INFRA, reason="no card"), reasons, "test", "")
    assert (lost.verdict, lost.reason) == (Verdict.INFRA, "no card")
