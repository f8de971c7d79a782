"""The results of a job: facts, stages, tests, points and compiled kernels. The inside writes them, the host reads them with `collect`."""

import math
from dataclasses import field
from enum import Enum
from typing import Annotated, Union

from warpwave.records.words import (
    MOST_DEVICES,
    SCHEMA_VERSION,
    Bound,
    Bytes,
    Count,
    Few,
    Figure,
    Index,
    LongName,
    Many,
    Name,
    NotRun,
    Page,
    Parameter,
    Prose,
    Seconds,
    Share,
    Stage,
    Verdict,
    Word,
    record,
    with_card,
)


@record(frozen=True)
class DeviceFacts:
    """One GPU as the inside sees it. `derived_gbps` is computed from the driver's memory clock and bus width, if known. `told` is what the
    target's own query of its GPUs returned, such as a power limit."""

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


@record(frozen=True)
class Facts:
    """The environment that produced the numbers: `facts.json`."""

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


@record(frozen=True)
class StageReport:
    """How one stage ended. `counts` holds a number per verdict; `seconds` is the wall time of the stage.

    `deselected` counts the tests that pytest found and that an option or the package deselected. `left_out` counts those of the rest, or of
    the bench stage the points, that a quick run or a budget left out; they would take about `left_out_s`. `out_of_time`: the budget was up
    before the stage had run all that it was to run, and `reached` has how many tests of each function ended by then, with the architecture
    in front if they were compiled. Of so many test `functions`, no test of those `untried` ended; both are 0 if none is left out. `not_run`
    counts what did not run by its reason. `doubts` say why the results are unreliable. `notes` are what a reader should know and what does
    not change the verdict. `files` are the results, each with the SHA-256 that the stage computed when it wrote them. `used_s` is how long
    the stage used its card: at least one test ran and did not compile, or the device was busy with what was timed; None if it uses none.
    `compiled_here` kernels were compiled by the stage, and `compiled_ahead` before it, on the machine that has the card.
    """

    stage: Stage
    verdict: Verdict
    seconds: Seconds = 0.0
    reason: Page = ""
    hint: Page = ""
    exit_code: Union[int, None] = None
    counts: Annotated[dict[Name, Count], Few] = field(default_factory=dict)
    deselected: Count = 0
    left_out: Count = 0
    left_out_s: Union[Seconds, None] = None
    out_of_time: bool = False
    reached: Annotated[dict[Page, Count], Many] = field(default_factory=dict)
    functions: Count = 0
    untried: Count = 0
    budget_s: Union[Seconds, None] = None
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


@record(frozen=True)
class Stages:
    """`stages.json`: written before the first stage and after each one, so that it exists whatever happens."""

    run_id: Name
    target: Name
    finished: bool
    reports: Annotated[tuple[StageReport, ...], Few]
    schema_version: int = SCHEMA_VERSION


@record(frozen=True, slots=True)  # there may be a million of them
class CaseResult:
    """One test of the kernel package. `id` is pytest's node id, the same on every target; `kernel` is the row of the report that it is in.
    `not_run` says why a test has the verdict `not-run`, if that is known."""

    id: str
    kernel: str
    verdict: Verdict
    seconds: float = 0.0
    message: str = ""
    detail: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    not_run: Union[NotRun, None] = None


