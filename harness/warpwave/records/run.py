"""The host's record of a run, and everything known about a target after its run."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Any, Union

from warpwave.records.gates import Gates
from warpwave.records.results import CardShare, CaseResult, Ceiling, CompiledKernel, Facts, Finding, Profile, Sample, StageReport
from warpwave.records.selection import Narrowed
from warpwave.records.words import SCHEMA_VERSION, Few, Many, Name, Page, Prose, Seconds, ShardText, Verdict, Word, record

NO_STAGE = "it has no stage"


@record(frozen=True)
class Environment:
    """What the engine ran the job in, kept in `run.json` so that a number can be traced to an image and its options. `packages` are the
    versions of what was installed for this run, beside what the image or the Python has. `notes` say what was not installed as it was asked
    for, and which stages the target lacks: those begin with `NO_STAGE`."""

    engine: Word
    python: Prose
    image: Union[Prose, None] = None
    image_id: Union[Word, None] = None
    base_image: Union[Prose, None] = None
    built: bool = False
    prepare_s: Seconds = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    weakened: Annotated[tuple[Word, ...], Few] = ()
    packages: Annotated[dict[Name, Word], Many] = field(default_factory=dict)
    notes: Annotated[tuple[Prose, ...], Few] = ()


@record(frozen=True)
class Exit:
    """How the process or container ended, as its engine saw it; `diagnose` turns it into a verdict. `exceeded` is the limit on results, in
    words, for which the engine ended it. `hint` says what to do about an `error`."""

    code: Union[int, None]
    seconds: Seconds
    oom_killed: bool = False
    timed_out: bool = False
    interrupted: bool = False
    error: Page = ""
    exceeded: Prose = ""
    hint: Prose = ""


@record(frozen=True)
class Attempt:
    """An earlier attempt at a run that was resumed: when it started, how long it took, and why it did not finish."""

    started: Word
    seconds: Seconds
    verdict: Verdict
    reason: Prose


@record(frozen=True)
class Inputs:
    """Everything that decides the results of a run, recorded when it began: `inputs.json`. `files` are digests of the kernel package's
    files by path. `harness` is warpwave's version and code. `facts` are the environment: the image, or the Python with its installed
    packages, variables, driver and GPUs."""

    run_id: Name
    target: Name
    files: dict[str, Word]
    harness: Word
    facts: dict[str, Prose]
    schema_version: int = SCHEMA_VERSION


@record(frozen=True)
class RunRecord:
    """The host's record of one target: `run.json`. `attempts` are the earlier attempts.

    `shard` is `2/4` if the target ran the second of four parts of the package. `stages_hash` is the SHA-256 of stages.json as the inside
    last wrote it, if the inside reported it. `held` are the seconds for which each stage had its cards locked, added up over the cards.
    It is empty if the run used none of this machine. `emulated` names the architecture whose machine code a CPU executed; it is empty on a
    real card, and `card` is the name that people know it by. `toolchain` names the toolchain that the target was put on; its name is then a
    part of `target`. `host` says in words where the leg ran, if a hosts file said it. `snapshot` is a digest of the package and of
    warpwave, as the run found them: the legs of one run have the same.
    `repository` is the https address of the remote, and behind `#` the path of the package in it.
    """

    run_id: Name
    target: Name
    label: Word
    verdict: Verdict
    reason: Page
    hint: Page
    started: Word
    seconds: Seconds
    commit: Word
    kernels: Page
    command: Annotated[tuple[Page, ...], Many]
    environment: Union[Environment, None] = None
    exit: Union[Exit, None] = None
    attempts: Annotated[tuple[Attempt, ...], Many] = ()
    shard: ShardText = ""
    stages_hash: Word = ""
    emulated: Name = ""
    toolchain: Name = ""
    held: Annotated[dict[Name, Seconds], Few] = field(default_factory=dict)
    host: Word = ""
    snapshot: Word = ""
    repository: Page = ""
    card: Name = ""
    schema_version: int = SCHEMA_VERSION


@record(frozen=True)
class Hardware:
    """A GPU that kernels are compiled for: its architecture (`gfx942`), and its vendor and the name that people know it by, if known."""

    architecture: Name
    vendor: Name = ""
    card: Name = ""

    @property
    def name(self) -> str:
        """The name that people know it by, else that of its architecture."""
        return self.card or self.architecture


@record(frozen=True)
class TargetRun:
    """Everything known of one target after its run: `raw/<target>/`, read, validated and joined.

    `compiled` comes from the compile stage, without a GPU; `launched` is what the JIT compiled on the GPU in the bench stage. `again` are
    the points of `samples`, measured a second time: an A/A run. `shares` are the parts of the GPUs that shared the work. `peers` are the
    providers that the author excluded from the compile stage. `missing` says which shards of a run are missing, `division` is a digest of
    what each of them has. `some_launches`: options left out benches, or the launches of benches or tests. `hardware` is what it compiled
    for, `sanitized` whether its test stage checked accesses to memory.
    """

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
    findings: tuple[Finding, ...] = ()
    profiles: tuple[Profile, ...] = ()
    gates: Union[Gates, None] = None
    peers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    missing: str = ""
    division: str = ""
    narrowed: Narrowed = field(default_factory=Narrowed)
    some_launches: bool = False
    hardware: tuple[Hardware, ...] = ()
    sanitized: bool = False


def resume_command(command: Sequence[str], folder: PurePath) -> str:
    """Return the shell command that continues the run in `folder`: its own, as it must have the options that it was started with."""
    is_resumed = any(word.partition("=")[0] == "--resume" for word in command)
    return shlex.join([*command, *([] if is_resumed else ["--resume", str(folder)])])


MARK = "@"
"""Between a target and its toolchain in the name of a leg: `cpu@triton-3.8`."""
EMULATOR = {"tinygrad": "tinygrad==0.14.*", "elftools": "pyelftools>=0.31", "msgpack": "msgpack>=1.1"}
"""The modules that an emulated target needs beside Triton, and what to install for each: warpwave's extra `emulator`."""


@record(frozen=True)
class Toolchain:
    """One toolchain. What is empty stays as the target has it. `triton` and `torch` are versions. `index` is the package index, or the
    folder of wheels, that has this Triton; `torch_index` is the one that has this torch. `packages` are more requirements, installed as
    they are, without what they need. `environment` are variables for the kernels. `base_image` is the image that a container engine builds
    on."""

    triton: Word = ""
    torch: Word = ""
    base_image: Page = ""
    index: Page = ""
    torch_index: Page = ""
    packages: Annotated[tuple[Page, ...], Few] = ()
    environment: Annotated[dict[Name, Page], Few] = field(default_factory=dict)
    name: Name = ""

    @property
    def installs(self) -> bool:
        """Whether it needs an environment of its own; variables alone need none."""
        return bool(self.triton or self.torch or self.packages)


@record(frozen=True)
class Linker:
    """Releases of Triton before `triton` compile for these `backends` only with a program that PyPI does not have; `needs` names it."""

    triton: str = "0"
    backends: tuple[str, ...] = ()
    needs: str = ""


@dataclass(frozen=True)
class Toolchains:
    """The toolchains of a targets file by name, and which releases of Triton need a linker."""

    named: dict[str, Toolchain]
    linker: Linker


def plain_target(target: str, toolchain: str) -> str:
    """Return the target of a leg: `cpu` for `cpu@triton-3.8`. Two runs of one target on two toolchains are compared under this name."""
    return target.removesuffix(f"{MARK}{toolchain}") if toolchain else target
