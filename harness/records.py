"""Layer 0: the words of the house as frozen dataclasses, shared by the host and by the inside of the container.

Only the standard library is imported here. Everything that crosses the seam on disk (`raw/<target>/`) is one of these, written with
`dump` and read on the host through `collect`, which validates every field against the annotations below.
Units are in the names: `_s` seconds, `_ms` milliseconds, `_bytes` bytes, `_gbps` GB/s with G = 1e9.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Union

SCHEMA_VERSION = 1
# Nothing takes thirty years; and whatever is summed stays a number.
MOST_SECONDS = 1e9

Scalar = Union[int, float, str, bool, None]

# The exit code of an inside that cannot write its results (EX_IOERR of <sysexits.h>); in `harness/diagnose.py` it is infrastructure.
UNWRITABLE = 74

# In the place of a function's name: a point or a test that launched nothing, or not all of what it would have.
HOST_CODE = "(host code)"

# The property of a test that names the GPU it ran on, by its index; only where several shared the tests.
GPU_PROPERTY = "gpu"

# What pydantic, on the host, is asked to hold every record to; a plain dict, so that nothing has to be imported for it here.
_STRICT = {"extra": "forbid", "allow_inf_nan": False}


class Verdict(str, Enum):
    """What became of a case, a stage or a target, mildest first: `worst` relies on the order."""

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
        """Position in the order above; larger is worse."""
        return _SEVERITY[self]


_SEVERITY = {verdict: position for position, verdict in enumerate(Verdict)}


def worst(verdicts: list[Verdict], default: Verdict = Verdict.NOT_RUN) -> Verdict:
    """The most severe of `verdicts`; `default` where there is none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=default)


class Stage(str, Enum):
    """The processes that run where the GPU is, in the order in which they run."""

    FACTS = "facts"
    TEST = "test"
    BENCH = "bench"
    COMPILE = "compile"


@dataclass(frozen=True)
class Architecture:
    """A GPU that kernels are compiled for. `properties` is what Triton's `get_device_properties` would answer on that card, `torch_version`
    what `torch.version` would have there. `cache_bytes` is a cache between L2 and memory, which no driver tells; 0 where there is none."""

    __pydantic_config__ = _STRICT
    name: str
    backend: str
    arch: Union[int, str]
    warp_size: int
    properties: dict[str, int]
    torch_version: dict[str, str] = field(default_factory=dict)
    cache_bytes: int = 0


@dataclass(frozen=True)
class Which:
    """Some of the compiled kernels: those whose every name fits one of the shell patterns for it.

    `kernel` is the folder; `types` are those of the arguments as a report spells them, `*bf16 *fp32 i32`; `launched_by` is `bench` or
    `test`, for tests try odd sizes on purpose, of which nobody asks that they be fast.
    """

    __pydantic_config__ = _STRICT
    kernel: tuple[str, ...] = ("*",)
    function: tuple[str, ...] = ("*",)
    architecture: tuple[str, ...] = ("*",)
    types: tuple[str, ...] = ("*",)
    launched_by: tuple[str, ...] = ("*",)

    def covers(self, row: CompiledKernel) -> bool:
        """Whether `row` is one of them."""
        patterns = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return all(any(fnmatchcase(getattr(row, name), pattern) for pattern in some) for name, some in patterns.items())

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> Which:
        """Undo `dataclasses.asdict`."""
        return cls(**{name: tuple(patterns) for name, patterns in raw.items()})


@dataclass(frozen=True)
class Limits:
    """A value a gate, named as in `pyproject.toml`; None or False where the gate is open. docs/gates.md says what each means.

    At most: `spills` in registers a thread, `private_bytes` a thread. At least: `occupancy` as a share of a multiprocessor's warps (0 to
    1), `load_bits` and `store_bits` of the widest global access.
    """

    __pydantic_config__ = _STRICT
    spills: Union[int, None] = 0
    private_bytes: Union[int, None] = 0
    occupancy: Union[float, None] = None
    load_bits: Union[int, None] = None
    store_bits: Union[int, None] = None
    matrix: bool = False
    explicit_precision: bool = True


OPEN = Limits(spills=None, private_bytes=None, explicit_precision=False)


@dataclass(frozen=True)
class Rule:
    """Limits for some kernels. It can only tighten: of all limits that cover a kernel the strictest holds."""

    __pydantic_config__ = _STRICT
    which: Which
    limits: Limits


@dataclass(frozen=True)
class Waiver:
    """One gate that some kernels may break, and why. It shows in the report, also where nothing needs it."""

    __pydantic_config__ = _STRICT
    gate: str
    reason: str
    which: Which


