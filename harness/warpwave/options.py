"""The options of a run in one object, from the command line to the engine. `job.json` contains a part of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from warpwave.config.hosts import Host
from warpwave.records import Gates, JobOptions, Shard, Stage

GIB = 1 << 30


@dataclass(frozen=True)
class Build:
    """How to build an image on this machine, for example through a mirror or without a network."""

    base_image: Union[str, None] = None
    wheelhouse: Union[Path, None] = None
    ca_bundle: Union[Path, None] = None
    pip_config: Union[Path, None] = None
    network: Union[str, None] = None
    args: dict[str, str] = field(default_factory=dict)
    rebuild: bool = False


@dataclass(frozen=True)
class Install:
    """What to install beside torch and Triton: requirement files, requirements by name, and the package itself.

    `package` is empty, `all` (with its dependencies, but those `skipped`, and with its `extras`) or `alone` (without).
    """

    requirements: tuple[Path, ...] = ()
    package: str = ""
    named: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cap:
    """The limit on a results folder. The default is about twice what `collect` reads of one, which leaves room for logs."""

    bytes: int = 4 * GIB
    files: int = 50_000


@dataclass(frozen=True)
class RunOptions(JobOptions):
    """The options of a run, the same for all of its targets.

    `root` is the folder of the whole package, of which `kernels` is a part; by default `kernels` is all of it. `project` is the folder in
    it that is installed.
    `variables` are the user's, for the kernels. `shard_times` are the seconds that an earlier run took for its files.
    `commit` is empty until the run has determined it. With `share`, the run's GPUs share its work. `limit_s` is the limit for one target.
    `grace_s` is how long a stopped target may take to write its results. `weaken` names the protections of the container to give up.
    `compiled_folder` holds the kernels of which `compiled` is the hash.
    `host` is the machine that runs the leg, as hosts.yml describes it; None: this machine. `whole` is the folder of the whole run, if `out`
    is that of one of its shards. `snapshot` is a digest of the package and of warpwave, taken once for all legs.
    """

    run_id: str
    out: Path
    kernels: Path
    engine: Union[str, None] = None
    stages: Union[tuple[Stage, ...], None] = None
    gpu: Union[str, None] = None
    share: bool = False
    commit: str = ""
    repository: str = ""
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
    shard_times: dict[str, float] = field(default_factory=dict)
    root: Union[Path, None] = None
    project: str = "."
    install: Install = field(default_factory=Install)
    variables: dict[str, str] = field(default_factory=dict)
    compiled_folder: Union[Path, None] = None
    host: Union[Host, None] = None
    whole: Union[Path, None] = None
    snapshot: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the whole run, which the user names."""
        return self.whole or self.out

    @property
    def package(self) -> Path:
        """The folder of the whole package."""
        return self.root or self.kernels