@record(frozen=True)
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

    `launched` are the names of the Triton functions that its first call launched, if `launches_noted`. A measurement in a script has its
    `source`, `file.py:line`.
    """

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
    launches_noted: bool = False


@record(frozen=True)
class Ceiling:
    """What the device can do, measured in this run: the bandwidth of a copy, or with a `dtype` the speed of a matrix product. A copy's
    bytes are those read plus those written; a product's are its three matrices, and `flops` its operations. `tf32` is a dtype here: fp32
    inputs, in the precision of the matrix units."""

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


@record(frozen=True)
class CardShare:
    """What one of several GPUs did of a shared stage: `cases` tests or points in `seconds`, from its worker's start to its end. `lost` says
    why the GPU was given up before the end. The others then did what it had not finished."""

    stage: Stage
    device: Index
    cases: Count
    seconds: Seconds
    lost: Prose = ""


MOST_FINDINGS = 1000  # of one test stage
Sizes = Annotated[tuple[int, ...], Bound(longest=64)]


class Defect(str, Enum):
    """What is wrong with an access to memory.

    `OUT_OF_BOUNDS`: outside of the storage of every tensor that the launch was given, or of the tensor that the pointer came from.
    `UNINITIALISED`: nobody wrote what is read. `RACE`: two programs of one launch, at least one of which writes, and nothing orders them;
    in machine code, two waves of a program, too. `EARLY`: a result is used before its wave has waited for it. `ORDER`: an element has
    another value if waves and workgroups run in another order; on a card, if the kernel is compiled for another schedule. What is in LDS or
    in registers, `EARLY` and `ORDER` are seen in machine code only. `UNDEFINED`: what a masked load leaves undefined decides what is
    stored, or where; that is seen in the kernel's first code, and no lane or program is known.
    """

    OUT_OF_BOUNDS = "out-of-bounds"
    UNINITIALISED = "uninitialised-read"
    RACE = "race"
    EARLY = "used-before-wait"
    ORDER = "depends-on-order"
    UNDEFINED = "undefined-lanes"


@record(frozen=True)
class Finding:
    """One defect of one line of a kernel, with its first example.

    `case` is the test in which it was found, `kernel` the row of the report that the test is in, `function` what was launched. `access` is
    `load`, `store` or `atomic`; or `read`, of a function of torch, which has no lanes and no program; or, on a card, the memory, `shared`
    or `global`. `tensor` is the name of the argument, of `shape`; `index` is the element that was touched, flat and by dimension. `lane` is
    the position in the block of `block` lanes, flat; `lanes` counts those of the access that are wrong alike. `program` is the id of the
    program. `text` is the line `line` of `file`. `other` says what a race is with, or which kernel wrote other elements. `times` counts the
    accesses of this test with the same defect at this line.
    """

    case: LongName
    kernel: Name
    function: Name
    defect: Defect
    access: Word
    tensor: Name
    shape: Sizes
    index: int
    indices: Sizes
    lane: Count
    lanes: Count
    block: Sizes
    program: Annotated[tuple[int, ...], Bound(longest=3)]
    file: Prose
    line: Count
    text: Prose = ""
    other: Prose = ""
    times: Count = 1

    @property
    def place(self) -> str:
        """`file.py:12`, or nothing if the line is not known."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else ""

    @property
    def at(self) -> str:
        """`add at file.py:12`, or the kernel alone."""
        return f"{self.function} at {self.place}" if self.place else self.function

    @property
    def example(self) -> str:
        """The first access that has the defect, in words."""
        if self.defect is Defect.UNDEFINED or self.access in ("shared", "global"):
            return self.other
        if self.defect is Defect.ORDER:
            return f"{self.tensor}{list(self.indices)}, of shape {list(self.shape)}, is {self.other}"
        if not self.program:
            rest = (f", nor {self.lanes - 1} more" if self.lanes > 1 else "") + (f"; {self.other}" if self.other else "")
            return f"reads {self.tensor}{list(self.indices)}, of shape {list(self.shape)}, which nobody wrote{rest}"
        by_dimension = f" = [{', '.join(map(str, self.indices))}]" if len(self.indices) > 1 else ""
        lanes = f"lane {self.lane} of {math.prod(self.block)}" + (f" and {self.lanes - 1} more" if self.lanes > 1 else "")
        program = f"program ({', '.join(map(str, self.program))})"
        where = f"{self.tensor}[{self.index}]{by_dimension}, of shape {list(self.shape)}" if self.tensor else "no tensor of the launch"
        other = f"; {self.other}" if self.other else ""
        # An element with such an index is inside, but not all of its bytes; or a stride is 0.
        is_past = self.defect is Defect.OUT_OF_BOUNDS and self.tensor and 0 <= self.index < math.prod(self.shape)
        said = f"past the end of {self.tensor}, of shape {list(self.shape)}" if is_past else f"of {where}"
        return f"{self.access} {said}: {lanes}, {program}{other}"

    @property
    def sentence(self) -> str:
        """The finding in words, with its place."""
        return f"{self.defect.value} in {self.at}: {self.example}{f': {self.text}' if self.text else ''}"


MOST_PROFILES = 500  # of one test stage
MOST_LINES = 100  # of one profile
COUNTERS = (
    *("instructions", "valu", "transcendental", "vector_cycles", "vector_lanes", "lanes_off", "matrix", "matrix_cycles", "flop", "salu"),
    *("scalar_memory", "branches", "barriers", "waits", "memory", "atomics", "asked_bytes", "lines64", "least64", "lines128", "least128"),
    *("read_bytes", "written_bytes", "lds", "lds_bytes", "lds_cycles", "least_lds_cycles", "scratch", "scratch_bytes"),
)
Counters = Annotated[dict[Name, Count], Few]