@dataclass(frozen=True)
class Gates:
    """What the author of a kernel package asks of its generated code. `source` is the file that says so; empty for the defaults."""

    __pydantic_config__ = _STRICT
    limits: Limits = field(default_factory=Limits)
    rules: tuple[Rule, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    source: str = ""

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> Gates:
        """Undo `dataclasses.asdict`; trusted, as in `Job.load`."""
        rules = tuple(Rule(Which.restore(entry["which"]), Limits(**entry["limits"])) for entry in raw["rules"])
        waivers = tuple(Waiver(**{**entry, "which": Which.restore(entry["which"])}) for entry in raw["waivers"])
        return cls(Limits(**raw["limits"]), rules, waivers, raw["source"])


@dataclass(frozen=True)
class Job:
    """What the inside is told to do: `job.json`. Paths are as the inside sees them. Without `gates` generated code is not judged.

    `device_faults` are patterns of what a GPU's runtime prints when it aborts a process, and the verdict that each stands for.
    With `again` the bench stage measures everything twice, the second time in a process of its own: an A/A run. It ends a point at a
    half-width of `precision` (a share of the median; of the 95 % interval), or when its time is up.
    `visible_devices` is the variable that shows a process some of the cards: where it is named, tests and sweeps are shared between the
    cards, of which there are `gpus` (0: as many as are visible). `card_query` tells of each card what torch does not, a line of `card_rows`.
    """

    __pydantic_config__ = _STRICT
    run_id: str
    target: str
    stages: tuple[Stage, ...]
    kernels: str
    output: str
    interpret: bool = False
    require: Union[str, None] = None
    probe: tuple[str, ...] = ()
    driver_file: Union[str, None] = None
    benches: tuple[str, ...] = ("bench_*.py",)
    launches: tuple[str, ...] = ("bench", "test")
    pytest_args: tuple[str, ...] = ()
    quick: bool = False
    again: bool = False
    precision: float = 0.002
    test_limit_s: float = 300.0
    stage_limit_s: float = 3600.0
    workers: int = 0
    architectures: tuple[Architecture, ...] = ()
    gates: Union[Gates, None] = None
    device_faults: dict[str, Verdict] = field(default_factory=dict)
    probe_limit_s: float = 120.0
    visible_devices: Union[str, None] = None
    gpus: int = 0
    card_query: tuple[str, ...] = ()
    card_rows: str = ""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job that the host wrote; it is trusted, so this is a plain conversion."""
        raw = json.loads(path.read_text())
        raw["stages"] = tuple(Stage(stage) for stage in raw["stages"])
        raw["architectures"] = tuple(Architecture(**entry) for entry in raw["architectures"])
        for key in ("probe", "benches", "launches", "pytest_args", "card_query"):
            raw[key] = tuple(raw.get(key, ()))
        raw["gates"] = Gates.restore(raw["gates"]) if raw.get("gates") else None
        raw["device_faults"] = {pattern: Verdict(verdict) for pattern, verdict in raw.get("device_faults", {}).items()}
        return cls(**raw)


@dataclass(frozen=True)
class DeviceFacts:
    """One GPU as the inside sees it. `derived_gbps` is what the driver's memory clock and bus width give, where it tells them; `told` what
    the target's own question about its cards was answered with, such as a power limit."""

    __pydantic_config__ = _STRICT
    index: int
    name: str
    architecture: str
    memory_bytes: int
    multiprocessors: int
    cache_bytes: Union[int, None] = None
    uuid: Union[str, None] = None
    derived_gbps: Union[float, None] = None
    clock_mhz: Union[float, None] = None
    told: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """The environment that produced the numbers: `facts.json`."""

    __pydantic_config__ = _STRICT
    python: str
    platform: str
    torch: str
    triton: str
    runtime: str
    driver: Union[str, None]
    fp_fusion: Union[str, None]
    kernels_hash: str
    devices: tuple[DeviceFacts, ...] = ()
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class StageReport:
    """How one stage ended. `counts` holds a number per verdict; `seconds` is the stage's own wall time."""

    __pydantic_config__ = _STRICT
    stage: Stage
    verdict: Verdict
    seconds: float = 0.0
    reason: str = ""
    hint: str = ""
    exit_code: Union[int, None] = None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Stages:
    """`stages.json`: written before the first stage and after each, so that it is there whatever happens."""

    __pydantic_config__ = _STRICT
    run_id: str
    target: str
    finished: bool
    reports: tuple[StageReport, ...]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)  # there may be a million of them
