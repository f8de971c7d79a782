"""The shared words and constants: verdicts, stages, and the validation rules of records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union

Key = TypeVar("Key")
Value = TypeVar("Value")

SCHEMA_VERSION = 1

# Nothing takes thirty years, and sums of such times stay finite.
MOST_SECONDS = 1e9

Scalar = Union[int, float, str, bool, None]

# The exit code of an inside that cannot write its results (EX_IOERR of <sysexits.h>); `run/attempt.py` maps it to infrastructure.
UNWRITABLE = 74

# The exit codes of a container that ended itself, because its time was up or its results were over their limit.
OVERTIME, OVERFULL = 124, 122

# A part of the name of every target whose tests run on no card: a CPU executes the card's machine code.
EMULATED = "emulated"

# AMD's simulator, where a target of the targets file names it: the command, and the value of `emulate`.
ROCJITSU = "rocjitsu"

# The properties of a test, by kernel: after which pass of the compiler it computed something else, and digests of its code behind each.
PASSES, CODE = "passes of ", "code of "

# The property of a test that failed in the emulator by what host code raised: a card fails it, too.
HOST_ERROR_PROPERTY = "host_error"

# The property of a failed test that says how it failed, as far as that is the same in the next run: what was raised, by which statement
# of the test, and in which function of the package.
FAILED_PROPERTY = "failed_by"

# How pytest's own JUnit file calls a test that failed as expected: the type of a `<skipped>`.
JUNIT_XFAIL = "pytest.xfail"

# The test property with the names of the Triton functions that a test launched, with spaces between; empty if it launched none.
LAUNCHED_PROPERTY = "launched"

# The test property with the index of the GPU that ran the test; set only if several GPUs shared the tests.
GPU_PROPERTY = "gpu"

# Stands in for a function's name if a point or a test launched nothing, or only some of its kernels.
HOST_CODE = "(host code)"

# In the reason of a launch that a card's driver refuses.
REFUSED_ON = " cannot be launched on "

# Begins the reason of a case that fails on one architecture only; begins that of a benchmark that raises on all; and ends that of what
# torch refuses in its own code: without a card, that may be for what is pretended.
RUNS_ON = "it runs on"
RAISES = "it raises"
BY_TORCH = " (torch raised it, maybe for what is pretended)"

# Begins a note of the compile stage: most of a package's launches were not seen.
MOSTLY_UNSEEN = "only"

# pydantic's settings for every record. This is a plain dict, so that nothing has to be imported for it here.
STRICT = {"extra": "forbid", "allow_inf_nan": False}


if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(**options):  # noqa: ANN003, ANN201
        """Make a dataclass that pydantic checks strictly on the host."""

        def make(kind):  # noqa: ANN001, ANN202
            kind.__pydantic_config__ = STRICT
            return dataclass(**options)(kind)

        return make


class Verdict(str, Enum):
    """What happened to a case, a stage or a target, mildest first. `worst` relies on the order. Only a test is `XFAILED`: it failed, as its
    author expects (`pytest.mark.xfail`). `KNOWN` is a failure that the package's list of known failures, or an earlier run, has with the
    same reason: no stage gives this verdict, only a report."""

    PASSED = "passed"
    XFAILED = "xfailed"
    KNOWN = "known"
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
        """Position in the order above; a larger one is worse."""
        return _SEVERITY[self]


# What fails no run: neither a new failure nor anything that left a test without a result.
HARMLESS = (Verdict.PASSED, Verdict.XFAILED, Verdict.KNOWN, Verdict.NOT_RUN)
_SEVERITY = {verdict: position for position, verdict in enumerate(Verdict)}


def worst(verdicts: list[Verdict], default: Verdict = Verdict.NOT_RUN) -> Verdict:
    """Return the most severe of `verdicts`; `default` if there is none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=default)


