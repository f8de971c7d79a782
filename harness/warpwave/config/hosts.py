"""`hosts.yml` → `Host`: on which machine each leg of a run has its card. Strict: a wrong key or value is refused with the file, the key
path, what was found and what is allowed. A package may bring a hosts.yml, and its author is a stranger: such a file says where to run, but
not to run outside of a container."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator

from warpwave.config.files import read_yaml, refusal, refuse, validate
from warpwave.config.package import ALLOWED, not_allowed
from warpwave.config.targets import Target
from warpwave.errors import ConfigError
from warpwave.records.registry import ENGINES
from warpwave.records.words import record

# What a value of hosts.yml may be. Values reach ssh, sbatch and remote shells, so each has a narrow type; nothing begins with a dash.

_LONGEST = 1024
# ssh(1) takes `host`, `user@host` and `ssh://user@host:port`; a name of ~/.ssh/config is a host.
_DESTINATION = re.compile(r"(ssh://)?([\w.+%-]+@)?(\[[0-9a-fA-F:.%]+\]|[\w.:%-]+)/?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}", re.ASCII)
_WORD = re.compile(r"[\w.:,=+*/()\[\]@%-]+", re.ASCII)
_TIME = re.compile(r"\d{1,5}|\d{1,4}(:\d{1,2}){1,2}|\d{1,3}-\d{1,2}(:\d{1,2}){0,2}", re.ASCII)
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# warpwave sets these options of sbatch itself, or they would run a program where the user is.
_OWN = (
    "array bcast bcast-exclude chdir clusters epilog error export export-file get-user-env gid input job-name no-requeue open-mode output",
    "parsable prolog requeue signal task-epilog task-prolog test-only uid wait wrap",
)


def _text(allowed: str, fits: Callable[[str], Any]) -> Any:
    """Return a validator of a text: printable, not too long, without a leading dash, and of a given form."""

    def check(value: str) -> str:
        if len(value) > _LONGEST or not value.isprintable() or value.startswith("-") or (value and not fits(value)):
            refuse(allowed, repr(value if len(value) <= 80 else value[:79] + "…"))
        return value

    return AfterValidator(check)


def _clean_destination(value: str) -> bool:
    host = value.removeprefix("ssh://").rpartition("@")[2]
    return bool(_DESTINATION.fullmatch(value)) and not host.startswith("-")


def _check_time(value: Any) -> Any:
    if not isinstance(value, str):  # YAML reads 1:30:00 as the number 5400
        refuse('a time limit in quotes, such as "00:30:00"')
    return value


def _check_option(value: str) -> str:
    found = _OPTION.fullmatch(value)
    if found is None or len(value) > _LONGEST or not value.isprintable():
        refuse("an option of sbatch in one word, such as --constraint=h100")
    # Slurm accepts any unambiguous beginning of an option's name.
    if taken := [own for line in _OWN for own in line.split() if own.startswith(found[1])]:
        refuse(f"an option that warpwave does not set itself, and that starts no program: not --{taken[0]}")
    return value


def _whole(least: int, most: int) -> Any:
    def check(value: Any) -> Any:
        if type(value) is not int or not least <= value <= most:
            refuse(f"a whole number from {least} to {most}")
        return value

    return BeforeValidator(check)


def _check_variables(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name) or "\0" in text:
            refuse('a table of texts, such as {NAME: "VALUE"}', repr(name))
    return value


Destination = Annotated[str, _text("a destination of ssh, such as h100-01 or user@h100-01", _clean_destination)]
Name = Annotated[str, _text("a name of letters, digits and . _ + -", _NAME.fullmatch)]
Word = Annotated[str, _text("a word of letters, digits and . : , = + * / ( ) [ ] @ % _ -", _WORD.fullmatch)]
PathText = Annotated[str, _text("a path or an address in one line, without a leading dash", bool)]
Absolute = Annotated[str, _text("a path that begins with /", lambda value: value.startswith("/"))]
Time = Annotated[
    str, BeforeValidator(_check_time), _text('a time limit of Slurm in quotes, such as "00:30:00" or "1-12:00:00"', _TIME.fullmatch)
]
Option = Annotated[str, AfterValidator(_check_option)]
Variables = Annotated[dict[str, str], AfterValidator(_check_variables)]
_CARDS = re.compile(r"[\w,-]{1,200}", re.ASCII)
Gpu = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    _text("an index of a card, or several: 0,1", _CARDS.fullmatch),
]
Cards = Annotated[int, _whole(0, 64)]
Shards = Annotated[int, _whole(1, 64)]


_EXAMPLE = "docs/guides/hosts.md shows every key"
_MOST_LEGS = 256


@record(frozen=True)
class Slurm:
    """Options for sbatch. Each value is one word of the command; no shell reads it. `stage` is how files reach the node: `shared`, a file
    system that both see, or `sbcast`. `folder` is a folder on the shared file system for the job's files; by default the run's results
    folder."""

    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    time: Time = ""
    gpus: Cards = 1
    gres: Word = ""
    options: tuple[Option, ...] = ()
    stage: Literal["shared", "sbcast"] = "shared"
    folder: Absolute = ""


@record(frozen=True)
class Build:
    """What a host needs of its own to build images: a base image from its registry, build arguments."""

    base_image: Word = ""
    network: Word = ""
    args: Variables = field(default_factory=dict)


@record(frozen=True)
class Entry:
    """One leg as written in hosts.yml.

    `target` is what it runs; by default the target of the leg's name. `ssh` is a destination for ssh(1), anything that ~/.ssh/config
    knows; empty: this machine. `also` are more destinations, which share the leg's shards. `ssh_config` is a file for ssh's `-F`. `engine`
    runs the containers there, at `socket`. With `slurm`, `container` is the runtime, and `image` its .sif, .sqsh or address; `module` is
    loaded before. `python` is the interpreter where no container is used. `gpu` is the index of the card, or several: 0,1. `shards` divides
    the package. `runner` are the labels of the CI runner that has this card.
    """

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


def load_hosts(path: Path, targets: Mapping[str, Target], *, trusted: bool = True) -> dict[str, Host]:
    """Return every leg of a hosts file by name. `trusted`: the user wrote or named the file, so it may give up protections. Raises
    ConfigError if the file is missing, is not YAML, or contains something that is not allowed."""
    raw = read_yaml(path, "hosts file", _EXAMPLE, "a mapping of legs, such as cuda: {ssh: h100-01}")
    if not 0 < len(raw) <= _MOST_LEGS:
        raise refusal(path, "(top level)", f"{len(raw)} legs", f"1 to {_MOST_LEGS}", _EXAMPLE)
    for name in raw:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith(".py") or ".." in name:
            raise refusal(path, "(top level)", repr(name)[:80], "a name of a leg: letters, digits and . _ + -, not ending in .py", _EXAMPLE)
    entries = validate(dict[str, Entry], {name: _spread(entry) for name, entry in raw.items()}, path, _EXAMPLE)
    return {name: _checked(name, entry, targets, path, trusted) for name, entry in entries.items()}


def _spread(entry: Any) -> Any:
    """Return an entry whose `ssh` is one destination: of a list, the others go to `also`."""
    if isinstance(entry, dict) and isinstance(entry.get("ssh"), list) and entry["ssh"] and "also" not in entry:
        return {**entry, "ssh": entry["ssh"][0], "also": entry["ssh"][1:]}
    return entry


def _checked(name: str, entry: Entry, targets: Mapping[str, Target], path: Path, trusted: bool) -> Host:
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
