"""What a compiler printed before it ended the whole process stands in the row of the case that it ended."""

import pytest

from warpwave.inside.process.supervise import Death, _explain
from warpwave.records import Verdict

SAID = {
    "ops.py error: couldn't allocate output register for constraint 'f'\n": "error: couldn't allocate output register for constraint 'f'",
    "LLVM ERROR: Cannot select: t12\nStack dump:\n0. Running pass\n": "LLVM ERROR: Cannot select: t12",
    "python: /b/SLPVectorizer.cpp:6072: Assertion `x' failed.\n": "/b/SLPVectorizer.cpp:6072: Assertion `x' failed.",
    "terminate called after throwing an instance of 'std::bad_alloc'\n": "terminate called after throwing an instance of 'std::bad_alloc'",
    "12 passed, 0 errors\n": "",
}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("LLVM ERROR: of an earlier worker\n")
    return path


def ended(log, said: str, verdict: Verdict = Verdict.CRASHED, by_others: bool = False) -> str:
    printed = log.stat().st_size
    log.write_text(log.read_text() + said)
    return _explain(Death("a test", verdict, "its process ended", by_others), log, printed, {"GPU Hang": Verdict.GPU_HANG}).reason


@pytest.mark.parametrize(("said", "told"), SAID.items())
def test_they_are_in_the_reason(said, told, log):
    assert ended(log, said) == "its process ended" + (f": {told}" if told else "")


@pytest.mark.parametrize(("verdict", "by_others"), [(Verdict.CRASHED, True), (Verdict.TIMEOUT, False)])
def test_they_explain_no_kill_and_no_time_limit(verdict, by_others, log):
    assert ended(log, "error: something else\n", verdict, by_others) == "its process ended"


def test_what_the_devices_runtime_said_comes_first(log):
    assert ended(log, "reason: GPU Hang\nerror: and more\n") == "its process ended: reason: GPU Hang"
