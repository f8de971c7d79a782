"""What the user asked for, at the door of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from harness.engines import Build
from harness.engines.results_limit import Cap
from harness.records import Gates, Job, Shard, Stage


@dataclass(frozen=True)
class Settings:
    """What the user asked for, the same for every target of a run."""

    run_id: str
    out: Path
    kernels: Path
    engine: Union[str, None] = None
    stages: Union[tuple[Stage, ...], None] = None
    gpu: Union[str, None] = None
    share: bool = False  # the work between several GPUs
    commit: Union[str, None] = None
    quick: bool = False
    again: bool = False
    precision: float = Job.precision
    benches: tuple[str, ...] = ("bench_*.py",)
    launches: tuple[str, ...] = ("bench", "test")
    peers: tuple[str, ...] = ()
    gates: Gates = field(default_factory=Gates)
    pytest_args: tuple[str, ...] = ()
    test_limit_s: float = 300.0
    stage_limit_s: float = 3600.0
    limit_s: float = 3 * 3600.0
    python: Union[str, None] = None
    build: Build = field(default_factory=Build)
    weaken: tuple[str, ...] = ()
    keep: bool = False
    cap: Cap = field(default_factory=Cap)
    command: tuple[str, ...] = ()
    resume: bool = False
    gpu_wait_s: float = 600.0
    shard: Union[Shard, None] = None
