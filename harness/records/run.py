"""The host's page about a run, and all that is known of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Union

from harness.records.bounds import Few, Many, Name, Page, Prose, Seconds, ShardText, Word
from harness.records.enums import SCHEMA_VERSION, STRICT, Verdict
from harness.records.gates import Gates
from harness.records.results import CardShare, CaseResult, Ceiling, CompiledKernel, Facts, Sample, StageReport


@dataclass(frozen=True)
class Environment:
    """What the engine ran the job in: kept in `run.json` so that a number can be traced to an image and to flags."""

    __pydantic_config__ = STRICT
    engine: Word
    python: Prose
    image: Union[Prose, None] = None
    image_id: Union[Word, None] = None
    base_image: Union[Prose, None] = None
    built: bool = False
    prepare_s: Seconds = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    weakened: Annotated[tuple[Word, ...], Few] = ()


@dataclass(frozen=True)
class Exit:
    """How the process or container ended, as its engine saw it; `diagnose` turns it into a verdict. `exceeded` is the limit of its results
    that it was ended for, in words."""

    __pydantic_config__ = STRICT
    code: Union[int, None]
    seconds: Seconds
    oom_killed: bool = False
    timed_out: bool = False
    interrupted: bool = False
    error: Page = ""
    exceeded: Prose = ""


@dataclass(frozen=True)
class Attempt:
    """An earlier attempt at a run that was then taken up again: when it began, how long it took, and why it was not the last."""

    __pydantic_config__ = STRICT
    started: Word
    seconds: Seconds
    verdict: Verdict
    reason: Prose


@dataclass(frozen=True)
class Inputs:
    """What decides the results of a run, as it was when the run began: `inputs.json`.

    `files` are digests of the kernel package's files by path, `harness` is warpwave's version and code, `facts` are the environment: the
    image, or the Python with what is installed in it, variables, driver and cards.
    """

    __pydantic_config__ = STRICT
    run_id: Name
    target: Name
    files: dict[str, Word]
    harness: Word
    facts: dict[str, Prose]
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class RunRecord:
    """The host's page about one target: `run.json`. `attempts` are those before the one that the rest is about; `shard` is `2/4` where it
    ran the second of four parts of the package; `stages_hash` is the SHA-256 of stages.json as the inside wrote it last, where it told."""

    __pydantic_config__ = STRICT
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
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class TargetRun:
    """Everything that is known of one target after its run: `raw/<target>/` read, validated and joined.

    `compiled` is the compile stage's, without a GPU; `launched` what the JIT compiled on the card in the bench stage. `again` are the same
    points as `samples`, measured a second time: an A/A run. `shares` are those of the cards where several shared the work. `peers` are
    the providers that the package's author had the compile stage leave out. `missing` says which shards of a run are not there.
    """

    __pydantic_config__ = STRICT
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
    peers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    missing: str = ""
