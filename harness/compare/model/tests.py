"""Test results: a row per test."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from harness.compare.model.common import Strict
from harness.records import CaseResult, Finding


class Parity(str, Enum):
    """How one test did on the targets that ran tests. A gap counts only if another target passed the test."""

    ALL_PASSED = "all-passed"
    FAILED_ON = "failed-on"
    MISSING_ON = "missing-on"
    SKIPPED_ON = "skipped-on"
    XFAILED_ON = "xfailed-on"
    PASSED_NOWHERE = "passed-nowhere"
    ONE_TARGET = "one-target"


@dataclass(frozen=True, slots=True)
class TestCell(Strict):
    """The result of one test on one target."""

    __test__: ClassVar[bool] = False  # tells pytest not to collect this class
    target: str
    result: CaseResult


@dataclass(frozen=True, slots=True)
class ParityRow(Strict):
    """One test on all targets. A target without the test has no cell.

    `on` names the targets that did not pass, or the first of them if there are very many. `occurrence` distinguishes tests with the same id
    on one target: they are listed separately, never merged. `suspected` names the targets that failed it only in the emulator, while it
    passed on one that is not emulated.
    """

    id: str
    occurrence: int
    kernel: str
    parity: Parity
    on: tuple[str, ...]
    cells: tuple[TestCell, ...]
    suspected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TestFinding(Strict):
    """What the sanitizer found in one test on one target."""

    __test__: ClassVar[bool] = False
    target: str
    finding: Finding


@dataclass(frozen=True)
class KernelTests(Strict):
    """The tests of one kernel on one target, counted by verdict, and those that did not run by their reason."""

    kernel: str
    target: str
    counts: dict[str, int]
    seconds: float
    not_run: dict[str, int] = field(default_factory=dict)
