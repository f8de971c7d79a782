"""The host's page about a run, and all that is known of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

from harness.records.gates import Gates
from harness.records.results import CardShare, CaseResult, Ceiling, CompiledKernel, Facts, Sample, StageReport
from harness.records.words import SCHEMA_VERSION, STRICT, Verdict


@dataclass(frozen=True)
class Environment:
    """What the engine ran the job in: kept in `run.json` so that a number can be traced to an image and to flags."""

    __pydantic_config__ = STRICT
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

    __pydantic_config__ = STRICT
    code: Union[int, None]
    seconds: float
    oom_killed: bool = False
    timed_out: bool = False
    interrupted: bool = False
    error: str = ""


@dataclass(frozen=True)
class Attempt:
    """An earlier attempt at a run that was then taken up again: when it began, how long it took, and why it was not the last."""

    __pydantic_config__ = STRICT
    started: str
    seconds: float
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class RunRecord:
    """The host's page about one target: `run.json`. `attempts` are those before the one that the rest is about; `shard` is `2/4` where it
    ran the second of four parts of the package; `stages_hash` is the SHA-256 of stages.json as the inside wrote it last, where it told."""

    __pydantic_config__ = STRICT
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
    stages_hash: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class TargetRun:
    """Everything that is known of one target after its run: `raw/<target>/` read, validated and joined.

    `compiled` is the compile stage's, without a GPU; `launched` what the JIT compiled on the card in the bench stage. `again` are the same
    points as `samples`, measured a second time: an A/A run. `shares` are those of the cards where several shared the work. `peers` are
    the providers that the package's author had the compile stage leave out.
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
