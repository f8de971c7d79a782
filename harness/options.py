"""What the user asked for, in one object from the command line to the engine; a part of it goes on into `job.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from harness.records import Gates, JobOptions, Shard, Stage

GIB = 1 << 30


@dataclass(frozen=True)
class Build:
    """How an image is built here: behind a mirror, or without any network."""

    base_image: Union[str, None] = None
    wheelhouse: Union[Path, None] = None
    ca_bundle: Union[Path, None] = None
    pip_config: Union[Path, None] = None
    network: Union[str, None] = None
    args: dict[str, str] = field(default_factory=dict)
    rebuild: bool = False


@dataclass(frozen=True)
class Cap:
    """The most that a results folder may hold. The default is about twice what `collect` would read of one; logs are the rest."""

    bytes: int = 4 * GIB
    files: int = 50_000


@dataclass(frozen=True)
class RunOptions(JobOptions):
    """The options of a run, the same for all of its targets.

    `commit` is empty until the run knows it. With `share` the GPUs of the run share its work. `limit_s` is for a whole target. `grace_s` is
    what it gets to write its results when it is stopped. `weaken` names the protections of the container that the user gives up.
    """

    run_id: str
    out: Path
    kernels: Path
    engine: Union[str, None] = None
    stages: Union[tuple[Stage, ...], None] = None
    gpu: Union[str, None] = None
    share: bool = False
    commit: str = ""
    gates: Gates = field(default_factory=Gates, kw_only=True)
    limit_s: float = 3 * 3600.0
    grace_s: float = 30.0
    python: Union[str, None] = None
    build: Build = field(default_factory=Build)
    weaken: tuple[str, ...] = ()
    keep: bool = False
    cap: Cap = field(default_factory=Cap)
    command: tuple[str, ...] = ()
    resume: bool = False
    gpu_wait_s: float = 600.0
    shard: Union[Shard, None] = None
