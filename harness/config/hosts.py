"""`hosts.yml` → `Host`: on which machine each leg of a run has its card.

Strict: a wrong key or value is refused with the file, the key path, what was found and what is allowed. A package may bring a hosts.yml,
and its author is a stranger: such a file says where to run, but not to run outside of a container.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union

from harness.config.host_values import (
    Absolute,
    Cards,
    Destination,
    Gpu,
    Name,
    Option,
    PathText,
    Shards,
    Time,
    Variables,
    Word,
    is_leg_name,
)
from harness.config.package_variables import ALLOWED, not_allowed
from harness.config.strict import refusal, validate
from harness.config.target import Target
from harness.config.yaml_files import read_yaml
from harness.errors import ConfigError
from harness.records.registry.engines import ENGINES

FILE = "hosts.yml"
_STRICT = {"extra": "forbid"}
_EXAMPLE = "docs/guides/hosts.md shows every key"
_MOST_LEGS = 256


@dataclass(frozen=True)
class Slurm:
    """Options for sbatch. Each value is one word of the command; no shell reads it.

    `stage` is how files reach the node: `shared`, a file system that both see, or `sbcast`. `folder` is a folder on the shared file system
    for the job's files; by default the run's results folder.
    """

    __pydantic_config__ = _STRICT
    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    time: Time = ""
    gpus: Cards = 1
    gres: Word = ""
    options: tuple[Option, ...] = ()
    stage: Literal["shared", "sbcast"] = "shared"
    folder: Absolute = ""


@dataclass(frozen=True)
class Build:
    """What a host needs of its own to build images: a base image from its registry, build arguments."""

    __pydantic_config__ = _STRICT
    base_image: Word = ""
    network: Word = ""
    args: Variables = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One leg as written in hosts.yml.

    `target` is what it runs; by default the target of the leg's name. `ssh` is a destination for ssh(1), anything that ~/.ssh/config
    knows; empty: this machine. `also` are more destinations, which share the leg's shards. `ssh_config` is a file for ssh's `-F`. `engine`
    runs the containers there, at `socket`. With `slurm`, `container` is the runtime, and `image` its .sif, .sqsh or address; `module` is
    loaded before. `python` is the interpreter where no container is used. `gpu` is the index of the card, or several: 0,1. `shards` divides
    the package. `runner` are the labels of the CI runner that has this card.
    """

    __pydantic_config__ = _STRICT
    target: Name = ""
    ssh: Destination = ""
    also: tuple[Destination, ...] = ()
    ssh_config: PathText = ""
    engine: Literal["", "docker", "podman", "local"] = ""
    socket: Absolute = ""
    slurm: Union[Slurm, None] = None
    container: Literal["", "apptainer", "enroot", "pyxis", "none"] = ""
    image: PathText = ""
    python: PathText = ""
    module: tuple[Word, ...] = ()
    gpu: Gpu = ""
    shards: Shards = 1
    weaken: tuple[Name, ...] = ()
    environment: Variables = field(default_factory=dict)
    build: Build = field(default_factory=Build)
    runner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host(Entry):
    """Where one leg runs. `name` is the leg's name, `target` never empty. `trusted`: the user wrote or named the file that says so."""

    name: str = field(kw_only=True)
    trusted: bool = field(default=True, kw_only=True)

    @property
    def runs_with(self) -> str:
        """The name of the engine that runs jobs there; empty: the target's own engine, on this machine."""
        if self.slurm is not None:
            return "slurm"
        return "ssh" if self.ssh else "docker" if self.engine == "podman" else self.engine

    @property
    def where(self) -> str:
        """Where the leg runs, in words for a table."""
        if self.slurm is not None:
            place = f"slurm {self.slurm.partition}".rstrip()
            return f"{place} on {self.ssh}" if self.ssh else place
        return self.ssh or "this machine"


