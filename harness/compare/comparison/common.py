"""What all parts of a comparison have in common."""

from __future__ import annotations

from typing import ClassVar

from harness.records import Verdict

# What a test, a kernel or a stage that did run can end in, short of passing.
FAILING = (Verdict.FAILED, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG)

# What ended in one of these was brought to its end, whatever came out.
COMPLETE = (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR)


class Strict:
    """What pydantic holds each of them to where a comparison is read back: nothing unknown, nothing infinite."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}
