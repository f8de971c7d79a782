"""Layer 1: the data of a comparison, as frozen dataclasses, and so the shape of `comparison.json`. Imports `records` only.

A comparison holds everything that a renderer shows. So a report can be drawn again, offline, from `comparison.json` alone. A `target` here
is the name that reports show: the target's name, followed by ` (2)` if two runs have the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Union

from warpwave.records import (
    EMULATED,
    SCHEMA_VERSION,
    Attempt,
    CaseResult,
    Ceiling,
    CompiledKernel,
    Environment,
    Facts,
    Finding,
    Gates,
    Hardware,
    NotRun,
    Profile,
    Scalar,
    Stage,
    StageReport,
    Verdict,
    Waiver,
    with_card,
)
from warpwave.records.selection import FOR_TIME
from warpwave.records.words import plural

# How a test, kernel or stage ends that ran and did not pass.
FAILING = (Verdict.FAILED, Verdict.ERROR, Verdict.TIMEOUT, Verdict.CRASHED, Verdict.OOM, Verdict.GPU_HANG)


def failures(*counts: Mapping[str, int]) -> int:
    """Return how many failures are in counts by verdict."""
    return sum(found.get(verdict.value, 0) for found in counts for verdict in FAILING)


def is_dead(row: CompiledKernel) -> bool:
    """Return whether no GPU can run it. A kernel that only breaks its gates can run."""
    return row.verdict in FAILING and not row.only_gates


# How something ends that ran to its end, with whatever result.
COMPLETE = (Verdict.PASSED, Verdict.FAILED, Verdict.ERROR)
_MOST_NAMES = 8  # different GPU names shown per target


class Strict:
    """What pydantic demands of each dataclass when a comparison is read back: no unknown field, no infinite number."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}


def full_name(kernel: str, function: str) -> str:
    """Return a kernel's function, with the kernel in front where the function's name does not say it."""
    return function if function.lstrip("_").startswith(kernel) else f"{kernel} {function}"


@dataclass(frozen=True)
class CodegenCell(Strict):
    """What one target's compiler made of one launch, for the architecture in `compiled`."""

    target: str
    compiled: CompiledKernel


@dataclass(frozen=True)
class CodegenRow(Strict):
    """One launch of a kernel function on all architectures. `config` holds its types, constants, warps and stages."""

    kernel: str
    function: str
    config: str
    cells: tuple[CodegenCell, ...]


@dataclass(frozen=True)
class WaiverUse(Strict):
    """How a waiver was used: it names `covered` compiled kernels, of which `used` broke the gate and were let through."""

    waiver: Waiver
    covered: int
    used: int


@dataclass(frozen=True)
class Fidelity(Strict):
    """The JIT compiled `launched` kernels on the GPUs of `target`; `equal` are byte for byte what `against` made without a GPU.

    `differing` has a sentence on each of the others. Both use the same Triton. If nothing could be compared with the launches, `against` is
    empty and `reason` says why.
    """

    target: str
    against: str
    triton: str
    launched: int
    equal: int = 0
    differing: tuple[str, ...] = ()
    reason: str = ""


