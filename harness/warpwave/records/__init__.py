"""Layer 0: the shared records, as frozen dataclasses, for the host and for the inside of the container.

Only the standard library is imported here. Everything that the two halves exchange on disk (`raw/<target>/`) is one of these. `dump` writes
them, and the host reads them through `collect`, which validates every field against its annotation. Units are in the names: `_s` seconds,
`_ms` milliseconds, `_bytes` bytes, `_gbps` GB/s with G = 1e9.
"""

# fmt: off
from warpwave.records.gates import ADVICE, CANDIDATES, OPEN, CounterLimit, GateLimits, Gates, Rule, Waiver, Which
from warpwave.records.job import Architecture, BenchScript, Budget, Cap, Card, Declared, Job, Limits, Multiprocessor, PytestSettings, What
from warpwave.records.registry import CHOSEN, FALLBACK, STAGES, Output
from warpwave.records.results import (
    COUNTERS, MOST_FINDINGS, MOST_LINES, MOST_PROFILES, CardShare, CaseResult, Ceiling, CompiledKernel, Defect, DeviceFacts, Facts,
    Finding, Profile, ProfiledLine, Sample, StageReport, Stages,
)
from warpwave.records.run import NO_STAGE, Attempt, Environment, Exit, Hardware, Inputs, RunRecord, TargetRun, resume_command
from warpwave.records.selection import Chosen, Narrowed, Selection
from warpwave.records.words import (
    AHEAD_FILE, BUDGET_UP, BY_TORCH, CODE, COMPILED_FOLDER, COMPILED_HERE, COMPILED_KINDS, COMPILED_MANIFEST, COMPILED_NAME, EMULATED,
    FAILED_PROPERTY, FORKS_VARIABLE, GPU_PROPERTY, HARMLESS, HOST_CODE, HOST_ERROR_PROPERTY, JUNIT_XFAIL, LAUNCHED_PROPERTY, LEASE_FILE,
    MOSTLY_UNSEEN, MOST_SECONDS, OVERFULL, OVERTIME, PASSES, RAISES, REFUSED_ON, ROCJITSU, RUNS_ON, SCHEMA_VERSION, UNCHECKED, UNWRITABLE,
    NotRun, Scalar, Shard, Stage, Verdict, grouped, plural, reasons, with_card, worst,
)
from warpwave.records.writing import dump, finite, from_json, to_json, to_text, write_text