class CaseResult:
    """One test of the kernel package. `id` is pytest's node id, the same text on every target; `kernel` is its folder."""

    __pydantic_config__ = _STRICT
    id: str
    kernel: str
    verdict: Verdict
    seconds: float = 0.0
    message: str = ""
    detail: str = ""
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One point of a sweep: a case (`softmax/N=1024`) under one provider (`triton`, `torch`, …) on one device.

    `value` is what the author's function returned, in `unit` (its ylabel); `low` and `high` are the author's own band, if any.
    `times_ms` are the raw timings behind the last `do_bench` call of the point, in the order in which they were taken, `rounds` how many
    of them each round gave; those of first rounds that did not count are `discarded`. `quiet`: the 95 % interval of their median is as
    narrow as the bench stage asks for; else its time was up. `flush_bytes` were overwritten before each, of a last-level cache of
    `cache_bytes` (None where nobody tells its size). `host_ms` is how long the host took to enqueue a call, the median; `graph_ms` how long
    the device takes for one of many in a graph, with a warm cache. `weak` says why they are not to be relied on.
    """

    __pydantic_config__ = _STRICT
    case: str
    kernel: str
    provider: str
    params: dict[str, Scalar]
    device: int
    verdict: Verdict
    unit: str = ""
    value: Union[float, None] = None
    low: Union[float, None] = None
    high: Union[float, None] = None
    median_ms: Union[float, None] = None
    p20_ms: Union[float, None] = None
    p80_ms: Union[float, None] = None
    times_ms: tuple[float, ...] = ()
    rounds: tuple[int, ...] = ()
    discarded: int = 0
    quiet: Union[bool, None] = None
    timer: str = ""
    flush_bytes: int = 0
    cache_bytes: Union[int, None] = None
    warmup: int = 0
    host_ms: Union[float, None] = None
    graph_ms: Union[float, None] = None
    bytes_moved: Union[int, None] = None
    weak: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Ceiling:
    """The bandwidth that a device-to-device copy reached in this very run: bytes read plus bytes written, over the median time."""

    __pydantic_config__ = _STRICT
    device: int
    bytes_moved: int
    median_ms: float
    p20_ms: float
    p80_ms: float
    when: str

    @property
    def gbps(self) -> float:
        """GB/s, G = 1e9."""
        return self.bytes_moved / self.median_ms * 1e-6


@dataclass(frozen=True)
class CardShare:
    """What one of several cards did of a stage that was shared between them: `cases` tests or points, from its worker's start to its end
    in `seconds`. `lost` says why it was given up before that; what it had not finished went to the others."""

    __pydantic_config__ = _STRICT
    stage: Stage
    device: int
    cases: int
    seconds: float
    lost: str = ""


@dataclass(frozen=True)
class CompiledKernel:
    """One launch, compiled for one architecture without a GPU, and what its binary says.

    `registers` are per thread (VGPRs on a wave machine); `spills` are 4-byte registers kept in memory; `shared_bytes` is shared memory or
    LDS; `load_bits` the widest global load; `matrix` the matrix instructions in it. None where the binary does not tell.

    `attributes` are what the JIT found out about arguments, such as `tt.divisibility=16`.
    `vgprs` and `agprs` are per thread and together `registers` (with `agprs`, the first are rounded up to fours); `sgprs` are per wave.
    `spill_store_bytes` and `spill_load_bytes` are what the code's instructions move for one thread, each counted once. `load_widths` and
    `store_widths` are those of global accesses in bits, narrowest first. `instructions` counts matrix instructions and asynchronous
    copies by name.
    `programs` of this kernel fit into one multiprocessor (SM, CU or WGP) at a time, of `resident_warps` warps in all, which is the share
    `occupancy` (0 to 1) of its slots; `limited_by` names each resource without room for one more. `compiler_waves` is what the compiler
    thinks that a SIMD holds: it knows neither shared memory, which is asked for at launch, nor that only whole programs start.

    `unnamed_precision` holds `file.py:line` of each product of fp32 operands that leaves its precision to the compiler. `broken` holds what
    was found and what is allowed for each gate that the kernel breaks, `waived` the reason for those of them that do not count.
    """

    __pydantic_config__ = _STRICT
    kernel: str
    function: str
    architecture: str
    verdict: Verdict
    origin: str = ""
    signature: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Scalar] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    num_warps: Union[int, None] = None
    num_stages: Union[int, None] = None
    seconds: float = 0.0
    binary_hash: str = ""
    binary_bytes: Union[int, None] = None
    registers: Union[int, None] = None
    spills: Union[int, None] = None
    stack_bytes: Union[int, None] = None
    shared_bytes: Union[int, None] = None
    load_bits: Union[int, None] = None
    matrix: tuple[str, ...] = ()
    vgprs: Union[int, None] = None
    agprs: Union[int, None] = None
    sgprs: Union[int, None] = None
    spill_store_bytes: Union[int, None] = None
    spill_load_bytes: Union[int, None] = None
    load_widths: Union[tuple[int, ...], None] = None
    store_widths: Union[tuple[int, ...], None] = None
    instructions: Union[dict[str, int], None] = None
    compiler_waves: Union[int, None] = None
    programs: Union[int, None] = None
    resident_warps: Union[int, None] = None
    occupancy: Union[float, None] = None
    limited_by: Union[tuple[str, ...], None] = None
    unnamed_precision: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    waived: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def types(self) -> str:
        """The types of its arguments, each once: `*bf16 *fp32 i32`."""
        return " ".join(dict.fromkeys(text for text in self.signature.values() if text != "constexpr"))

    @property
    def launched_by(self) -> str:
        """`test` where its origin is one of pytest's node ids, else `bench`; what both launch, the bench launches first."""
        return "test" if "::" in self.origin else "bench"

    @property
    def private_bytes(self) -> Union[int, None]:
        """Private memory of a thread beside that of its spilled registers: a slot each and one to move them through, in 16-byte frames."""
        if self.stack_bytes is None:
            return None
        slots = self.spills + 1 if self.spills else 0
        return max(0, self.stack_bytes - -(-4 * slots // 16) * 16)

    @property
    def only_gates(self) -> bool:
        """Whether it compiled, could be launched, and failed for its gates alone."""
        return self.verdict is Verdict.FAILED and bool(self.broken)


@dataclass(frozen=True)
class Environment:
    """What the engine ran the job in: kept in `run.json` so that a number can be traced to an image and to flags."""

    __pydantic_config__ = _STRICT
    engine: str
    python: str
    image: Union[str, None] = None
    image_id: Union[str, None] = None
    base_image: Union[str, None] = None
    built: bool = False
    prepare_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    weakened: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exit:
    """How the process or container ended, as its engine saw it; `diagnose` turns it into a verdict."""

    __pydantic_config__ = _STRICT
    code: Union[int, None]
    seconds: float
    oom_killed: bool = False
    timed_out: bool = False
    interrupted: bool = False
    error: str = ""


@dataclass(frozen=True)
class Attempt:
    """An earlier attempt at a run that was then taken up again: when it began, how long it took, and why it was not the last."""

    __pydantic_config__ = _STRICT
    started: str
    seconds: float
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class RunRecord:
    """The host's page about one target: `run.json`. `attempts` are those before the one that the rest is about; `shard` is `2/4` where it
    ran the second of four parts of the package."""

    __pydantic_config__ = _STRICT
    run_id: str
    target: str
    label: str
    verdict: Verdict
    reason: str
    hint: str
    started: str
    seconds: float
    commit: str
    kernels: str
    command: tuple[str, ...]
    environment: Union[Environment, None] = None
    exit: Union[Exit, None] = None
    attempts: tuple[Attempt, ...] = ()
    shard: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class TargetRun:
    """Everything that is known of one target after its run: `raw/<target>/` read, validated and joined.

    `compiled` is the compile stage's, without a GPU; `launched` what the JIT compiled on the card in the bench stage. `again` are the same
    points as `samples`, measured a second time: an A/A run. `shares` are those of the cards where several shared the work.
    """

    __pydantic_config__ = _STRICT
    record: RunRecord
    facts: Union[Facts, None] = None
    stages: tuple[StageReport, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    samples: tuple[Sample, ...] = ()
    again: tuple[Sample, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    compiled: tuple[CompiledKernel, ...] = ()
    launched: tuple[CompiledKernel, ...] = ()
    shares: tuple[CardShare, ...] = ()
    gates: Union[Gates, None] = None
    problems: tuple[str, ...] = ()


def to_json(record: Any) -> str:
    """A record as one line of strict JSON: no NaN, no infinity."""
    return json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False)


def dump(record: Any, path: Path) -> None:
    """Write a record so that a reader sees the old file or the new one, never half of it."""
    write_text(path, json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False, indent=1) + "\n")


def write_text(path: Path, text: Union[str, Iterable[str]]) -> None:
    """Replace a file's content in one step: temporary file, fsync, rename. A large text may come in pieces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name that cannot be guessed: the folder may be open to the code under test.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fchmod(handle, 0o644)
            os.fsync(handle)
        os.replace(temporary, path)  # noqa: PTH105 - a str, and the same on both halves
    finally:
        Path(temporary).unlink(missing_ok=True)
