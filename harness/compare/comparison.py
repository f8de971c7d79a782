"""Layer 1: what a comparison is made of, as frozen dataclasses. Imports `records` only; the shape of `comparison.json`.

A comparison holds all that any renderer shows, so that a report can be drawn again, offline, from `comparison.json` alone.
A `target` here is the name under which a run is shown: its target's name, with ` (2)` behind it where two runs have the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Union

from harness.records import (
    SCHEMA_VERSION,
    Attempt,
    CaseResult,
    Ceiling,
    CompiledKernel,
    Environment,
    Facts,
    Gates,
    Scalar,
    StageReport,
    Verdict,
    Waiver,
)

# What a test, a kernel or a stage that did run can end in, short of passing.
FAILING = (Verdict.FAILED, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG)
# What ended in one of these was brought to its end, whatever came out.
COMPLETE = (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR)


class Parity(str, Enum):
    """How one test stands over the targets that ran tests. A gap counts only where another target passed the test."""

    ALL_PASSED = "all-passed"
    FAILED_ON = "failed-on"
    MISSING_ON = "missing-on"
    SKIPPED_ON = "skipped-on"
    PASSED_NOWHERE = "passed-nowhere"
    ONE_TARGET = "one-target"


class Change(str, Enum):
    """How the speed on a target stands to that on the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    ONE_SIDED = "one-sided"
    REFUSED = "refused"


class _Strict:
    """What pydantic holds each of them to where a comparison is read back: nothing unknown, nothing infinite."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True)
class Cell(_Strict):
    """One number: a case under one provider on one GPU. `value` is None where the verdict is not `passed`.

    `share` is the value over the largest copy bandwidth measured on that GPU in the same run. `verified`: the kernel's tests passed on that
    target. `suspect`: the value is further above the ceiling than memory can be. `reason` is the sentence behind any of them. `weak` says
    why the timings are not to be relied on; `half_width` is that of the 95 % interval of their median, over the median, and `quiet` whether
    it is as narrow as the bench stage asks for. `graph_ms` is one of many launches in a graph, with a warm cache: no bandwidth of memory.
    """

    target: str
    device: int
    gpu: str
    verdict: Verdict
    unit: str
    value: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    median_ms: Union[float, None] = None
    p20_ms: Union[float, None] = None
    p80_ms: Union[float, None] = None
    share: Union[float, None] = None
    verified: bool = False
    suspect: bool = False
    reason: str = ""
    timings: int = 0
    timer: str = ""
    flush_bytes: int = 0
    warmup: int = 0
    bytes_moved: Union[int, None] = None
    half_width: Union[float, None] = None
    quiet: Union[bool, None] = None
    graph_ms: Union[float, None] = None
    cache_bytes: Union[int, None] = None
    weak: str = ""

    @property
    def sound(self) -> bool:
        """Whether a ratio may be made of it."""
        return self.value is not None and self.verified and not self.suspect


@dataclass(frozen=True)
class Ratio(_Strict):
    """`target`'s value over `baseline`'s. None, with the reason, where the two cannot be compared.

    `speedup` is how often the target's median time goes into the baseline's, whatever the unit; it lies between `low` and `high` with 95 %
    confidence. `change` is `faster` or `slower` where all of that is further from 1 than `threshold`, `same` where none of it is.
    """

    target: str
    baseline: str
    value: Union[float, None]
    change: Change
    reason: str = ""
    speedup: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    threshold: Union[float, None] = None


@dataclass(frozen=True)
class Exclusion(_Strict):
    """A case that a geometric mean leaves out."""

    case: str
    reason: str


@dataclass(frozen=True)
class Noise(_Strict):
    """What an A/A run of a target found: `n` points measured twice. A change below `threshold` (0.02 is 2 %) is noise on it.

    Of the medians 95 % `moved` by at most that. `largest` is how far the interval of a ratio stayed away from 1, and `largest_case` whose.
    `enough`: `n` suffices to tell; else the threshold is at least the one that is assumed without an A/A run.
    """

    target: str
    n: int
    enough: bool
    threshold: float
    moved: float
    largest: float
    largest_case: str


@dataclass(frozen=True)
class Portability(_Strict):
    """Pennycook's performance portability of a kernel: the harmonic mean over the targets of `efficiencies`, 0 where one has none.

    A target's efficiency is the geometric mean of its shares of the ceiling over the `n` cases that are sound on all targets.
    """

    kernel: str
    provider: str
    efficiencies: dict[str, float]
    n: int
    value: float
    exclusions: tuple[Exclusion, ...] = ()


@dataclass(frozen=True)
class Row(_Strict):
    """One case under one provider, over all targets. `portability`: harmonic mean of the shares, 0 where a benched target has none."""

    kernel: str
    case: str
    provider: str
    unit: str
    params: dict[str, Scalar]
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...] = ()
    portability: Union[float, None] = None


@dataclass(frozen=True)
class Speed(_Strict):
    """The sweep of one kernel and provider on one GPU, condensed. `n` numbers are behind it; `left_out` were invalid or suspect.

    `largest` is the value at the largest product of the numeric parameters; the shares are those of the very same points.
    """

    kernel: str
    provider: str
    unit: str
    target: str
    gpu: str
    n: int
    left_out: int
    verified: bool
    reason: str = ""
    best: Union[float, None] = None
    best_share: Union[float, None] = None
    best_case: str = ""
    median: Union[float, None] = None
    median_share: Union[float, None] = None
    largest: Union[float, None] = None
    largest_share: Union[float, None] = None
    largest_case: str = ""


@dataclass(frozen=True)
class Geomean(_Strict):
    """The geometric mean of `target`/`baseline` over the `n` cases that are sound on both. `ratio` is None where n is 0."""

    kernel: str
    provider: str
    unit: str
    target: str
    baseline: str
    n: int
    ratio: Union[float, None]
    exclusions: tuple[Exclusion, ...] = ()


@dataclass(frozen=True)
class Refusal(_Strict):
    """Cases that could not be compared, and the one reason that they share."""

    kernel: str
    provider: str
    target: str
    baseline: str
    reason: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TestCell(_Strict):
    """What became of one test on one target."""

    __test__: ClassVar[bool] = False  # the name does not make it one for pytest
    target: str
    result: CaseResult


@dataclass(frozen=True, slots=True)
class ParityRow(_Strict):
    """One test over all targets. `on` names the targets that are behind; a target without the test has no cell.

    `occurrence` tells apart tests that carry the same id on one target: they are shown, never merged.
    """

    id: str
    occurrence: int
    kernel: str
    parity: Parity
    on: tuple[str, ...]
    cells: tuple[TestCell, ...]


@dataclass(frozen=True)
class KernelTests(_Strict):
    """The tests of one kernel on one target, counted by verdict."""

    kernel: str
    target: str
    counts: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class CodegenCell(_Strict):
    """What the compiler of one target made of one launch, for the architecture named in `compiled`."""

    target: str
    compiled: CompiledKernel


@dataclass(frozen=True)
class CodegenRow(_Strict):
    """One launch of a kernel function over the architectures. `config` spells its types, constants, warps and stages."""

    kernel: str
    function: str
    config: str
    cells: tuple[CodegenCell, ...]


@dataclass(frozen=True)
class WaiverUse(_Strict):
    """What became of a waiver: of the `covered` compiled kernels that it names, `used` broke the gate and were let through."""

    waiver: Waiver
    covered: int
    used: int


class Likeness(str, Enum):
    """How a launch that the JIT compiled on a card stands to what the compile stage made of it without one."""

    EQUAL = "equal"
    RESPECIALIZED = "specialized otherwise"
    ANOTHER_BINARY = "another binary"
    NOT_SEEN = "not seen"


@dataclass(frozen=True)
class Deviation(_Strict):
    """A launch on a card of which the compile stage made something else, or nothing."""

    kernel: str
    function: str
    architecture: str
    origin: str
    likeness: Likeness
    reason: str


@dataclass(frozen=True)
class Fidelity(_Strict):
    """Of `launched` kernels that the JIT compiled on the cards of `target`, `equal` are byte for byte what `against` made without a GPU.

    Both have the same Triton. Where nothing could be held against the launches, `against` is empty and `reason` says why.
    """

    target: str
    against: str
    triton: str
    launched: int
    equal: int = 0
    deviations: tuple[Deviation, ...] = ()
    reason: str = ""

    def count(self, likeness: Likeness) -> int:
        """How many of the launches stand so."""
        return self.equal if likeness is Likeness.EQUAL else sum(entry.likeness is likeness for entry in self.deviations)


@dataclass(frozen=True)
class DeviceSummary(_Strict):
    """One GPU, with the copy bandwidth measured on it in this run and the one that its driver's figures give."""

    index: int
    name: str
    architecture: str
    memory_bytes: int
    ceiling_gbps: Union[float, None] = None
    derived_gbps: Union[float, None] = None


