"""All stages. A new stage is a folder `harness/inside/<stage>/` with `stage.py`, a name in `Stage` and an entry here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from harness.records.compiled import CompiledKernel
from harness.records.enums import Stage
from harness.records.findings import Finding
from harness.records.results import CardShare, CaseResult, Ceiling, Facts, Sample


@dataclass(frozen=True)
class Output:
    """A file that a stage writes, by its path in `raw/<target>/`.

    `record` is the type of its content: one object in `.json`, one per line in `.jsonl`, one per test case in `.xml`. `field` is the
    field of `TargetRun` that holds it; files with the same field are joined. An `optional` file may be missing: it is newer than the
    format, or written only on request.
    """

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
