"""Layer 1: the data of a comparison, as frozen dataclasses, and so the shape of `comparison.json`. Imports `records` only.

A comparison holds everything that a renderer shows. So a report can be drawn again, offline, from `comparison.json` alone. A `target` here
is the name that reports show: the target's name, followed by ` (2)` if two runs have the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from harness.compare.model.codegen import CodegenCell, CodegenRow, Deviation, Fidelity, Likeness, WaiverUse
from harness.compare.model.common import COMPLETE, FAILING, Strict
from harness.compare.model.speeds import Cell, Change, Exclusion, Geomean, Noise, Portability, Ratio, Refusal, Row, Since, Speed
from harness.compare.model.targets import CardUse, DeviceSummary, Difference, TargetSummary
from harness.compare.model.tests import KernelTests, Parity, ParityRow, TestCell, TestFinding
from harness.records import SCHEMA_VERSION, Stage

__all__ = [
    "COMPLETE",
    "FAILING",
    "CardUse",
    "Cell",
    "Change",
    "CodegenCell",
    "CodegenRow",
    "Comparison",
    "Deviation",
    "DeviceSummary",
    "Difference",
    "Exclusion",
    "Fidelity",
    "Geomean",
    "KernelTests",
    "Likeness",
    "Noise",
    "Parity",
    "ParityRow",
    "Portability",
    "Ratio",
    "Refusal",
    "Row",
    "Since",
    "Speed",
    "TargetSummary",
    "TestCell",
    "TestFinding",
    "WaiverUse",
]


@dataclass(frozen=True)
class Comparison(Strict):
    """All targets of one report. `sentence` is the verdict in words, `exit_code` the verdict as a number.

    `baseline` is the target that ratios divide by: the first that measured speeds. It is None if fewer than two did.
    `since` says what changed since the base run, if one was given.
    """

    sentence: str
    exit_code: int
    targets: tuple[TargetSummary, ...]
    baseline: Union[str, None] = None
    differences: tuple[Difference, ...] = ()
    kernels: tuple[KernelTests, ...] = ()
    tests: tuple[ParityRow, ...] = ()
    findings: tuple[TestFinding, ...] = ()
    speeds: tuple[Speed, ...] = ()
    geomeans: tuple[Geomean, ...] = ()
    portabilities: tuple[Portability, ...] = ()
    noise: tuple[Noise, ...] = ()
    rows: tuple[Row, ...] = ()
    codegen: tuple[CodegenRow, ...] = ()
    waivers: tuple[WaiverUse, ...] = ()
    fidelity: tuple[Fidelity, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problems: tuple[str, ...] = ()
    since: tuple[Since, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def untested(self) -> bool:
        """Whether no target ran tests. Then every speed is unverified, and one line says so better than a mark on each."""
        tested = any(target.tests or any(report.stage is Stage.TEST for report in target.stages) for target in self.targets)
        return not tested and not any(speed.verified for speed in self.speeds)