class Change(str, Enum):
    """How the speed on a target compares with that on the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    ONE_SIDED = "one-sided"
    REFUSED = "refused"


@dataclass(frozen=True)
class Cell(Strict):
    """One number: a case under one provider on one GPU. `value` is None unless the verdict is `passed`.

    `share` is the value over the ceiling that `share_of` names, measured on that GPU in the same run: `the copy`, or for operations a
    second `the bf16 product` of the card's library. `flops_per_byte` are the operations for each byte of the tensors that its kernels were
    given. `launch_bound`: it is so small that waiting for the launch, not the kernel, decides how near the ceiling it comes.
    `verified`: the kernel's tests passed on that target. `suspect`: the value exceeds the ceiling by more than memory can. `reason`
    explains any of these. `weak` says why the timings are unreliable. `half_width` is half the 95% interval of their median, over the
    median; `quiet` is whether that is as narrow as the bench stage asks for. `graph_ms` is the time of one launch among many in a graph,
    with a warm cache: do not derive a memory bandwidth from it. `tuned` is what autotuners chose, by function.
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
    share_of: str = ""
    launch_bound: bool = False
    flops_per_byte: Union[float, None] = None
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
    tuned: dict[str, str] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether the value may be used in a ratio."""
        return self.value is not None and self.verified and not self.suspect


@dataclass(frozen=True)
class Ratio(Strict):
    """`target`'s value over `baseline`'s. None, with the reason, if the two cannot be compared.

    `speedup` is the baseline's median time over the target's, whatever the unit. It lies between `low` and `high` with 95% confidence.
    `change` is `faster` or `slower` if that whole interval is further from 1 than `threshold`, `same` if none of it is.
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
class Row(Strict):
    """One case under one provider, on all targets."""

    kernel: str
    case: str
    provider: str
    unit: str
    params: dict[str, Scalar]
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...] = ()


@dataclass(frozen=True)
class Noise(Strict):
    """What an A/A run of a target found: `n` points measured twice. A change below `threshold` (0.02 is 2%) is noise on it.

    95% of the medians moved by at most `moved`. `largest` is the largest distance of a ratio's interval from 1, and `largest_case` its
    case. `enough`: `n` is large enough. If not, the threshold is at least the one assumed without an A/A run.
    """

    target: str
    n: int
    enough: bool
    threshold: float
    moved: float
    largest: float
    largest_case: str