class NotRun(str, Enum):
    """Why a test or a launch did not run, or not to its end.

    `SKIPPED` is the author's own decision, and so is `XFAILED`: a test that failed as expected while it was compiled. `EMPTY`: a file has
    nothing to run. `DATA`: the host's code depends on data that a pretended GPU does not have. `RAISED`: its code raised an exception that
    nothing of the others explains. `IMPORT`: a module does not import. `REQUIREMENT`: a module of another package is not installed.
    `NEEDS_BUILD`: it calls compiled code of the package, which is not built here. `NEEDS_CARD`: it compares what only a card knows, such as
    times. `NOT_PRETENDED`: it needs something of a GPU that warpwave does not pretend, which is a gap of warpwave. `TIME_UP`: never
    reached. `STOPPED`: the run was stopped before it. `DISCARDED`: an autotuner tries this configuration and has a clean one for the same
    launch. `NOT_FOLLOWED`: it ran, but the undefined lanes of a launch could not be followed, which is a gap of warpwave, too; or a
    sanitizer met a limit of its own.
    """

    SKIPPED = "skipped"
    XFAILED = "xfailed"
    EMPTY = "empty"
    DATA = "decided-by-data"
    RAISED = "raised"
    IMPORT = "import-failed"
    REQUIREMENT = "missing-requirement"
    NEEDS_BUILD = "needs-build"
    NEEDS_CARD = "needs-card"
    NOT_PRETENDED = "not-pretended"
    TIME_UP = "time-up"
    STOPPED = "stopped"
    DISCARDED = "discarded"
    NOT_FOLLOWED = "not-followed"

    @property
    def words(self) -> str:
        """The reason in a count: `12 decided by data`."""
        return _WORDS.get(self, self.value.replace("-", " "))


BUDGET_UP = "the time of --budget was up"  # the start of a note of a stage


def reasons(number: int, counts: Mapping[str, int]) -> list[str]:
    """`3 skipped`, `12 decided by data`: what did not run by its reason. Without one, a row is of an older run: skipped."""
    known = {why: counts.get(why.value, 0) for why in NotRun}
    known[NotRun.SKIPPED] += max(0, number - sum(known.values()))
    return [f"{count} {why.words}" for why, count in known.items() if count]


def plural(number: int, noun: str, one: str = "", many: str = "") -> str:
    """`1 case`, `2 cases`, `3 binaries`, `4 launches`; with a verb for one and for many, `1 case fails`, `2 cases fail`."""
    if number == 1:
        return f"1 {noun} {one}".rstrip()
    ending = re.sub("y$", "ies", noun) if noun.endswith("y") else noun + ("es" if noun.endswith("ch") else "s")
    return f"{number} {ending} {many}".rstrip()


# What could not be checked, and is no fault of the package.
UNCHECKED = (NotRun.REQUIREMENT, NotRun.NEEDS_BUILD, NotRun.NEEDS_CARD, NotRun.NOT_PRETENDED, NotRun.NOT_FOLLOWED)

_WORDS = {
    NotRun.REQUIREMENT: "with a missing requirement",
    NotRun.NEEDS_BUILD: "needing a build",
    NotRun.NEEDS_CARD: "needing a card",
    NotRun.XFAILED: "expected to fail",
    NotRun.EMPTY: "with nothing to run",
    NotRun.TIME_UP: "not reached in time",
    NotRun.DISCARDED: "discarded for another candidate",
}


class Stage(str, Enum):
    """The processes that run beside the GPU, in running order."""

    FACTS = "facts"
    TEST = "test"
    BENCH = "bench"
    COMPILE = "compile"


MOST_SHARDS = 64
# ASCII digits only: `int` accepts the digits of every script.
_SPELLING = re.compile(r"([1-9][0-9]?)/([1-9][0-9]?)")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `2/4`, the second of four. Raises ValueError if the text is no shard; the message says what one looks like."""
        match = _SPELLING.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.of <= MOST_SHARDS:
            raise ValueError(f"it is not I/N with I from 1 to N, and N up to {MOST_SHARDS}")
        return shard


# The bounds of record fields. On the host, pydantic checks every record against them; the inside never loads pydantic.
#
# Names (target, kernel, case) that are too long are refused: if they were cut, two could become equal. Prose (reason, version) is cut.
# Reports repeat both beside every number they belong to, so their length affects what a report costs.

MOST_DEVICES = 4096
_MOST_INDEX = (1 << 16) - 1
_MOST_COUNT = 10**12
_MOST_FIGURE = 1e12


@dataclass(frozen=True)
class Bound:
    """Limits of a number (`least`, `most`), or of the length of a text, list or mapping (`longest`)."""

    least: Union[float, None] = None
    most: Union[float, None] = None
    longest: Union[int, None] = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return pydantic's own constraints. Its core schemas are dicts, so nothing has to be imported."""
        limits = {"ge": self.least, "le": self.most, "max_length": self.longest}
        return {**handler(source), **{name: value for name, value in limits.items() if value is not None}}


@dataclass(frozen=True)
class Checked:
    """A field that a function checks after pydantic. The function returns the value to keep, or raises ValueError."""

    look: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return a validator that runs after the type's own."""
        return {"type": "function-after", "function": {"type": "no-info", "function": self.look}, "schema": handler(source)}


def _cut(longest: int) -> Checked:
    return Checked(lambda text: text if len(text) <= longest else f"{text[: longest - 1]}…")


