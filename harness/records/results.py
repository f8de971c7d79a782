"""The results of a job: facts, stages, tests, points and compiled kernels. The inside writes them, the host reads them with `collect`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Union

from harness.records.bounds import (
    MOST_DEVICES,
    Bound,
    Bytes,
    Count,
    Few,
    Figure,
    Index,
    LongName,
    Name,
    Page,
    Parameter,
    Prose,
    Seconds,
    Word,
)
from harness.records.enums import SCHEMA_VERSION, STRICT, NotRun, Stage, Verdict


@dataclass(frozen=True)
class DeviceFacts:
    """One GPU as the inside sees it. `derived_gbps` is computed from the driver's memory clock and bus width, if known.

    `told` is what the target's own query of its GPUs returned, such as a power limit.
    """

    __pydantic_config__ = STRICT
    index: Index
    name: Word
    architecture: Word
    memory_bytes: Bytes
    multiprocessors: Count
    cache_bytes: Union[Bytes, None] = None
    uuid: Union[Word, None] = None
    derived_gbps: Union[Figure, None] = None
    clock_mhz: Union[Figure, None] = None
    told: Annotated[dict[Name, Prose], Few] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """The environment that produced the numbers: `facts.json`."""

    __pydantic_config__ = STRICT
    python: Word
    platform: Word
    torch: Word
    triton: Word
    runtime: Word
    driver: Union[Word, None]
    fp_fusion: Union[Word, None]
    kernels_hash: Word
    devices: Annotated[tuple[DeviceFacts, ...], Bound(longest=MOST_DEVICES)] = ()
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class StageReport:
    """How one stage ended. `counts` holds a number per verdict; `seconds` is the wall time of the stage.

    `deselected` counts the tests that pytest found and that an option or the package deselected, `left_out` those of the rest that a quick
    run left out. `not_run` counts what did not run by its reason. `doubts` say why the results are unreliable. `notes` are what a reader
    should know and what does not change the verdict. `files` are the results, each with the SHA-256 that the stage computed when it wrote
    them. `used_s` is how long the stage used its card: at least one test ran and did not compile, or the device was busy with what was
    timed; None if it uses none. `compiled_here` kernels were compiled by the stage, and `compiled_ahead` before it, on the machine that has
    the card.
    """

    __pydantic_config__ = STRICT
    stage: Stage
    verdict: Verdict
    seconds: Seconds = 0.0
    reason: Page = ""
    hint: Page = ""
    exit_code: Union[int, None] = None
    counts: Annotated[dict[Name, Count], Few] = field(default_factory=dict)
    deselected: Count = 0
    left_out: Count = 0
    not_run: Annotated[dict[Name, Count], Few] = field(default_factory=dict)
    doubts: Annotated[tuple[Prose, ...], Few] = ()
    notes: Annotated[tuple[Prose, ...], Few] = ()
    files: Annotated[dict[Name, Word], Few] = field(default_factory=dict)
    used_s: Union[Seconds, None] = None
    compiled_here: Count = 0
    compiled_ahead: Count = 0

    @property
    def explained(self) -> bool:
        """Whether the stage came to its end, and its own rows explain its verdict."""
        gaps = self.verdict is Verdict.INCOMPLETE and self.exit_code == 0 and bool(self.not_run)
        return self.verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR) or self.verdict.value in self.counts or gaps


@dataclass(frozen=True)
class Stages:
    """`stages.json`: written before the first stage and after each one, so that it exists whatever happens."""

    __pydantic_config__ = STRICT
    run_id: Name
    target: Name
    finished: bool
    reports: Annotated[tuple[StageReport, ...], Few]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)  # there may be a million of them
class CaseResult:
    """One test of the kernel package. `id` is pytest's node id, the same on every target; `kernel` is the row of the report that it is in.

    `not_run` says why a test has the verdict `not-run`, if that is known.
    """

    __pydantic_config__ = STRICT
    id: str
    kernel: str
    verdict: Verdict
    seconds: float = 0.0
    message: str = ""
    detail: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    not_run: Union[NotRun, None] = None


@dataclass(frozen=True)
class Sample:
    """One point of a sweep: a case (`softmax/N=1024`) under one provider (`triton`, `torch`, …) on one device.

    `value` is what the author's function returned, in `unit` (its ylabel); `low` and `high` are the author's own band, if any. `times_ms`
    are the raw timings of the point's last `do_bench` call, in order; `rounds` says how many came from each round. Early rounds may not
    count: their timings are `discarded`. Timings for which the device waited for the host are `late`. Neither kind is in `times_ms`.
    `quiet`: the 95% interval of the median is as narrow as the bench stage asks for; otherwise its time ran out. `flush_bytes` were
    overwritten before each timing, on a device whose last-level cache has `cache_bytes` (None if unknown). `host_ms` is the median time the
    host needs to enqueue a call. `graph_ms` is the device time of one call among many in a graph, with a warm cache. `weak` says why the
    timings are unreliable. `argument_bytes` are those of the distinct tensors that one call gave to Triton kernels, and `tuned` what its
    autotuners chose, by kernel.

    A measurement in a script has its `source`, `file.py:line`, and the names of the kernels that its first call `launched`.
    """

    __pydantic_config__ = STRICT
    case: LongName
    kernel: Name
    provider: Name
    params: Annotated[dict[Name, Parameter], Few]
    device: Index
    verdict: Verdict
    unit: Word = ""
    value: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    median_ms: Union[float, None] = None
    p20_ms: Union[float, None] = None
    p80_ms: Union[float, None] = None
    times_ms: tuple[float, ...] = ()
    rounds: tuple[Count, ...] = ()
    discarded: Count = 0
    late: Count = 0
    quiet: Union[bool, None] = None
    timer: Word = ""
    flush_bytes: Bytes = 0
    cache_bytes: Union[int, None] = None
    warmup: Count = 0
    host_ms: Union[float, None] = None
    graph_ms: Union[float, None] = None
    bytes_moved: Union[int, None] = None
    argument_bytes: Union[int, None] = None
    tuned: Annotated[dict[Name, Prose], Few] = field(default_factory=dict)
    weak: Prose = ""
    reason: Prose = ""
    source: Prose = ""
    launched: Annotated[tuple[Name, ...], Few] = ()


@dataclass(frozen=True)
class Ceiling:
    """What the device can do, measured in this run: the bandwidth of a copy, or with a `dtype` the speed of a matrix product.

    A copy's bytes are those read plus those written; a product's are its three matrices, and `flops` its operations. `tf32` is a dtype
    here: fp32 inputs, in the precision of the matrix units.
    """

    __pydantic_config__ = STRICT
    device: Index
    bytes_moved: int
    median_ms: float
    p20_ms: float
    p80_ms: float
    when: Word
    dtype: Name = ""
    flops: Union[int, None] = None

    @property
    def tflops(self) -> float:
        """The speed of a product in TFLOP/s, T = 1e12."""
        return (self.flops or 0) / self.median_ms * 1e-9

    @property
    def gbps(self) -> float:
        """The bandwidth in GB/s, G = 1e9."""
        return self.bytes_moved / self.median_ms * 1e-6


@dataclass(frozen=True)
class CardShare:
    """What one of several GPUs did of a shared stage: `cases` tests or points in `seconds`, from its worker's start to its end.

    `lost` says why the GPU was given up before the end. The others then did what it had not finished.
    """

    __pydantic_config__ = STRICT
    stage: Stage
    device: Index
    cases: Count
    seconds: Seconds
    lost: Prose = ""