@dataclass(frozen=True)
class TargetSummary(_Strict):
    """One target. The counts hold a number per verdict, of its tests, its measured points and its compiled kernels.

    `only_gates` of the kernels that failed did compile and could be launched; `gates` is what they were asked to meet, if anything.
    `complete`: it did all that it was asked to do, whatever came out. A test that crashed leaves it so, a stage that crashed does not.
    `attempts` are those before the one that the rest is about; what they had finished was kept.
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
    attempts: tuple[Attempt, ...] = ()

    @property
    def gpus(self) -> str:
        """The names of its GPUs, each once."""
        return " + ".join(dict.fromkeys(device.name for device in self.devices))


@dataclass(frozen=True)
class Difference(_Strict):
    """A fact that is not the same on all targets. `refuses` where it alone forbids to compare speeds."""

    name: str
    values: dict[str, str]
    refuses: bool = False


@dataclass(frozen=True)
class Comparison(_Strict):
    """All targets of one report. `sentence` is the verdict in words, `exit_code` the same as a number.

    `baseline` is the target that ratios are over: the first one that measured speeds; None where fewer than two did.
    """

    sentence: str
    exit_code: int
    targets: tuple[TargetSummary, ...]
    baseline: Union[str, None] = None
    differences: tuple[Difference, ...] = ()
    kernels: tuple[KernelTests, ...] = ()
    tests: tuple[ParityRow, ...] = ()
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
    schema_version: int = SCHEMA_VERSION
