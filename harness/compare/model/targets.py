"""The targets: what is known of each, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from harness.compare.model.common import Strict
from harness.records import EMULATED, Attempt, Ceiling, Environment, Facts, Gates, Stage, StageReport, Verdict

_MOST_NAMES = 8  # different GPU names shown per target


@dataclass(frozen=True)
class DeviceSummary(Strict):
    """One GPU, with the copy bandwidth measured in this run and the one computed from its driver's figures.

    If several GPUs shared the work, `tests` and `points` are how many ran on this one, and `lost` says why it stopped early.
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
class CardUse(Strict):
    """For how long a run had its cards locked, in seconds, and what for. Seconds of several cards are added up.

    `used_s` of them, a test ran and did not compile, or the device was busy with what was timed. On the machine of the card,
    `compiled_ahead` kernels were compiled before it was locked, and `compiled_meanwhile` while it was.
    """

    held_s: float
    used_s: float
    compiled_ahead: int = 0
    compiled_meanwhile: int = 0


@dataclass(frozen=True)
class TargetSummary(Strict):
    """One target. `tests`, `points` and `compiled` are counts per verdict, of tests, measured points and compiled kernels. `tests_not_run`
    and `compiled_not_run` count those with the verdict `not-run` by their reason.

    `only_gates` counts failed kernels that compiled and could be launched. `gates` is what kernels had to meet, if anything. `peers` are
    the benchmark providers that the compile stage left out. `complete`: it did everything it was asked to do, whatever the result. A
    crashed test does not change that, a crashed stage does. `attempts` are the earlier attempts. Whatever they finished was kept.
    `disagreements` are between the GPUs that shared the work. `narrowed` are the options by which the run had some of the package's tests
    only, and `chosen` says in lines what they chose and why. `emulated` names the architecture whose machine code a CPU executed; empty on
    a real card. `suspected` counts the tests that failed only in the emulator. `loads` counts those that load a file of benchmarks:
    warpwave adds one for each. `card_use` is None if no card of this machine was locked. `repository` is the https address of the remote,
    and behind `#` the path of the package in it.
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
    host: str = ""
    snapshot: str = ""
    command: tuple[str, ...] = ()
    devices: tuple[DeviceSummary, ...] = ()
    facts: Union[Facts, None] = None
    environment: Union[Environment, None] = None
    stages: tuple[StageReport, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    tests: dict[str, int] = field(default_factory=dict)
    points: dict[str, int] = field(default_factory=dict)
    compiled: dict[str, int] = field(default_factory=dict)
    tests_not_run: dict[str, int] = field(default_factory=dict)
    compiled_not_run: dict[str, int] = field(default_factory=dict)
    only_gates: int = 0
    gates: Union[Gates, None] = None
    peers: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    disagreements: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    emulated: str = ""
    suspected: int = 0
    loads: int = 0
    card_use: Union[CardUse, None] = None
    repository: str = ""

    @property
    def deselected(self) -> int:
        """Tests that pytest found and that an option or the package deselected. Two stages may have found the same."""
        return max((report.deselected for report in self.stages), default=0)

    @property
    def is_untested(self) -> bool:
        """Whether it was asked for tests, and found none that somebody wrote."""
        return not self.tests and any(report.stage is Stage.TEST for report in self.stages)

    @property
    def left_out(self) -> int:
        """Tests that a quick run left out."""
        return max((report.left_out for report in self.stages), default=0)

    @property
    def gpus(self) -> str:
        """The distinct names of its GPUs, the first of them if there are many."""
        names = list(dict.fromkeys(device.name for device in self.devices))
        more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        return " + ".join([*names[:_MOST_NAMES], *more])

    @property
    def hardware(self) -> str:
        """The names of its GPUs, or the architecture that was emulated: `gfx942, emulated`."""
        return f"{self.emulated}, {EMULATED}" if self.emulated else self.gpus


@dataclass(frozen=True)
class Difference(Strict):
    """A fact that differs between targets. `refuses`: this alone forbids comparing speeds."""

    name: str
    values: dict[str, str]
    refuses: bool = False
