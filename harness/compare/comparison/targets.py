"""Who was there: the targets, what is known of them, and in what they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from harness.compare.comparison.common import Strict
from harness.records import Attempt, Ceiling, Environment, Facts, Gates, StageReport, Verdict

_MOST_NAMES = 8  # of different GPUs of one target


@dataclass(frozen=True)
class DeviceSummary(Strict):
    """One GPU, with the copy bandwidth measured on it in this run and the one that its driver's figures give.

    Where several shared the work, `tests` and `points` are how many ran on it, and `lost` says why it was given up before the end.
    """

    index: int
    name: str
    architecture: str
    memory_bytes: int
    ceiling_gbps: Union[float, None] = None
    derived_gbps: Union[float, None] = None
    uuid: Union[str, None] = None
    tests: int = 0
    points: int = 0
    lost: str = ""


@dataclass(frozen=True)
class TargetSummary(Strict):
    """One target. The counts hold a number per verdict, of its tests, its measured points and its compiled kernels.

    `only_gates` of the kernels that failed did compile and could be launched; `gates` is what they were asked to meet, if anything.
    `peers` are the providers of benchmarks that its compile stage left out.
    `complete`: it did all that it was asked to do, whatever came out. A test that crashed leaves it so, a stage that crashed does not.
    `attempts` are those before the one that the rest is about; what they had finished was kept.
    `disagreements` are between the cards that shared its work.
    """

    target: str
    label: str
    verdict: Verdict
    complete: bool = False
    reason: str = ""
    hint: str = ""
    run_id: str = ""
    started: str = ""
    seconds: float = 0.0
    commit: str = ""
    command: tuple[str, ...] = ()
    devices: tuple[DeviceSummary, ...] = ()
    facts: Union[Facts, None] = None
    environment: Union[Environment, None] = None
    stages: tuple[StageReport, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    tests: dict[str, int] = field(default_factory=dict)
    points: dict[str, int] = field(default_factory=dict)
    compiled: dict[str, int] = field(default_factory=dict)
    only_gates: int = 0
    gates: Union[Gates, None] = None
    peers: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    disagreements: tuple[str, ...] = ()

    @property
    def deselected(self) -> int:
        """Tests that pytest found and that an option or the package itself left out."""
        return sum(report.deselected for report in self.stages)

    @property
    def gpus(self) -> str:
        """The names of its GPUs, each once; of many the first."""
        names = list(dict.fromkeys(device.name for device in self.devices))
        more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        return " + ".join([*names[:_MOST_NAMES], *more])


@dataclass(frozen=True)
class Difference(Strict):
    """A fact that is not the same on all targets. `refuses` where it alone forbids to compare speeds."""

    name: str
    values: dict[str, str]
    refuses: bool = False
