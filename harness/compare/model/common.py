"""Shared by all parts of a comparison."""

from __future__ import annotations

from typing import ClassVar

from harness.records import Verdict

# How a test, kernel or stage ends that ran and did not pass.
FAILING = (Verdict.FAILED, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG)

# The verdicts of something that ran to its end, with whatever result.
COMPLETE = (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR)


class Strict:
    """What pydantic demands of each dataclass when a comparison is read back: no unknown field, no infinite number."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}
