"""Layer 0: the shared records, as frozen dataclasses, for the host and for the inside of the container.

Only the standard library is imported here. Everything that the two halves exchange on disk (`raw/<target>/`) is one of these. `dump` writes
them, and the host reads them through `collect`, which validates every field against its annotation. Units are in the names: `_s` seconds,
`_ms` milliseconds, `_bytes` bytes, `_gbps` GB/s with G = 1e9.
"""

from harness.records.compiled import CompiledKernel
from harness.records.enums import (
    EMULATED,
    GPU_PROPERTY,
    HARMLESS,
    HOST_CODE,
    HOST_ERROR_PROPERTY,
    JUNIT_XFAIL,
    MOST_SECONDS,
    OVERFULL,
    OVERTIME,
    SCHEMA_VERSION,
    UNWRITABLE,
    NotRun,
    Scalar,
    Stage,
    Verdict,
    reasons,
    worst,
)
from harness.records.findings import MOST_FINDINGS, Defect, Finding
from harness.records.gates import CANDIDATES, OPEN, Gates, Limits, Rule, Waiver, Which
from harness.records.job import (
    Arch,
    Architecture,
    BenchScript,
    Card,
    Job,
    JobOptions,
    Multiprocessor,
    PytestSettings,
)
from harness.records.paths import AHEAD_FILE, COMPILED_FOLDER, COMPILED_HERE, COMPILED_KINDS, COMPILED_MANIFEST, COMPILED_NAME, LEASE_FILE
from harness.records.registry.stages import CHOSEN, STAGES, Output
from harness.records.results import CardShare, CaseResult, Ceiling, DeviceFacts, Facts, Sample, StageReport, Stages
from harness.records.run import NO_STAGE, Attempt, Environment, Exit, Inputs, RunRecord, TargetRun
from harness.records.selection.chosen import Chosen, Narrowed, Selection
from harness.records.selection.shard import Shard
from harness.records.writing import dump, finite, to_json, to_text, write_text

__all__ = [
    "AHEAD_FILE",
    "CANDIDATES",
    "CHOSEN",
    "COMPILED_FOLDER",
    "COMPILED_HERE",
    "COMPILED_KINDS",
    "COMPILED_MANIFEST",
    "COMPILED_NAME",
    "EMULATED",
    "GPU_PROPERTY",
    "HARMLESS",
    "HOST_CODE",
    "HOST_ERROR_PROPERTY",
    "JUNIT_XFAIL",
    "LEASE_FILE",
    "MOST_FINDINGS",
    "MOST_SECONDS",
    "NO_STAGE",
    "OPEN",
    "OVERFULL",
    "OVERTIME",
    "SCHEMA_VERSION",
    "STAGES",
    "UNWRITABLE",
    "Arch",
    "Architecture",
    "Attempt",
    "BenchScript",
    "Card",
    "CardShare",
    "CaseResult",
    "Ceiling",
    "Chosen",
    "CompiledKernel",
    "Defect",
    "DeviceFacts",
    "Environment",
    "Exit",
    "Facts",
    "Finding",
    "Gates",
    "Inputs",
    "Job",
    "JobOptions",
    "Limits",
    "Multiprocessor",
    "Narrowed",
    "NotRun",
    "Output",
    "PytestSettings",
    "Rule",
    "RunRecord",
    "Sample",
    "Scalar",
    "Selection",
    "Shard",
    "Stage",
    "StageReport",
    "Stages",
    "TargetRun",
    "Verdict",
    "Waiver",
    "Which",
    "dump",
    "finite",
    "reasons",
    "to_json",
    "to_text",
    "worst",
    "write_text",
]
