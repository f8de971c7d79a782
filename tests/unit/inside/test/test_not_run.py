"""Why something did not run, found out from the exception that ended it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import unittest
from concurrent.futures.process import BrokenProcessPool

import pytest

from warpwave.records import NotRun, Stage, StageReport, Verdict

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from triton.runtime.errors import InterpreterError

from warpwave.inside.fake_gpu import (
    streams,
    torch_device,
)
from warpwave.inside.fake_gpu.unknown import unknown
from warpwave.inside.process.outcomes import (
    DecidedByData,
    NotPretended,
    Pretended,
    describe,
    first_of_several,
    why_not_run,
    with_reasons,
)


def _raised(function):
    with pytest.raises(BaseException) as caught:
        function()
    return caught.value


def _from_a_cause():
    try:
        raise DecidedByData("how many rows")
    except DecidedByData as error:
        raise ValueError("no such shape") from error


def _in_several_ways(*errors):
    def fail():
        raise ExceptionGroup("2 ways", errors)  # noqa: F821 - new in Python 3.11

    return fail


def _from_c_code():
    torch.zeros((2, unknown(torch.int64)))


def _interpreted_kernel():
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(_module_skip)


def _compared_memory():
    Pretended.memory = True
    assert torch.zeros(1).sum() > 0, "saves memory"


def _counted_graphs():
    from torch._dynamo.utils import counters

    Pretended.compiled = True
    assert counters["stats"]["unique_graphs"] == 1, "compiled once"


def _compared_after_compiling():
    Pretended.compiled = True
    assert torch.zeros(1).sum() > 0


def _compared_tensors():
    Pretended.memory = True
    torch.testing.assert_close(torch.zeros(1), torch.ones(1))


def _module_skip():
    pytest.skip("needs two GPUs")


CASES = {
    "skip": (_module_skip, NotRun.SKIPPED),
    "unittest": (lambda: (_ for _ in ()).throw(unittest.SkipTest("no")), NotRun.SKIPPED),
    "data": (lambda: (_ for _ in ()).throw(DecidedByData("a size")), NotRun.DATA),
    "behind another exception": (_from_a_cause, NotRun.DATA),
    "memory of several cards": (
        lambda: (_ for _ in ()).throw(RuntimeError("SymmetricMemory does not support device type cuda")),
        NotRun.NOT_PRETENDED,
    ),
    "a kernel of another compiler": (
        lambda: (_ for _ in ()).throw(RuntimeError("kernel main input Query device_type mismatch, expected cuda; expected: 2, got: 1")),
        NotRun.NOT_PRETENDED,
    ),
    "another Python": (lambda: subprocess.run([sys.executable, "-c", "1 / 0"], check=True, capture_output=True), NotRun.NOT_PRETENDED),
    "another program": (lambda: subprocess.run(["false"], check=True), NotRun.RAISED),
    "no number": (lambda: torch.empty(1, device="meta").item(), NotRun.DATA),
    "no copy": (lambda: torch.empty(1, device="meta").cpu(), NotRun.DATA),
    "no array": (lambda: torch.empty(1, device="meta").numpy(), NotRun.DATA),
    "no size": (lambda: torch.empty(1, device="meta").nonzero(), NotRun.DATA),
    "no plain number": (_from_c_code, NotRun.DATA),
    "gap": (lambda: (_ for _ in ()).throw(NotPretended("torch.cuda.graph")), NotRun.NOT_PRETENDED),
    "no such attribute": (lambda: torch.cuda.no_such_thing, NotRun.NOT_PRETENDED),
    "nor of a stand-in": (lambda: streams.Stream().no_such_thing, NotRun.NOT_PRETENDED),
    "no such parameter": (lambda: torch_device.torch_device("cuda", 1, 2), NotRun.NOT_PRETENDED),
    "an interpreted kernel's compiler": (lambda: _interpreted_kernel().cache_key, NotRun.NOT_PRETENDED),
    "nothing that a kernel has": (lambda: _interpreted_kernel().no_such_thing, NotRun.RAISED),
    "no card": (lambda: torch.empty(1, device="cuda"), NotRun.NOT_PRETENDED),
    "no library of several cards": (lambda: (_ for _ in ()).throw(RuntimeError("it doesn't have NCCL built in")), NotRun.NOT_PRETENDED),
    "no driver": (lambda: ctypes.CDLL("libcuda.so"), NotRun.NOT_PRETENDED),
    "no library of a vendor": (
        lambda: (_ for _ in ()).throw(RuntimeError("Could not find `libhipblaslt.so`. Make sure it is in your LD_LIBRARY_PATH.")),
        NotRun.NOT_PRETENDED,
    ),
    "no dtype of the CPU": (lambda: torch.trace(torch.ones(2, 2, dtype=torch.bool)), NotRun.NOT_PRETENDED),
    "no division by zero": (lambda: torch.ones(1, dtype=torch.int32) // torch.zeros(1, dtype=torch.int32), NotRun.NOT_PRETENDED),
    "its own division by zero": (lambda: 1 // 0, NotRun.RAISED),
    "a pool of processes": (lambda: (_ for _ in ()).throw(BrokenProcessPool("terminated abruptly")), NotRun.NOT_PRETENDED),
    "no profiler": (lambda: (_ for _ in ()).throw(RuntimeError("[PROTON] Could not load `libcuda.so.1`")), NotRun.NOT_PRETENDED),
    "a module that is built for a card": (
        lambda: (_ for _ in ()).throw(ImportError("libcuda.so.1: cannot open shared object file")),
        NotRun.IMPORT,
    ),
    "no library of its own": (lambda: ctypes.CDLL("libours.so"), NotRun.RAISED),
    "no tool": (lambda: subprocess.run(["some-smi"], check=True), NotRun.NOT_PRETENDED),
    "no import": (lambda: __import__("no_such_module"), NotRun.IMPORT),
    "memory that nobody counts": (_compared_memory, NotRun.NOT_PRETENDED),
    "graphs that nobody makes": (_counted_graphs, NotRun.NOT_PRETENDED),
    "its own, after torch.compile": (_compared_after_compiling, NotRun.RAISED),
    "tensors of one that asked for memory": (_compared_tensors, NotRun.RAISED),
    "its own": (lambda: [].pop(), NotRun.RAISED),
    "its own attribute": (lambda: torch.nn.no_such_thing, NotRun.RAISED),
    "its own argument": (lambda: sorted(1, 2, 3), NotRun.RAISED),
}


if sys.version_info >= (3, 11):
    CASES["gaps"] = (_in_several_ways(NotPretended("one"), NotPretended("two")), NotRun.NOT_PRETENDED)
    CASES["a gap and its own"] = (_in_several_ways(NotPretended("one"), ValueError("two")), NotRun.RAISED)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no groups of exceptions")
def test_a_group_is_told_by_its_first_exception():
    """Hypothesis says only how many ways an example fails in."""
    group = _raised(_in_several_ways(ValueError("no such shape"), KeyError("x")))

    assert first_of_several(group) == "ValueError: no such shape (and 1 more)"
    assert first_of_several(ValueError("alone")) == ""


def test_a_kernels_error_is_shown_without_the_interpreters_wrapping():
    """Triton wraps the error again at each call, and repeats its text each time."""

    def kernel():
        try:
            raise ValueError("no such shape\nsecond line")
        except ValueError as error:
            raise InterpreterError(repr(error)) from error

    def launch():
        try:
            kernel()
        except InterpreterError as error:
            raise InterpreterError(repr(error)) from error

    assert describe(_raised(launch)) == describe(_raised(kernel)) == "ValueError: no such shape"
    assert describe(InterpreterError("alone")) == "InterpreterError: alone"


@pytest.mark.parametrize("name", CASES)
def test_an_exception_says_why(name):
    """Whose fault it is decides what a reader does next."""
    function, why = CASES[name]
    Pretended.memory = Pretended.compiled = False
    try:
        assert why_not_run(_raised(function)) is why
    finally:
        Pretended.memory = Pretended.compiled = False


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
