"""The list of engines. To add one, write a file with `connect()` and add a line to `ENGINES`."""

from dataclasses import dataclass
from typing import Union

from warpwave.records.results import CardShare, CaseResult, Ceiling, CompiledKernel, Facts, Finding, Profile, Sample
from warpwave.records.words import Stage


@dataclass(frozen=True)
class Entry:
    """An engine's module and abilities. The host checks these fields and never an engine's name. `module` has `connect(host: Host | None)
    -> Engine`, and is imported only when the engine is chosen. `local_gpus`: the engine uses the GPUs of this machine, so locks on this
    machine decide which run gets them. `container`: the engine runs jobs in containers, built from the target's Dockerfile. `needs_host`:
    it runs jobs on a machine that hosts.yml describes, so nobody can choose it without one."""

    module: str
    local_gpus: bool
    container: bool
    needs_host: bool = False


ENGINES = {
    "docker": Entry("warpwave.engines.docker.engine", local_gpus=True, container=True),
    "slurm": Entry("warpwave.engines.slurm.engine", local_gpus=False, container=False, needs_host=True),
    "ssh": Entry("warpwave.engines.remote.engine", local_gpus=False, container=True, needs_host=True),
    "local": Entry("warpwave.engines.local", local_gpus=True, container=False),
}
HERE = tuple(name for name, entry in ENGINES.items() if not entry.needs_host)
"""The engines of this machine."""
DEFAULT = "docker"
ELSEWHERE = "ssh"
"""Takes the place of the default if DOCKER_HOST names another machine."""
FALLBACK = "local"
"""Runs a target that needs no GPU if the target's own engine does not answer."""


@dataclass(frozen=True)
class Output:
    """A file that a stage writes, by its path in `raw/<target>/`. `record` is the type of its content: one object in `.json`, one per line
    in `.jsonl`, one per test case in `.xml`. `field` is the field of `TargetRun` that holds it; files with the same field are joined. An
    `optional` file may be missing: it is newer than the format, or written only on request."""

    path: str
    record: type
    field: str
    optional: bool = False


@dataclass(frozen=True)
class StageEntry:
    """The files that a stage writes. `interprets`: without a GPU, it uses Triton's interpreter. `limit_s`: its own time limit."""

    outputs: tuple[Output, ...]
    interprets: bool = False
    limit_s: Union[float, None] = None


STAGES = {
    Stage.FACTS: StageEntry((Output("facts.json", Facts, "facts"),), limit_s=300.0),
    Stage.TEST: StageEntry(
        (
            Output("test/junit.xml", CaseResult, "cases"),
            Output("test/findings.jsonl", Finding, "findings", optional=True),
            Output("test/profile.jsonl", Profile, "profiles", optional=True),
            Output("test/cards.jsonl", CardShare, "shares", optional=True),
        ),
        interprets=True,
    ),
    Stage.BENCH: StageEntry(
        (
            Output("bench/samples.jsonl", Sample, "samples"),
            Output("bench/again.jsonl", Sample, "again", optional=True),
            Output("bench/ceilings.jsonl", Ceiling, "ceilings"),
            Output("bench/kernels.jsonl", CompiledKernel, "launched", optional=True),
            Output("bench/cards.jsonl", CardShare, "shares", optional=True),
        )
    ),
    Stage.COMPILE: StageEntry((Output("compile/kernels.jsonl", CompiledKernel, "compiled"),)),
}
CHOSEN = tuple(stage for stage in Stage if stage is not Stage.FACTS)
"""The stages that a user can choose. The facts stage always runs first."""