@record(frozen=True)
class ProfiledLine:
    """The counters of the line `line` of `file`, whose text is `text`."""

    file: Prose
    line: Count
    text: Prose
    counters: Counters

    @property
    def place(self) -> str:
        """`file.py:12`, or nothing if the line is not known."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else ""

    @property
    def waste(self) -> int:
        """What its accesses cost over the least for their bytes, in bytes: lines of memory, cycles of LDS (of 128 bytes), and spills."""
        has = self.counters.get
        lines = 64 * (has("lines64", 0) - has("least64", 0))
        return lines + 128 * (has("lds_cycles", 0) - has("least_lds_cycles", 0)) + has("scratch_bytes", 0)


@record(frozen=True)
class Profile:
    """What the emulator counted of one kernel in one test, over all of its `launches`.

    `case` is the test, `kernel` the row of the report that the test is in, `function` what was launched. `counters` are totals, `lines`
    those of the lines of the source that cost most; docs/guides/profile.md explains each. `matrix` counts matrix instructions by name.
    `bounds` has the least time in microseconds that each resource of the card needs, computed from the counts: no card has run it.
    `registers` are a lane's, `shared_bytes` the LDS of a program, and `occupancy` the share (0 to 1) of the card's warps that fit; nothing
    else fits because of `limited_by`. `configuration` is what an autotuner launched, as Triton writes it; empty without one.
    """

    case: LongName
    kernel: Name
    function: Name
    architecture: Name
    card: Name
    launches: Count
    programs: Count
    waves: Count
    counters: Counters
    matrix: Counters = field(default_factory=dict)
    bounds: Annotated[dict[Name, Figure], Few] = field(default_factory=dict)
    lines: Annotated[tuple[ProfiledLine, ...], Few] = ()
    registers: Count = 0
    shared_bytes: Bytes = 0
    occupancy: Union[Share, None] = None
    limited_by: Annotated[tuple[Name, ...], Few] = ()
    configuration: Prose = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def bound(self) -> str:
        """`at least 41 µs by memory`: the resource that needs the most time; empty if none needs any."""
        by = max(self.bounds, key=lambda name: self.bounds[name], default="")
        return f"at least {self.bounds[by]:.3g} µs by {by}" if by else ""


@record(frozen=True)
class CompiledKernel:
    """One launch, compiled for one architecture without a GPU, and the figures of its binary.

    A figure is None if the binary does not have it.

    `seconds` is the CPU time of its compilation, with that of programs that the compiler started, and `peak_bytes` the memory that this
    process took for it beyond what it had; 0 and None if nobody knows. `against_base` has the gates that compare these with an earlier run,
    each with the most that is allowed, in times of the earlier figure.

    `registers` are per thread (on a wave machine, VGPRs). `spills` are 4-byte registers kept in memory. `shared_bytes` is shared memory or
    LDS. `load_bits` is the widest global load. `matrix` names the matrix instructions.

    `attributes` are what the JIT inferred about arguments, such as `tt.divisibility=16`. `options` are what the launch asks of the compiler
    beside warps and stages, such as `waves_per_eu`, unless it is the compiler's default. `vgprs` and `agprs` are per thread and add up to
    `registers` (with `agprs`, `vgprs` are rounded up to a multiple of four); `sgprs` are per wave. `spill_store_bytes` and
    `spill_load_bytes` are what the instructions move for one thread, each instruction counted once. `load_widths` and `store_widths` are
    the widths of global accesses in bits, narrowest first. `instructions` counts matrix instructions and asynchronous copies by name.
    `programs` of this kernel fit into one multiprocessor (SM, CU or WGP) at a time. They have `resident_warps` warps in total, which is the
    share `occupancy` (0 to 1) of the warp slots. `limited_by` names each resource without room for another program. `compiler_waves` is the
    compiler's own estimate per SIMD. It ignores shared memory, which is requested at launch, and that only whole programs start.

    `source` is `file.py:line` of the function's `def`, relative to the package's root if it is in there. `card` is the name that
    people know the architecture by.

    `unnamed_precision` holds `file.py:line` of each product of fp32 operands that leaves its precision to the compiler. `in_flight` has a
    sentence for each barrier at which accesses to shared memory (LDS) are in flight that another wave can overtake, `published_early` one
    for each place that publishes data before a cache has written it back, `undefined_lanes` one for each masked load whose undefined lanes
    decide what is stored, or where. `order` has the accesses to memory and what orders them, as they stand in the code.

    `broken` holds, for each gate that the kernel breaks, what was
    found and what is allowed, and `advice` what was found for the gates that only advise. `waived` holds the reasons of the waivers that
    apply. `unjudged` says why a gate that was asked for could not be judged. `not_run` says why a case is a row that compiled nothing; a
    module that does not import is an `error`, and has it too. A configuration that an autotuner would discard has all of its figures, and
    is `not-run` because of that.
    """

    kernel: Name
    function: Name
    architecture: Name
    verdict: Verdict
    origin: LongName = ""
    signature: Annotated[dict[Name, Prose], Many] = field(default_factory=dict)
    constants: Annotated[dict[Name, Parameter], Many] = field(default_factory=dict)
    attributes: Annotated[dict[Name, Prose], Many] = field(default_factory=dict)
    num_warps: Union[Count, None] = None
    num_stages: Union[Count, None] = None
    options: Annotated[dict[Name, Parameter], Many] = field(default_factory=dict)
    seconds: Seconds = 0.0
    peak_bytes: Union[Bytes, None] = None
    against_base: Annotated[dict[Name, Figure], Few] = field(default_factory=dict)
    binary_hash: Word = ""
    binary_bytes: Union[Count, None] = None
    registers: Union[Count, None] = None
    spills: Union[Count, None] = None
    stack_bytes: Union[Count, None] = None
    shared_bytes: Union[Count, None] = None
    load_bits: Union[Count, None] = None
    matrix: Annotated[tuple[Name, ...], Many] = ()
    vgprs: Union[Count, None] = None
    agprs: Union[Count, None] = None
    sgprs: Union[Count, None] = None
    spill_store_bytes: Union[Count, None] = None
    spill_load_bytes: Union[Count, None] = None
    load_widths: Union[Annotated[tuple[int, ...], Few], None] = None
    store_widths: Union[Annotated[tuple[int, ...], Few], None] = None
    instructions: Union[Annotated[dict[Name, int], Many], None] = None
    compiler_waves: Union[Count, None] = None
    programs: Union[Count, None] = None
    resident_warps: Union[Count, None] = None
    occupancy: Union[Share, None] = None
    limited_by: Union[Annotated[tuple[Name, ...], Few], None] = None
    unnamed_precision: Annotated[tuple[Prose, ...], Many] = ()
    in_flight: Annotated[tuple[Prose, ...], Many] = ()
    published_early: Annotated[tuple[Prose, ...], Many] = ()
    undefined_lanes: Annotated[tuple[Prose, ...], Many] = ()
    order: Page = ""
    broken: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    advice: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    waived: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    unjudged: Annotated[dict[Name, Prose], Bound(longest=20)] = field(default_factory=dict)
    reason: Prose = ""
    not_run: Union[NotRun, None] = None
    source: Prose = ""
    card: Name = ""

    @property
    def hardware(self) -> str:
        """The architecture as reports show it: `gfx942 (MI300X)`."""
        return with_card(self.architecture, self.card)

    @property
    def types(self) -> str:
        """The distinct types of its arguments: `*bf16 *fp32 i32`."""
        return " ".join(dict.fromkeys(text for text in self.signature.values() if text != "constexpr"))

    @property
    def launched_by(self) -> str:
        """`test` if the origin is a pytest node id, else `bench`. If both launch a kernel, the bench launched it first."""
        return "test" if "::" in self.origin else "bench"

    @property
    def private_bytes(self) -> Union[int, None]:
        """Private memory per thread beyond spilled registers, in bytes. Spills need a slot each and one more, in frames of 16 bytes."""
        if self.stack_bytes is None:
            return None
        slots = self.spills + 1 if self.spills else 0
        return max(0, self.stack_bytes - -(-4 * slots // 16) * 16)

    @property
    def was_compiled(self) -> bool:
        """Whether a compiler saw it: it is no test or point that did not run."""
        return self.verdict is not Verdict.NOT_RUN or self.is_discarded

    @property
    def is_discarded(self) -> bool:
        """Whether it is a configuration that an autotuner would not choose: it is unclean, and another one is clean."""
        return self.not_run is NotRun.DISCARDED

    @property
    def only_gates(self) -> bool:
        """Whether it compiled and could be launched, and failed only because of its gates."""
        return self.verdict is Verdict.FAILED and bool(self.broken)
