"""The shared words and constants: verdicts, stages, and the validation rules of records."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Union

SCHEMA_VERSION = 1

# Nothing takes thirty years, and sums of such times stay finite.
MOST_SECONDS = 1e9

Scalar = Union[int, float, str, bool, None]

# The exit code of an inside that cannot write its results (EX_IOERR of <sysexits.h>); `harness/run/diagnose.py` maps it to infrastructure.
UNWRITABLE = 74

# The exit codes of a container that ended itself, because its time was up or its results were over their limit.
OVERTIME, OVERFULL = 124, 122

# A part of the name of every target whose tests run on no card: a CPU executes the card's machine code.
EMULATED = "emulated"

# The property of a test that failed in the emulator by what host code raised: a card fails it, too.
HOST_ERROR_PROPERTY = "host_error"

# How pytest's own JUnit file calls a test that failed as expected: the type of a `<skipped>`.
JUNIT_XFAIL = "pytest.xfail"

# The test property with the index of the GPU that ran the test; set only if several GPUs shared the tests.
GPU_PROPERTY = "gpu"

# Stands in for a function's name if a point or a test launched nothing, or only some of its kernels.
HOST_CODE = "(host code)"

# Begins the reason of a case that fails on one architecture only, and ends that of what torch refuses in its own code: without a card,
# that may be for what is pretended.
RUNS_ON = "it runs on"
BY_TORCH = " (torch raised it, maybe for what is pretended)"

# pydantic's settings for every record. This is a plain dict, so that nothing has to be imported for it here.
STRICT = {"extra": "forbid", "allow_inf_nan": False}


class Verdict(str, Enum):
    """What happened to a case, a stage or a target, mildest first. `worst` relies on the order.

    Only a test is `XFAILED`: it failed, as its author expects (`pytest.mark.xfail`).
    """

    PASSED = "passed"
    XFAILED = "xfailed"
    ABSENT = "absent"
    NOT_RUN = "not-run"
    FAILED = "failed"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    OOM = "oom"
    GPU_HANG = "gpu-hang"
    INVALID = "invalid"
    STALE = "stale"
    INCOMPLETE = "incomplete"
    INFRA = "infra"

    @property
    def severity(self) -> int:
        """Position in the order above; a larger one is worse."""
        return _SEVERITY[self]


# What is no fault of a test: neither a failure nor anything that left it without a result.
HARMLESS = (Verdict.PASSED, Verdict.XFAILED, Verdict.NOT_RUN)
_SEVERITY = {verdict: position for position, verdict in enumerate(Verdict)}


def worst(verdicts: list[Verdict], default: Verdict = Verdict.NOT_RUN) -> Verdict:
    """Return the most severe of `verdicts`; `default` if there is none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=default)


class NotRun(str, Enum):
    """Why a test or a launch did not run, or not to its end.

    `SKIPPED` is the author's own decision, and so is `XFAILED`: a test that failed as expected while it was compiled. `EMPTY`: a file has
    nothing to run. `DATA`: the host's code depends on data that a pretended GPU does not have. `RAISED`: its code raised an exception that
    nothing of the others explains. `IMPORT`: a module does not import. `NOT_PRETENDED`: it needs something of a GPU that warpwave does not
    pretend, which is a gap of warpwave. `TIME_UP`: never reached. `STOPPED`: the run was stopped before it. `DISCARDED`: an autotuner tries
    this configuration and has a clean one for the same launch.
    """

    SKIPPED = "skipped"
    XFAILED = "xfailed"
    EMPTY = "empty"
    DATA = "decided-by-data"
    RAISED = "raised"
    IMPORT = "import-failed"
    NOT_PRETENDED = "not-pretended"
    TIME_UP = "time-up"
    STOPPED = "stopped"
    DISCARDED = "discarded"

    @property
    def words(self) -> str:
        """The reason in a count: `12 decided by data`."""
        return _WORDS.get(self, self.value.replace("-", " "))


def reasons(number: int, counts: Mapping[str, int]) -> list[str]:
    """`3 skipped`, `12 decided by data`: what did not run by its reason. Without one, a row is of an older run: skipped."""
    known = {why: counts.get(why.value, 0) for why in NotRun}
    known[NotRun.SKIPPED] += max(0, number - sum(known.values()))
    return [f"{count} {why.words}" for why, count in known.items() if count]


_WORDS = {
    NotRun.XFAILED: "expected to fail",
    NotRun.EMPTY: "with nothing to run",
    NotRun.TIME_UP: "not reached in time",
    NotRun.DISCARDED: "discarded by an autotuner",
}


class Stage(str, Enum):
    """The processes that run beside the GPU, in running order."""

    FACTS = "facts"
    TEST = "test"
    BENCH = "bench"
    COMPILE = "compile"