@dataclass(frozen=True)
class Speed(Strict):
    """The sweep of one kernel and provider on one GPU, condensed to `n` numbers; `left_out` were invalid or suspect.

    Each share belongs to the same point as its value. `busy` and `busy_share` are medians over the cases that are not launch-bound;
    `launch_bound` counts the others.
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
    share_of: str = ""
    median: Union[float, None] = None
    median_share: Union[float, None] = None
    busy: Union[float, None] = None
    busy_share: Union[float, None] = None
    launch_bound: int = 0


@dataclass(frozen=True)
class Geomean(Strict):
    """The geometric mean of `target`/`baseline` over the `n` cases that are sound on both. `ratio` is None if `n` is 0."""

    kernel: str
    provider: str
    unit: str
    target: str
    baseline: str
    n: int
    ratio: Union[float, None]


@dataclass(frozen=True)
class Since(Strict):
    """How the speed of a kernel and provider on a target changed since the run of `commit`.

    `speedup` is the geometric mean, over the `n` cases of both runs, of the earlier median time over this one; None without such a case.
    `changes` counts all cases by their verdict.
    """

    kernel: str
    provider: str
    target: str
    n: int
    speedup: Union[float, None]
    changes: dict[str, int]
    commit: str = ""


@dataclass(frozen=True)
class Portability(Strict):
    """Pennycook's performance portability of a kernel: the harmonic mean of the targets' `efficiencies`, 0 if one target has none.

    A target's efficiency is the geometric mean of its shares of the ceiling, over the `n` cases that are sound on all targets.
    """

    kernel: str
    provider: str
    efficiencies: dict[str, float]
    n: int
    value: float


@dataclass(frozen=True)
class Refusal(Strict):
    """Cases that could not be compared, and the reason they share."""

    kernel: str
    provider: str
    target: str
    baseline: str
    reason: str
    cases: tuple[str, ...]


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
class Cause(Strict):
    """Why `count` tests or points could not be checked, one of which is the `example`; `text` says it, and `hint` what to do."""

    why: NotRun
    count: int
    text: str
    hint: str
    example: str


@dataclass(frozen=True)
class TargetSummary(Strict):
    """One target. `tests`, `points` and `compiled` are counts per verdict, of tests, measured points and compiled kernels. `tests_not_run`
    and `compiled_not_run` count those with the verdict `not-run` by their reason. `host_code` and `host_code_not_run` count the cases of
    the compile stage that did not run to their end, which are no binaries.

    `only_gates` counts failed kernels that compiled and could be launched. `gates` is what kernels had to meet, if anything. `peers` are
    the benchmark providers that the compile stage left out. `complete`: it did everything it was asked to do, whatever the result. A
    crashed test does not change that, a crashed stage does. `attempts` are the earlier attempts. Whatever they finished was kept.
    `disagreements` are between the GPUs that shared the work. `narrowed` are the options by which the run had some of the package's tests
    only, and `chosen` says in lines what they chose and why. `emulated` names the architecture whose machine code a CPU executed; empty on
    a real card, and `card` is the name that people know it by. `suspected` counts the tests that failed only in the emulator. `loads`
    counts those that load a file of benchmarks: warpwave adds one for each. `unchecked` lists why tests and points were not checked, which
    is no failure. `card_use` is None if no card of this machine was locked. `repository` is the https address of the remote, and behind `#`
    the path of the package in it. `sanitized`: its tests checked what kernels do to memory.
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
    host_code: dict[str, int] = field(default_factory=dict)
    host_code_not_run: dict[str, int] = field(default_factory=dict)
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
    unchecked: tuple[Cause, ...] = ()
    card_use: Union[CardUse, None] = None
    repository: str = ""
    card: str = ""
    sanitized: bool = False

    @property
    def deselected(self) -> int:
        """Tests that pytest found and that an option or the package deselected. Two stages may have found the same."""
        return max((report.deselected for report in self.stages), default=0)

    @property
    def is_untested(self) -> bool:
        """Whether it was asked for tests, and found none that somebody wrote, though it had the time to look."""
        return not self.tests and any(report.stage is Stage.TEST and not report.out_of_time for report in self.stages)

    @property
    def is_late(self) -> bool:
        """Whether it was asked for tests, and its budget was up before it knew of any."""
        return not self.tests and any(report.stage is Stage.TEST and report.out_of_time for report in self.stages)

    @property
    def left_out(self) -> int:
        """Tests that a quick run or a budget left out: of the test stage, unless that had no time to find them."""
        by_stage = {report.stage: report.left_out for report in self.stages if self.tests or report.left_out or not report.out_of_time}
        return by_stage.get(Stage.TEST, by_stage.get(Stage.COMPILE, 0))

    @property
    def left_out_for(self) -> str:
        """The option that left them out."""
        return next((option for option in self.narrowed if option in FOR_TIME), "--budget")

    @property
    def left_out_s(self) -> float | None:
        """About how long all stages would take for what they left out, in s; None if nothing was measured."""
        return sum(filter(None, (report.left_out_s for report in self.stages))) or None

    @property
    def gpus(self) -> str:
        """The distinct names of its GPUs, the first of them if there are many."""
        names = list(dict.fromkeys(device.name for device in self.devices))
        return " + ".join(names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], f"{len(names) - _MOST_NAMES} more"])

    @property
    def hardware(self) -> str:
        """The names of its GPUs, or the architecture that was emulated: `gfx942 (MI300X), emulated`."""
        return f"{with_card(self.emulated, self.card)}, {EMULATED}" if self.emulated else self.gpus


@dataclass(frozen=True)
class Difference(Strict):
    """A fact that differs between targets. `refuses`: this alone forbids comparing speeds."""

    name: str
    values: dict[str, str]
    refuses: bool = False


class Parity(str, Enum):
    """How one test did on the targets that ran tests. A gap counts only if another target passed the test."""

    ALL_PASSED = "all-passed"
    FAILED_ON = "failed-on"
    MISSING_ON = "missing-on"
    SKIPPED_ON = "skipped-on"
    XFAILED_ON = "xfailed-on"
    KNOWN_ON = "known-on"
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

    @property
    def name(self) -> str:
        """The id, with the occurrence behind it if it is not the first."""
        return self.id if self.occurrence == 1 else f"{self.id} ({self.occurrence})"


