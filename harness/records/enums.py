"""The shared words and constants: verdicts, stages, and the validation rules of records."""

from __future__ import annotations

from enum import Enum
from typing import Union

SCHEMA_VERSION = 1

# Nothing takes thirty years, and sums of such times stay finite.
MOST_SECONDS = 1e9

Scalar = Union[int, float, str, bool, None]

# The exit code of an inside that cannot write its results (EX_IOERR of <sysexits.h>); `harness/run/diagnose.py` maps it to infrastructure.
UNWRITABLE = 74

# The test property with the index of the GPU that ran the test; set only if several GPUs shared the tests.
GPU_PROPERTY = "gpu"

# Stands in for a function's name if a point or a test launched nothing, or only some of its kernels.
HOST_CODE = "(host code)"

# pydantic's settings for every record. This is a plain dict, so that nothing has to be imported for it here.
STRICT = {"extra": "forbid", "allow_inf_nan": False}


class Verdict(str, Enum):
    """What happened to a case, a stage or a target, mildest first. `worst` relies on the order."""

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
        """Position in the order above; a larger one is worse."""
        return _SEVERITY[self]


_SEVERITY = {verdict: position for position, verdict in enumerate(Verdict)}


def worst(verdicts: list[Verdict], default: Verdict = Verdict.NOT_RUN) -> Verdict:
    """Return the most severe of `verdicts`; `default` if there is none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=default)


class Stage(str, Enum):
    """The processes that run beside the GPU, in running order."""

    FACTS = "facts"
    TEST = "test"
    BENCH = "bench"
    COMPILE = "compile"
