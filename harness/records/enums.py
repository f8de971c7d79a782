"""The words and constants of all records: verdicts, stages, and what a record is held to."""

from __future__ import annotations

from enum import Enum
from typing import Union

SCHEMA_VERSION = 1

# Nothing takes thirty years; and whatever is summed stays a number.
MOST_SECONDS = 1e9

Scalar = Union[int, float, str, bool, None]

# The exit code of an inside that cannot write its results (EX_IOERR of <sysexits.h>); in `harness/run/diagnose.py` it is infrastructure.
UNWRITABLE = 74

# The property of a test that names the GPU it ran on, by its index; only where several shared the tests.
GPU_PROPERTY = "gpu"

# In the place of a function's name: a point or a test that launched nothing, or not all of what it would have.
HOST_CODE = "(host code)"

# What pydantic, on the host, is asked to hold every record to; a plain dict, so that nothing has to be imported for it here.
STRICT = {"extra": "forbid", "allow_inf_nan": False}


class Verdict(str, Enum):
    """What became of a case, a stage or a target, mildest first: `worst` relies on the order."""

    PASSED = "passed"
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
        """Position in the order above; larger is worse."""
        return _SEVERITY[self]


_SEVERITY = {verdict: position for position, verdict in enumerate(Verdict)}


def worst(verdicts: list[Verdict], default: Verdict = Verdict.NOT_RUN) -> Verdict:
    """The most severe of `verdicts`; `default` where there is none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=default)


class Stage(str, Enum):
    """The processes that run where the GPU is, in the order in which they run."""

    FACTS = "facts"
    TEST = "test"
    BENCH = "bench"
    COMPILE = "compile"
