"""The options of a run in five groups, from the command line to the engine. `job.json` contains a part of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from warpwave.config.hosts import Host
from warpwave.config.targets import Builds
from warpwave.records import Cap as Cap  # for who builds a run in Python
from warpwave.records import Declared, Limits, Shard, What

GIB = 1 << 30


@dataclass(frozen=True)
class Build(Builds):
    """How an image is built, as the user's file says and the command line, and how a container of it runs. `weaken` names the protections
    of the container to give up. With `keep`, it stays after the run."""

    base_image: Union[str, None] = None
    rebuild: bool = False
    weaken: tuple[str, ...] = ()
    keep: bool = False


@dataclass(frozen=True)
class Install:
    """What to install beside torch and Triton: requirement files, requirements by name, and the package itself. `package` is empty, `all`
    (with its dependencies, but those `skipped`, and with its `extras`) or `alone` (without)."""

    requirements: tuple[Path, ...] = ()
    package: str = ""
    named: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Package:
    """What is run: the folder `kernels`, a part of the package whose folder is `root` (by default `kernels` is all of it). `project` is the
    folder in it that is installed. `commit` is empty until the run has determined it. `variables` are the user's, for the kernels.
    `snapshot` is a digest of the package and of warpwave, taken once for all legs."""

    kernels: Path
    root: Union[Path, None] = None
    project: str = "."
    commit: str = ""
    repository: str = ""
    declared: Declared = field(default_factory=Declared)
    install: Install = field(default_factory=Install)
    variables: dict[str, str] = field(default_factory=dict)
    snapshot: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the whole package."""
        return self.root or self.kernels


@dataclass(frozen=True)
class Where:
    """Where it runs, and where results go. `whole` is the folder of the whole run, if `out` is that of one of its shards. `host` is the
    machine that runs the leg, as hosts.yml describes it; None: this machine. With `share`, the GPUs share the work. `shard_times` are the
    seconds that an earlier run took for its files. `compiled` is the folder with the kernels whose hash `What.compiled` is."""

    run_id: str
    out: Path
    whole: Union[Path, None] = None
    resume: bool = False
    engine: Union[str, None] = None
    host: Union[Host, None] = None
    python: Union[str, None] = None
    gpu: Union[str, None] = None
    share: bool = False
    shard: Union[Shard, None] = None
    shard_times: dict[str, float] = field(default_factory=dict)
    compiled: Union[Path, None] = None
    command: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the whole run, which the user names."""
        return self.whole or self.out


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, the same for all of its targets."""

    where: Where
    package: Package
    what: What = field(default_factory=What)
    build: Build = field(default_factory=Build)
    limits: Limits = field(default_factory=Limits)

    def placed(self, **changes: Any) -> RunOptions:
        """Return the same options with another place: `changes` are fields of `where`."""
        return replace(self, where=replace(self.where, **changes))
