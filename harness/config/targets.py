"""`docker/targets.yml` (and a file of the user's laid over it) → `Target`. The only file of the harness that reads YAML.

Strict: a wrong key or value is refused with the file, the key path, what was found and what is allowed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

import yaml
from pydantic import TypeAdapter

from harness.config.doctor_checks import Doctor
from harness.config.strict import refusal, validate
from harness.errors import ConfigError, UsageError
from harness.records import CHOSEN, EMULATED, Architecture, Card, Stage
from harness.records.engines import DEFAULT, ENGINES

_STRICT = {"extra": "forbid"}
_EXAMPLE = "docker/targets.yml shows every key in use"
if TYPE_CHECKING:
    _EngineName = str
    _ChosenStage = Stage
else:  # what a targets file may say, for pydantic and for the schema
    _EngineName = Literal[tuple(ENGINES)]
    _ChosenStage = Literal[CHOSEN]


@dataclass(frozen=True)
class Image:
    """The source of a target's environment. `base` and `digest` name the vendor's image. The Dockerfile is next to the YAML file."""

    __pydantic_config__ = _STRICT
    dockerfile: str
    base: str
    digest: Union[str, None] = None
    build_args: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Devices:
    """How a container gets access to the GPUs.

    `gpus`: a device request, as `docker run --gpus`. `cdi`: a CDI device name; `{gpu}` in it becomes the index asked for, or `all`.
    `nodes`: glob patterns of device nodes. `volumes`: `source:destination[:ro]`. `groups`: numeric ids, added to those of the nodes.
    """

    __pydantic_config__ = _STRICT
    gpus: bool = False
    cdi: Union[str, None] = None
    nodes: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    groups_from_nodes: bool = False


@dataclass(frozen=True)
class Cards:
    """A command that prints facts about each card that torch does not report, and a pattern for its lines. The group `uuid` identifies the
    card, as in torch. Each other group is a fact with the group's name. The report shows cards that share the work and differ in a fact."""

    __pydantic_config__ = _STRICT
    run: tuple[str, ...] = ()
    rows: str = ""


@dataclass(frozen=True)
class Probe:
    """Checks of the environment before any kernel runs: a torch attribute that must be set, and a command that must succeed.

    `driver_file` contains the version of the kernel driver. `fix` is the advice for the user if the probe fails. `faults` maps patterns of
    the runtime's output, when it aborts a process because of the GPU, to verdicts.
    """

    __pydantic_config__ = _STRICT
    require: Union[str, None] = None
    command: tuple[str, ...] = ()
    driver_file: Union[str, None] = None
    fix: str = ""
    faults: dict[str, Literal["crashed", "gpu-hang", "oom"]] = field(default_factory=dict)
    cards: Cards = field(default_factory=Cards)


@dataclass(frozen=True)
class _Entry:
    """One target as written in the YAML file."""

    __pydantic_config__ = _STRICT
    label: str
    image: Image
    stages: tuple[_ChosenStage, ...]
    engine: _EngineName = DEFAULT
    python: str = "python3"
    interpret: bool = False
    interpret_as: Union[str, None] = None
    emulate: Union[str, None] = None
    devices: Devices = field(default_factory=Devices)
    environment: dict[str, str] = field(default_factory=dict)
    visible_devices: Union[str, None] = None
    probe: Probe = field(default_factory=Probe)
    doctor: Doctor = field(default_factory=Doctor)
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True)
class _File:
    """The whole YAML file."""

    __pydantic_config__ = _STRICT
    schema_version: Literal[1]
    targets: dict[str, _Entry]
    architectures: dict[str, Card] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """One vendor's environment, ready for use: `dockerfile` is a path, `architectures` are resolved. `torch_devices` are torch's names for
    the types of device of all architectures in the file, the target's own first."""

    name: str
    label: str
    engine: str
    stages: tuple[Stage, ...]
    python: str
    interpret: bool
    interpret_as: Union[Architecture, None]
    emulate: Union[Architecture, None]
    image: Image
    dockerfile: Path
    devices: Devices
    environment: dict[str, str]
    visible_devices: Union[str, None]
    probe: Probe
    doctor: Doctor
    architectures: tuple[Architecture, ...]
    torch_devices: tuple[str, ...]

    @property
    def needs_card(self) -> bool:
        """Whether its tests run on a real GPU."""
        return not self.interpret and self.emulate is None