@dataclass(frozen=True, slots=True)
class TestFinding(Strict):
    """What the sanitizer found in one test on one target."""

    __test__: ClassVar[bool] = False
    target: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class TestProfile(Strict):
    """What the emulator counted of one kernel in one test on one target."""

    __test__: ClassVar[bool] = False
    target: str
    profile: Profile


@dataclass(frozen=True)
class KernelTests(Strict):
    """The tests of one kernel on one target, counted by verdict, and those that did not run by their reason."""

    kernel: str
    target: str
    counts: dict[str, int]
    seconds: float
    not_run: dict[str, int] = field(default_factory=dict)


class Standing(str, Enum):
    """What became of an entry of the known failures. `CHANGED`: it fails for another reason. `ADDED`: only the judged change has it."""

    KNOWN = "known"
    FIXED = "passes now"
    GONE = "is gone"
    CHANGED = "fails for another reason"
    EXPIRED = "has expired"
    ADDED = "is added by this change"
    UNSEEN = "was not run"


@dataclass(frozen=True)
class KnownUse(Strict):
    """An entry of the known failures, as its file has it, what became of it, and on which targets."""

    entry: str
    standing: Standing
    targets: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True)
class KnownFailures(Strict):
    """The list of known failures that a report was given, and what its exit code depends on.

    `source` is the file or the run. `fail_on` is `new`, `worse`, `any` or `nothing`. `strict`: an entry that is not needed any more fails.
    """

    source: str = ""
    uses: tuple[KnownUse, ...] = ()
    fail_on: str = "new"
    strict: bool = False

    def of(self, *standings: Standing) -> tuple[KnownUse, ...]:
        """Return the entries of which this became."""
        return tuple(use for use in self.uses if use.standing in standings)

    @property
    def count(self) -> int:
        """How many entries fail as listed."""
        return len(self.of(Standing.KNOWN))

    @property
    def words(self) -> str:
        """`3 known failures`."""
        return plural(self.count, "known failure")

    @property
    def unneeded(self) -> tuple[KnownUse, ...]:
        """The entries of what passes now, or is not there any more."""
        return self.of(Standing.FIXED, Standing.GONE)


class Fit(str, Enum):
    """Whether a kernel function can run on a card, as far as its code says, from good to bad. `ADVICE`: it can, and something is to see."""

    RUNS = "runs"
    ADVICE = "runs, with advice"
    UNKNOWN = "not known"
    BREAKS = "breaks a gate"
    RAISES = "raises"
    UNLAUNCHABLE = "cannot launch"
    UNCOMPILED = "does not compile"

    @property
    def gravity(self) -> int:
        """Its place in this order."""
        return list(Fit).index(self)

    @property
    def cannot_run(self) -> bool:
        """Whether it does not run on the card."""
        return self in (Fit.RAISES, Fit.UNLAUNCHABLE, Fit.UNCOMPILED)


@dataclass(frozen=True)
class GridCell(Strict):
    """A kernel function on a card: the gravest of its `n` configurations. `cause` is why it is not simply `runs`, in two words; `reason`
    is the whole sentence. `registers` are those a thread has, the most of all; `occupancy` is the least. None if no binary says it."""

    fit: Fit
    n: int = 0
    cause: str = ""
    reason: str = ""
    registers: Union[int, None] = None
    occupancy: Union[float, None] = None


@dataclass(frozen=True)
class Right(Strict):
    """The tests of a kernel function on one target. `known` fail as listed, `others` neither passed nor failed; `suspected` of the failed
    ones only the emulator has seen."""

    passed: int = 0
    failed: int = 0
    suspected: int = 0
    others: int = 0
    known: int = 0