Name = Annotated[str, Bound(longest=200)]  # of a target, run, kernel, provider or architecture
LongName = Annotated[str, Bound(longest=2000)]  # of a case or test, including its parameters
Word = Annotated[str, _cut(200)]  # a unit, a version or a model
Prose = Annotated[str, _cut(2000)]  # a reason
Page = Annotated[str, _cut(10_000)]  # advice, a path, an argument of a command
# A parameter or a constant: the name of every row of its launch contains it.
Parameter = Annotated[
    Union[int, float, str, bool, None], Checked(lambda value: f"{value[:499]}…" if isinstance(value, str) and len(value) > 500 else value)
]
ShardText = Annotated[str, Checked(lambda text: text and str(Shard.parse(text)))]
Seconds = Annotated[float, Bound(0.0, MOST_SECONDS)]
Share = Annotated[float, Bound(0.0, 1.0)]
Figure = Annotated[float, Bound(0.0, _MOST_FIGURE)]  # a clock in MHz, a bandwidth in GB/s
Index = Annotated[int, Bound(0, _MOST_INDEX)]  # of a device
Count = Annotated[int, Bound(0, _MOST_COUNT)]
Bytes = Annotated[int, Bound(0)]
Few = Bound(longest=100)  # entries of a list or mapping
Many = Bound(longest=1000)


_PREFIXES = {"t": 1.0, "g": 1e-3, "p": 1e3}
_RATES = {f"{prefix}{word}": scale for prefix, scale in _PREFIXES.items() for word in ("flop/s", "flops", "flops/s")}
_TIME_UNITS = frozenset(
    {"s", "sec", "seconds", "ms", "milliseconds", "us", "µs", "μs", "microseconds", "ns", "time", "time (ms)", "latency"}
)
# A benchmark may return how much memory a kernel holds instead of its speed.
_SIZE_UNITS = frozenset({"b", "byte", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"})
_BYTES = {f"{prefix}b/s": 1000.0**power / 1e9 for power, prefix in enumerate(("", "k", "m", "g", "t", "p"))}
_BYTES |= {f"{prefix}ib/s": 1024.0**power / 1e9 for power, prefix in enumerate(("k", "m", "g", "t", "p"), start=1)}


def gbps_of(unit: str) -> Union[float, None]:
    """Return how many GB/s one of the unit is, G = 1e9; None if it is another kind of unit."""
    return _BYTES.get(unit.strip().lower().replace(" ", ""))


def tflops_of(unit: str) -> Union[float, None]:
    """Return how many TFLOP/s one of the unit is, T = 1e12; None if it is another kind of unit."""
    return _RATES.get(unit.strip().lower().replace(" ", ""))


def is_rate(unit: str) -> bool:
    """Return whether values in this unit are operations a second."""
    return tflops_of(unit) is not None


def is_time(unit: str) -> bool:
    """Return whether the unit measures time."""
    return unit.strip().lower() in _TIME_UNITS


def is_memory(unit: str) -> bool:
    """Return whether the unit measures memory in use."""
    return unit.strip().lower() in _SIZE_UNITS


def with_card(architecture: str, card: str) -> str:
    """Return an architecture as reports show it, with the name that people know it by, if there is one: `gfx942 (MI300X)`."""
    return f"{architecture} ({card})" if card else architecture


# Names of files through which the host, the inside, and other runs hand things to each other.

# The host's own copies of what it writes into a target's folder, where code under test can replace it. No container sees this folder.
HOST_FOLDER = "host"


def host_copy(raw: Path, name: str) -> Path:
    """Return where the host's own copy of `raw/<target>/<name>` is."""
    return raw.parent.parent / HOST_FOLDER / f"{raw.name}.{name}"


# In a stage's folder: the host's answer to a stage that asked for its card. Empty if the host has locked it.
LEASE_FILE = "lease"
FORKS_VARIABLE = "WARPWAVE_FORKS"  # the descriptor of a channel to what forks processes: to it, or of its own end
# In a target's folder: kernels for another run, and those that another run compiled for this one; their list, and names of files in it.
COMPILED_FOLDER = "compile/triton-cache"
COMPILED_HERE = "compiled"
COMPILED_MANIFEST = "manifest.json"
COMPILED_NAME = re.compile(r"[A-Z2-7]{40,64}/[A-Za-z0-9_][\w.-]{0,249}")
# Files of a compiled kernel: what Triton's stages leave, of every vendor. Nothing that a processor of the host executes.
COMPILED_KINDS = (".json", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv", ".source")
# In a target's folder: how compiling ahead ended.
AHEAD_FILE = "bench/ahead.json"


def grouped(entries: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in the order in which they come."""
    groups: dict[Key, list[Value]] = {}
    for key, value in entries:
        groups.setdefault(key, []).append(value)
    return groups