def default_file() -> Path:
    """Return the path of the shipped `targets.yml`: in the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "docker" / "targets.yml"
    return packaged if packaged.exists() else package.parent / "docker" / "targets.yml"


def load_targets(overlay: Path | None = None) -> dict[str, Target]:
    """Return every target by name: those of the shipped file, overridden by the entries of `overlay`.

    Raises:
        ConfigError: a file is missing, is not YAML, or contains something that is not allowed.
    """
    shipped = default_file()
    raw, where = _read(shipped), shipped
    folders = dict.fromkeys(raw["targets"], shipped.parent)
    if overlay is not None:
        extra, where = _read(overlay), overlay
        raw = _merge(raw, extra)
        # The path of a Dockerfile is relative to the file that names it.
        folders.update({name: overlay.resolve().parent for name in _keys(raw["targets"]) if _names_dockerfile(extra, name)})
    file = validate(_File, raw, where, _EXAMPLE)
    cards = {name: _describe(name, card, where) for name, card in file.architectures.items()}
    return {name: _resolve(name, entry, folders[name], cards, where) for name, entry in file.targets.items()}


def _names_dockerfile(extra: dict[str, Any], target: str) -> bool:
    value: Any = extra
    for key in ("targets", target, "image", "dockerfile"):
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None


def targets_schema() -> str:
    """Return the JSON Schema of a targets file, made from the types that read it."""
    return json.dumps(TypeAdapter(_File).json_schema(), indent=1) + "\n"


def select(targets: dict[str, Target], names: list[str]) -> list[Target]:
    """Return the named targets, in the given order.

    Raises:
        UsageError: a name is unknown.
    """
    for name in names:
        if name not in targets:
            raise UsageError(
                f"There is no target named {name!r}.",
                "The name is misspelt, or the file that defines it was not given with --targets.",
                f"Choose from: {', '.join(targets)}. `warpwave list` shows them with their images and stages.",
            )
    return [targets[name] for name in dict.fromkeys(names)]


def _resolve(name: str, entry: _Entry, folder: Path, cards: dict[str, Architecture], where: Path) -> Target:
    named = {f"architectures[{position}]": arch for position, arch in enumerate(entry.architectures)}
    for key, arch in {**named, "interpret_as": entry.interpret_as, "emulate": entry.emulate}.items():
        if arch is not None and arch not in cards:
            raise _refusal(where, f"targets.{name}.{key}", repr(arch), f"one of {', '.join(cards)}")
    for pattern in entry.probe.faults:
        try:
            re.compile(pattern)
        except re.error as error:
            raise _refusal(where, f"targets.{name}.probe.faults", repr(pattern), f"a regular expression ({error})") from None
    if entry.probe.cards.run and not _names_a_card(entry.probe.cards.rows):
        allowed = "a regular expression with a group `uuid`"
        raise _refusal(where, f"targets.{name}.probe.cards.rows", repr(entry.probe.cards.rows), allowed)
    if not entry.stages:
        raise _refusal(where, f"targets.{name}.stages", "an empty list", "at least one of test, bench, compile")
    if entry.emulate:
        _check_emulated(name, entry, cards, where)
    resolved = ("architectures", "interpret_as", "emulate")
    values = {key: getattr(entry, key) for key in (f.name for f in fields(_Entry)) if key not in resolved}
    own = tuple(cards[arch] for arch in entry.architectures)
    emulate = cards[entry.emulate] if entry.emulate else None
    seen = cards[entry.interpret_as] if entry.interpret_as else next(iter((*own, *cards.values())), None)
    first = [card for card in (emulate, seen) if card]
    devices = tuple(dict.fromkeys(card.torch_device for card in (*first, *own, *cards.values()))) or ("cuda",)
    dockerfile = folder / entry.image.dockerfile
    return Target(name=name, dockerfile=dockerfile, architectures=own, interpret_as=seen, emulate=emulate, torch_devices=devices, **values)


def _check_emulated(name: str, entry: _Entry, cards: dict[str, Architecture], where: Path) -> None:
    """Refuse what makes no sense for a target whose tests run on no card."""
    able = [card.name for card in cards.values() if card.can_emulate]
    if entry.emulate not in able:
        raise _refusal(where, f"targets.{name}.emulate", repr(entry.emulate), f"an architecture with `can_emulate`: {', '.join(able)}")
    if EMULATED not in name:
        allowed = f"a name with {EMULATED!r} in it, such as {entry.emulate}-{EMULATED}: every table shows a result beside this name"
        raise _refusal(where, f"targets.{name}", "a target with `emulate`", allowed)
    if Stage.BENCH in entry.stages:
        raise _refusal(where, f"targets.{name}.stages", "bench", "test and compile: emulated targets measure nothing")
    for key in ("interpret", "interpret_as"):
        if getattr(entry, key):
            raise _refusal(where, f"targets.{name}.{key}", "it beside `emulate`", "one of the two: tests run in one place")


def _describe(name: str, card: Card, where: Path) -> Architecture:
    for key in ("multiprocessor_count", "max_shared_mem"):
        if key not in card.properties:
            raise _refusal(where, f"architectures.{name}.properties.{key}", "nothing", "a number: host code asks every card for it")
    return Architecture(name=name, **vars(card))


def _names_a_card(rows: str) -> bool:
    try:
        return "uuid" in re.compile(rows).groupindex
    except re.error:
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"There is no targets file at {path}.", "The path given with --targets is misspelt.", "Give the path of an existing YAML file."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "It is a folder, or not a text file.", "Give a UTF-8 YAML file.") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # its dates, its numbers, its depth
        happened = f"{path} is not valid YAML: {' '.join(str(error).split())}."
        raise ConfigError(happened, "Usually the indentation is off, or a `:` needs quotes.", "Fix the line named above.") from None
    if not isinstance(content, dict):
        raise _refusal(path, "(top level)", repr(content)[:80], "a mapping with schema_version, targets and, optionally, architectures")
    return content


def _keys(value: Any) -> list[str]:
    """Return the keys of a mapping, or nothing for any other value: validation reports that later."""
    return list(value) if isinstance(value, dict) else []


def _merge(below: Any, above: Any) -> Any:
    """Merge `above` into `below`: mappings key by key; any other value of `above` replaces that of `below`."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return above


def _refusal(path: Path, where: str, found: str, allowed: str) -> ConfigError:
    return refusal(path, where, found, allowed, _EXAMPLE)
