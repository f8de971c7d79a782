"""The stages that there are. A new one is a folder `harness/inside/<stage>/` with `stage.py`, a name in `Stage` and an entry here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from harness.records.enums import Stage
from harness.records.results import CardShare, CaseResult, Ceiling, CompiledKernel, Facts, Sample


@dataclass(frozen=True)
class Output:
    """A file that a stage writes, by its path in `raw/<target>/`.

    `record` is the type of what is in it: one object in `.json`, one a line in `.jsonl`, one a test case in `.xml`. `field` is where
    `TargetRun` keeps it; files of the same field are joined. A bundle without an `optional` file is whole: it is younger than the format,
    or written only on request.
    """

    path: str
    record: type
    field: str
    optional: bool = False


@dataclass(frozen=True)
class StageEntry:
    """What a stage writes, and what it needs. `interprets`: without a GPU it runs in Triton's interpreter. `limit_s` is its own limit."""

    outputs: tuple[Output, ...]
    interprets: bool = False
    limit_s: Union[float, None] = None


STAGES = {
    Stage.FACTS: StageEntry((Output("facts.json", Facts, "facts"),), limit_s=300.0),
    Stage.TEST: StageEntry(
        (Output("test/junit.xml", CaseResult, "cases"), Output("test/cards.jsonl", CardShare, "shares", optional=True)), interprets=True
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
"""The stages that a user chooses from; the facts come first whatever is chosen."""