def find_hosts(kernels: Path, root: Path) -> Path | None:
    """Return the hosts file of a package, in the kernels folder or at the root, or else the user's own; None if there is none."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "warpwave"  # noqa: PTH111 - also without a home
    return next((path for folder in (kernels, root, own) if (path := folder / FILE).is_file()), None)


def load_hosts(path: Path, targets: Mapping[str, Target], *, trusted: bool = True) -> dict[str, Host]:
    """Return every leg of a hosts file by name. `trusted`: the user wrote or named the file, so it may give up protections.

    Raises:
        ConfigError: the file is missing, is not YAML, or contains something that is not allowed.
    """
    raw = read_yaml(path, "hosts file", _EXAMPLE, "a mapping of legs, such as cuda: {ssh: h100-01}")
    if not 0 < len(raw) <= _MOST_LEGS:
        raise refusal(path, "(top level)", f"{len(raw)} legs", f"1 to {_MOST_LEGS}", _EXAMPLE)
    for name in raw:
        if not isinstance(name, str) or not is_leg_name(name):
            raise refusal(path, "(top level)", repr(name)[:80], "a name of a leg: letters, digits and . _ + -, not ending in .py", _EXAMPLE)
    entries = validate(dict[str, Entry], {name: _spread(entry) for name, entry in raw.items()}, path, _EXAMPLE)
    return {name: _checked(name, entry, targets, path, trusted) for name, entry in entries.items()}


def _spread(entry: Any) -> Any:
    """Return an entry whose `ssh` is one destination: of a list, the others go to `also`."""
    if isinstance(entry, dict) and isinstance(entry.get("ssh"), list) and entry["ssh"] and "also" not in entry:
        return {**entry, "ssh": entry["ssh"][0], "also": entry["ssh"][1:]}
    return entry


def _checked(name: str, entry: Entry, targets: Mapping[str, Target], path: Path, trusted: bool) -> Host:
    """Return a leg, after checking what its keys mean together."""

    def refused(key: str, found: str, allowed: str) -> ConfigError:
        return refusal(path, f"{name}.{key}", found, allowed, _EXAMPLE)

    host = Host(**{**vars(entry), "target": entry.target or name}, name=name, trusted=trusted)
    if host.target not in targets:
        found = repr(entry.target) if entry.target else "nothing, and no target has the leg's name"
        raise refused("target", found, f"one of {', '.join(targets)}")
    if name in targets and name != host.target:
        raise refused("target", repr(host.target), f"{name!r}, the target of that name; or give the leg another name")
    if (emulated := targets[host.target].emulate) and "emulated" not in name:
        allowed = f"a leg with `emulated` in its name, such as {emulated.name}-emulated: every table shows a result beside this name"
        raise refused("target", repr(host.target), allowed)
    if host.slurm is None:
        for key in ("container", "image", "module"):
            if getattr(host, key):
                raise refused(key, "it without `slurm`", "`slurm` beside it: Docker and Podman use the target's own image")
    elif host.engine or host.socket:
        raise refused("engine" if host.engine else "socket", "it beside `slurm`", "`container`, which names the runtime of a Slurm site")
    elif not host.container:
        allowed = "the site's runtime: apptainer, enroot or pyxis; or none, with `python`: kernels then run with all of your rights"
        raise refused("container", "nothing beside `slurm`", allowed)
    if host.also and not host.ssh:
        raise refused("also", "it without `ssh`", "`ssh` beside it")
    if not trusted:
        for name in not_allowed(host.environment, path.parent):
            raise refused(f"environment.{name}", repr(host.environment[name]), ALLOWED)
        for key, value in _gives_up(host).items():
            raise refused(key, value, "this key in a file of yours only, named by --hosts: it reaches beyond the container")
    return host


def _gives_up(host: Host) -> dict[str, str]:
    """Return the keys with which a leg leaves the container, gives up a protection, or starts a program on the user's side."""
    keys = {key: repr(getattr(host, key)) for key in ("ssh_config", "socket", "python", "module", "weaken") if getattr(host, key)}
    keys |= {"engine": repr(host.engine)} if host.engine in ENGINES and not ENGINES[host.engine].container else {}
    keys |= {f"build.{key}": repr(value) for key, value in vars(host.build).items() if value}
    keys |= {"container": "'none'"} if host.container == "none" else {}
    return keys | ({"slurm.options": repr(host.slurm.options)} if host.slurm and host.slurm.options else {})