@dataclass(frozen=True)
class GridRow(Strict):
    """A kernel function: whether its results are right, by target of the grid, and whether it can run, by card of the grid.

    `function` is empty for a kernel of which nothing was compiled. None if its tests, or its code, are not there.
    """

    kernel: str
    function: str
    source: str
    right: tuple[Union[Right, None], ...]
    cells: tuple[Union[GridCell, None], ...]

    @property
    def name(self) -> str:
        """The function, with the kernel in front where its name does not say it."""
        return full_name(self.kernel, self.function) if self.function else self.kernel

    @property
    def failed(self) -> int:
        """How many tests failed on all targets together."""
        return sum(right.failed for right in self.right if right)

    @property
    def gravest(self) -> Fit:
        """Its worst fit."""
        return max((cell.fit for cell in self.cells if cell), key=lambda fit: fit.gravity, default=Fit.UNKNOWN)


@dataclass(frozen=True)
class Grid(Strict):
    """Every kernel function, the worst first. `where` has the targets that ran tests, each with its card or the word `interpreter`."""

    cards: tuple[Hardware, ...] = ()
    where: dict[str, str] = field(default_factory=dict)
    rows: tuple[GridRow, ...] = ()


@dataclass(frozen=True)
class OnCard(Strict):
    """A kernel on one card: its tests, and what its own provider reaches. Of several units it is the one that falls short the most.

    `value` is the median over the cases that are not launch-bound, and `share` its share of what `of` names: `copy`, `product` or `peer`.
    `launch_bound`: no case is large enough for a share.
    """

    target: str
    passed: int = 0
    failed: int = 0
    others: int = 0
    share: Union[float, None] = None
    of: str = ""
    value: Union[float, None] = None
    unit: str = ""
    verified: bool = False
    launch_bound: bool = False


@dataclass(frozen=True)
class KernelOnCards(Strict):
    """A kernel on all cards, and the ratio of each card to the baseline. `cause` says in five words why its largest gap is there, on the
    target `gap_on`; both are empty without a gap."""

    kernel: str
    cards: tuple[OnCard, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    gap_on: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Comparison(Strict):
    """All targets of one report. `sentence` is the verdict in words, `exit_code` the verdict as a number.

    `baseline` is the target that ratios divide by: the first that measured speeds. It is None if fewer than two did.
    `since` says what changed since the base run, if one was given. `known` says what became of the known failures, if a list was given.
    `grid` says of each kernel function whether it is right, and on which cards it can run. `side_by_side` has a row for each kernel if
    two targets or more ran on a card.
    """

    sentence: str
    exit_code: int
    targets: tuple[TargetSummary, ...]
    baseline: Union[str, None] = None
    differences: tuple[Difference, ...] = ()
    kernels: tuple[KernelTests, ...] = ()
    tests: tuple[ParityRow, ...] = ()
    findings: tuple[TestFinding, ...] = ()
    profiles: tuple[TestProfile, ...] = ()
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
    known: Union[KnownFailures, None] = None
    grid: Grid = field(default_factory=Grid)
    side_by_side: tuple[KernelOnCards, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def compiled_cells(self) -> Iterator[CodegenCell]:
        """All that was compiled."""
        return (cell for row in self.codegen for cell in row.cells)

    @property
    def has_card(self) -> bool:
        """Whether a target ran on a card, or measured anything."""
        return bool(self.speeds or any(target.devices for target in self.targets))

    @property
    def beside(self) -> tuple[TargetSummary, ...]:
        """The targets that stand beside each other: those that ran on a card, if at least two did; else none."""
        found = tuple(target for target in self.targets if target.devices)
        return found if len(found) > 1 else ()

    @property
    def untested(self) -> bool:
        """Whether no target ran tests. Then no speed of a kernel is verified, and one line says so better than a mark on each."""
        return not any(target.tests or any(report.stage is Stage.TEST for report in target.stages) for target in self.targets)
