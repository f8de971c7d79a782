"""How right: a row a test."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from harness.compare.comparison.common import Strict
from harness.records import CaseResult


class Parity(str, Enum):
    """How one test stands over the targets that ran tests. A gap counts only where another target passed the test."""

    ALL_PASSED = "all-passed"
    FAILED_ON = "failed-on"
    MISSING_ON = "missing-on"
    SKIPPED_ON = "skipped-on"
    PASSED_NOWHERE = "passed-nowhere"
    ONE_TARGET = "one-target"


@dataclass(frozen=True, slots=True)
class TestCell(Strict):
    """What became of one test on one target."""

    __test__: ClassVar[bool] = False  # the name does not make it one for pytest
    target: str
    result: CaseResult


@dataclass(frozen=True, slots=True)
class ParityRow(Strict):
    """One test over all targets. `on` names the targets that are behind, of very many the first; a target without the test has no cell.

    `occurrence` tells apart tests that carry the same id on one target: they are shown, never merged.
    """

    id: str
    occurrence: int
    kernel: str
    parity: Parity
    on: tuple[str, ...]
    cells: tuple[TestCell, ...]


@dataclass(frozen=True)
class KernelTests(Strict):
    """The tests of one kernel on one target, counted by verdict."""

    kernel: str
    target: str
    counts: dict[str, int]
    seconds: float
