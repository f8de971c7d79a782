"""`docker/targets.yml` (and a file of the user's laid over it) → `Target`. Strict: a wrong key or value is refused with the file, the key
path, what was found and what is allowed."""

from __future__ import annotations

import difflib
import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, TypeAdapter

from warpwave.config.files import keys, refusal, validate
from warpwave.config.names import EXAMPLE, read_targets, state_of
from warpwave.errors import ConfigError, UsageError
from warpwave.records import CHOSEN, EMULATED, MOST_SECONDS, ROCJITSU, Architecture, Cap, Card, Limits, Stage, with_card
from warpwave.records.registry import DEFAULT, FALLBACK, HERE
from warpwave.records.run import Linker, Toolchain, Toolchains
from warpwave.records.words import record

State = Literal["fail", "warn", "skip"]


@record(frozen=True)
class Check:
    """One question. It reads the output of a command (`run`), files (`files`, glob patterns) or what the container engine says (`engine`).

    `rows` is a pattern; each match is a row with named groups, and there must be at least one. `bad` is a pattern that must not match.
    Every row must keep to `at_least` (a version), `at_most` (a number) and `equal` (a pattern of the whole value), by name of the group.
    `count` is a glob pattern: there must be as many rows as paths. `shown` is the text for a row, with `{group}` in it; without `rows`, the
    text if nothing is `bad`. Set `container` if the check matters only when a container engine hands out the card, or an image brings the
    vendor's libraries. If several checks have one name, only the first whose command or file exists is asked. States: `absent` if none
    exists, `refused` if the command fails, `breach` if a rule is broken. `limit_s` is in seconds.
    """

    name: str
    fix: str
    run: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    engine: bool = False
    container: bool = False
    rows: Union[str, None] = None
    bad: Union[str, None] = None
    at_least: dict[str, str] = field(default_factory=dict)
    at_most: dict[str, float] = field(default_factory=dict)
    equal: dict[str, str] = field(default_factory=dict)
    count: Union[str, None] = None
    shown: str = ""
    absent: State = "fail"
    refused: State = "fail"
    breach: Literal["fail", "warn"] = "fail"
    limit_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse a check that could never be answered: pydantic turns a ValueError into a refusal with the key's path."""
        if (bool(self.run) + bool(self.files) + self.engine) != 1:
            raise ValueError("exactly one of run, files and engine")
        for pattern in (self.rows, self.bad, *self.equal.values()):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"a regular expression; {pattern!r} is none: {error}") from None
        groups = re.compile(self.rows or "").groupindex
        if unknown := {*self.at_least, *self.at_most, *self.equal, *re.findall(r"\{(\w+)\}", self.shown)} - {*groups, "path"}:
            raise ValueError(f"groups that `rows` names; it does not name {', '.join(sorted(unknown))}")


@record(frozen=True)
class Doctor:
    """How to find out that a vendor's card is in a machine, and what to ask then. `pci` is the vendor's number on the bus, `0x` and four
    digits. `no_driver` is the fix if a card is there without its driver."""

    pci: Union[str, None] = None
    no_driver: str = ""
    checks: tuple[Check, ...] = ()


if TYPE_CHECKING:
    _EngineName = str
    _ChosenStage = Stage
else:  # what a targets file may say, for pydantic and for the schema
    _EngineName = Literal[tuple(HERE)]
    _ChosenStage = Literal[CHOSEN]


@record(frozen=True)
class Image:
    """The source of a target's environment. `base` and `digest` name the vendor's image. The Dockerfile is next to the YAML file. `locks`
    is what the names of its locks begin with: `locks/<locks>-py3.12.txt` beside the Dockerfile. Targets with the same packages can share
    them. Left out, it is the target's name."""

    dockerfile: str
    base: str
    digest: Union[str, None] = None
    locks: Union[str, None] = None
    build_args: dict[str, str] = field(default_factory=dict)


@record(frozen=True)
class Devices:
    """How a container gets access to the GPUs. `gpus`: a device request, as `docker run --gpus`. `cdi`: a CDI device name; `{gpu}` in it
    becomes the index asked for, or `all`. `nodes`: glob patterns of device nodes. `volumes`: `source:destination[:ro]`. `groups`: numeric
    ids, added to those of the nodes. `apptainer`: options of `apptainer exec`, on a Slurm site."""

    gpus: bool = False
    cdi: Union[str, None] = None
    nodes: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    groups_from_nodes: bool = False
    apptainer: tuple[str, ...] = ()


@record(frozen=True)
class Cards:
    """A command that prints facts about each card that torch does not report, and a pattern for its lines. The group `uuid` identifies the
    card, as in torch. Each other group is a fact with the group's name. The report shows cards that share the work and differ in a fact."""

    run: tuple[str, ...] = ()
    rows: str = ""


@record(frozen=True)
class Probe:
    """Checks of the environment before any kernel runs: a torch attribute that must be set, and a command that must succeed. `driver_file`
    contains the version of the kernel driver. `fix` is the advice for the user if the probe fails. `faults` maps patterns of the runtime's
    output, when it aborts a process because of the GPU, to verdicts."""

    require: Union[str, None] = None
    command: tuple[str, ...] = ()
    driver_file: Union[str, None] = None
    fix: str = ""
    faults: dict[str, Literal["crashed", "gpu-hang", "oom"]] = field(default_factory=dict)
    cards: Cards = field(default_factory=Cards)


@record(frozen=True)
class Entry:
    """One target as written in the YAML file. `emulate` is an architecture, or `rocjitsu`, which simulates the first of `architectures`.
    `quick` are those of its `architectures` that a quick run compiles for; all if empty."""

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
    quick: tuple[str, ...] = ()


@record(frozen=True)
class Builds:
    """How this user's images and environments are built, whatever the target. Paths are relative to the file. With `wheelhouse`, a folder
    of wheels, no package index is asked. pip trusts `ca_bundle` and reads `pip_config`. The build has this `network`, and the Dockerfile
    gets `args`."""

    wheelhouse: Union[Path, None] = None
    ca_bundle: Union[Path, None] = None
    pip_config: Union[Path, None] = None
    network: Union[str, None] = None
    args: dict[str, str] = field(default_factory=dict)


@record(frozen=True)
class Bounds:
    """How long this user waits for a GPU in use, and how much a target may write to its results."""

    gpu_wait_s: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = Limits.gpu_wait_s
    results_gib: Annotated[float, Field(gt=0)] = Cap.bytes / (1 << 30)
    results_files: Annotated[int, Field(ge=1)] = Cap.files


@record(frozen=True)
class File:
    """The whole YAML file."""

    schema_version: Literal[1]
    targets: dict[str, Entry]
    architectures: dict[str, Card] = field(default_factory=dict)
    toolchains: dict[str, Toolchain] = field(default_factory=dict)
    linker: Linker = field(default_factory=Linker)
    build: Builds = field(default_factory=Builds)
    limits: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True)
class Target:
    """One vendor's environment, ready for use: `dockerfile` is a path, `architectures` are resolved. `torch_devices` are torch's names for
    the types of device of all architectures in the file, the target's own first.
    `toolchain` is set for a leg on one. `entry` is its name in the targets file: a leg may have another `name`."""

    name: str
    label: str
    engine: str
    stages: tuple[Stage, ...]
    python: str
    interpret: bool
    interpret_as: Union[Architecture, None]
    emulate: Union[Architecture, None]
    rocjitsu: Union[Architecture, None]
    image: Image
    dockerfile: Path
    devices: Devices
    environment: dict[str, str]
    visible_devices: Union[str, None]
    probe: Probe
    doctor: Doctor
    architectures: tuple[Architecture, ...]
    quick: tuple[str, ...]
    torch_devices: tuple[str, ...]
    toolchain: Union[Toolchain, None] = None
    entry: str = ""

    @property
    def kind(self) -> str:
        """The name of the target in the targets file. Targets of one kind share images, locked packages and cards."""
        return self.entry or self.name

    @property
    def has_card(self) -> bool:
        """Whether it uses a GPU. If not, there is no driver or device to check."""
        return bool(self.probe.driver_file or self.devices.nodes or self.devices.gpus or self.devices.cdi)

    @property
    def needs_card(self) -> bool:
        """Whether its tests run on a real GPU."""
        return not self.interpret and self.emulated is None

    @property
    def emulated(self) -> Union[Architecture, None]:
        """The card that is emulated, by warpwave or by rocJITsu."""
        return self.emulate or self.rocjitsu


def load_targets(overlay: Path | None = None) -> dict[str, Target]:
    """Return every target by name: those of the shipped file, overridden by the entries of `overlay`. Raises ConfigError if a file is
    missing, is not YAML, or contains something that is not allowed."""
    file, folders, where = _load(overlay)
    cards = _described(file, where)
    return {name: _resolve(name, entry, folders[name], cards, where) for name, entry in file.targets.items()}


def load_architectures(overlay: Path | None = None) -> dict[str, Architecture]:
    """Return the architectures of the same files by name. Raises as above."""
    file, _, where = _load(overlay)
    return _described(file, where)


def load_toolchains(overlay: Path | None = None) -> Toolchains:
    """Return the toolchains of the same files. Raises as above."""
    file, _, where = _load(overlay)
    for name, entry in file.toolchains.items():
        if entry.name or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,79}", name):
            raise _refusal(where, f"toolchains.{name}", "such a name", "letters, digits and . _ + - as the key, and no key `name` below it")
    return Toolchains({name: replace(entry, name=name) for name, entry in file.toolchains.items()}, file.linker)


def load_builds(overlay: Path | None) -> tuple[Builds, Bounds]:
    """Return how the user's own file builds, and what it limits. Raises as above."""
    if overlay is None:
        return Builds(), Bounds()
    file = _load(overlay)[0]
    paths: dict[str, Any] = {name: overlay.resolve().parent / path for name, path in vars(file.build).items() if isinstance(path, Path)}
    return replace(file.build, **paths), file.limits


def _load(overlay: Path | None) -> tuple[File, dict[str, Path], Path]:
    """Return the content of the files, the folder of each target's Dockerfile, and the path for messages."""
    return _parsed(*state_of(overlay))


@functools.lru_cache(maxsize=2)
def _parsed(shipped: Path, overlay: Path | None, *state: object) -> tuple[File, dict[str, Path], Path]:
    """Do this once for each `state` of the files: a run asks four times."""
    (raw, own), where = read_targets(shipped, overlay, *state), overlay or shipped
    folders = dict.fromkeys(keys(raw["targets"]), shipped.parent)
    if overlay is not None:  # the path of a Dockerfile is relative to the file that names it
        folders.update({name: overlay.resolve().parent for name in keys(raw["targets"]) if _names_dockerfile(own, name)})
    return validate(File, raw, where, EXAMPLE), folders, where


def _names_dockerfile(extra: dict[str, Any], target: str) -> bool:
    value: Any = extra
    for key in ("targets", target, "image", "dockerfile"):
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None


def targets_schema() -> str:
    """Return the JSON Schema of a targets file, made from the types that read it."""
    return json.dumps(TypeAdapter(File).json_schema(), indent=1) + "\n"


def named_architectures(text: str, known: Mapping[str, Architecture], option: str) -> tuple[Architecture, ...]:
    """Return what a list with commas means, each once and in its order; `all` means every one. Reports show the card that was named:
    MI355X, which is a gfx950 as MI350X is. `option` is named in errors. Raises UsageError if a name is unknown."""
    if text.strip().lower() == "all":
        return tuple(known.values())
    found: dict[str, Architecture] = {}
    for name in filter(str.strip, text.split(",")):
        if (meant := _meant(name, known)) is None:
            like = nearest(name, known)
            names = ", ".join(with_card(card.name, ", ".join((*card.also, *card.cards))) for card in known.values())
            happened = f"{option}: there is no card or architecture named {name!r}."
            meaning = f"The nearest is {like}." if like else "The targets file does not describe it."
            raise UsageError(happened, meaning, f"Choose from: {names}. A targets file of your own (--targets) can describe more.")
        said, card = meant
        others = tuple(other for other in card.cards if other != said)
        found.setdefault(card.name, replace(card, cards=(said, *others)) if said in card.cards else card)
    return tuple(found.values())


def without_card(name: str, overlay: Path | None = None) -> tuple[Architecture, bool]:
    """Return the card that a name stands for where there is none, and whether its machine code is emulated: of a target, or of a card.
    Raises UsageError if there is neither, or the target needs its card, and ConfigError as in `load_targets`."""
    targets = load_targets(overlay)
    if name in targets:
        target = targets[name]
        card = target.emulate or (target.interpret_as if target.interpret else None)
        if card is None:
            able = [one.name for one in targets.values() if not one.needs_card]
            raise UsageError(f"{name} needs its card.", "Its tests run on it.", f"Choose from {', '.join(able)}, or name a card.")
        return card, target.emulate is not None
    (card,) = named_architectures(name.replace(",", " "), load_architectures(overlay), "--warpwave")
    return card, card.can_emulate


def compiling_for(target: Target, chosen: Sequence[Architecture]) -> Target:
    """Return the target, compiling for these architectures alone; as it is if there are none. Interpreted host code sees the first."""
    first = chosen[0] if target.interpret and chosen else target.interpret_as
    return replace(target, architectures=tuple(chosen), quick=(), interpret_as=first) if chosen else target


def _resolve(name: str, entry: Entry, folder: Path, cards: dict[str, Architecture], where: Path) -> Target:
    entry = _with_keys(name, entry, cards, where)
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
    resolved = ("architectures", "interpret_as", "emulate", "rocjitsu")
    values = {key: getattr(entry, key) for key in (f.name for f in fields(Entry)) if key not in resolved}
    own = tuple(cards[arch] for arch in entry.architectures)
    emulate = cards[entry.emulate] if entry.emulate and entry.emulate != ROCJITSU else None
    first = (*(cards[arch] for arch in entry.quick), *own, *cards.values())
    seen = cards[entry.interpret_as] if entry.interpret_as else next(iter(first), None)
    pretended = [card for card in (emulate, seen) if card]
    devices = tuple(dict.fromkeys(card.torch_device for card in (*pretended, *own, *cards.values()))) or ("cuda",)
    return Target(
        name=name,
        dockerfile=folder / entry.image.dockerfile,
        architectures=own,
        interpret_as=seen,
        emulate=emulate,
        rocjitsu=own[0] if entry.emulate == ROCJITSU else None,
        torch_devices=devices,
        **values,
    )


def _with_keys(name: str, entry: Entry, known: dict[str, Architecture], where: Path) -> Entry:
    """Return the entry with the key of each architecture, whatever it calls it."""

    def key(path: str, text: str) -> str:
        if (card := named(text, known)) is None:
            like = nearest(text, known)
            allowed = f"one of {', '.join(card.shown for card in known.values())}"
            raise _refusal(where, f"targets.{name}.{path}", repr(text), f"{allowed}; the nearest is {like}" if like else allowed)
        return card.name

    def keys_of(path: str, texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(key(f"{path}[{position}]", text) for position, text in enumerate(texts))

    return replace(
        entry,
        architectures=keys_of("architectures", entry.architectures),
        quick=keys_of("quick", entry.quick),  # one that the target does not compile for is allowed: a file may replace `architectures` only
        interpret_as=key("interpret_as", entry.interpret_as) if entry.interpret_as is not None else None,
        emulate=entry.emulate if entry.emulate in (None, ROCJITSU) else key("emulate", entry.emulate),
    )


def _check_emulated(name: str, entry: Entry, cards: dict[str, Architecture], where: Path) -> None:
    """Refuse what makes no sense for a target whose tests run on no card."""
    able = [card.name for card in cards.values() if card.can_emulate]
    if entry.emulate == ROCJITSU:
        if not entry.architectures or entry.engine != FALLBACK:
            allowed = f"`engine: {FALLBACK}` beside it, and an architecture: rocJITsu simulates the first one"
            raise _refusal(where, f"targets.{name}.emulate", repr(entry.emulate), allowed)
    elif entry.emulate not in able:
        raise _refusal(where, f"targets.{name}.emulate", repr(entry.emulate), f"an architecture with `can_emulate`: {', '.join(able)}")
    if EMULATED not in name:
        allowed = f"a name with {EMULATED!r} in it, such as {entry.emulate}-{EMULATED}: every table shows a result beside this name"
        raise _refusal(where, f"targets.{name}", "a target with `emulate`", allowed)
    if Stage.BENCH in entry.stages:
        raise _refusal(where, f"targets.{name}.stages", "bench", "test and compile: emulated targets measure nothing")
    for key in ("interpret", "interpret_as"):
        if getattr(entry, key):
            raise _refusal(where, f"targets.{name}.{key}", "it beside `emulate`", "one of the two: tests run in one place")


def _described(file: File, where: Path) -> dict[str, Architecture]:
    for name, card in file.architectures.items():
        for key in ("multiprocessor_count", "max_shared_mem"):
            if key not in card.properties:
                raise _refusal(where, f"architectures.{name}.properties.{key}", "nothing", "a number: host code asks every card for it")
    return {name: Architecture(name=name, **vars(card)) for name, card in file.architectures.items()}


def _names_a_card(rows: str) -> bool:
    try:
        return "uuid" in re.compile(rows).groupindex
    except re.error:
        return False


def _refusal(path: Path, where: str, found: str, allowed: str) -> ConfigError:
    return refusal(path, where, found, allowed, EXAMPLE)


# What people call an architecture: its key in the targets file, or one of the names that the file has for it.

_SUFFIX = re.compile(r"(:[a-z]+[+-])+$")  # behind the name of an ISA: `:sramecc+:xnack-`. Triton compiles for the name alone
_BUILT = re.compile(r"\d+gb|hbm\d?e?|sxm\d?|pcie|nvl|oam|vf")  # behind the name of a card: its memory, and how it is built
_ALIKE = 0.6  # a name that is less like the typed one says nothing

Architectures = Mapping[str, Architecture]


def named(text: str, known: Architectures) -> Architecture | None:
    """Return the architecture that a text names, in any case, with or without spaces and dashes; None if none has that name. `7900xtx` and
    `AMD Radeon RX 7900 XTX` are the card RX 7900 XTX, `H100-SXM5-80GB` is H100, `amdgcn--gfx942:sramecc+` is gfx942.
    """
    meant = _meant(text, known)
    return meant[1] if meant else None


def _meant(text: str, known: Architectures) -> tuple[str, Architecture] | None:
    """Return the same, with that of its names that was meant."""
    words = _spelling(_SUFFIX.sub("", text.strip().lower().rpartition("--")[2]))
    while len(words) > 1 and _BUILT.fullmatch(words[-1]):
        words.pop()
    brands = next((position for position, word in enumerate(words) if re.search(r"\d", word)), 0)  # words in front of the number
    spelt = _spelt(known)
    return next((spelt[word] for first in range(brands + 1) if (word := "".join(words[first:])) in spelt), None)


def nearest(text: str, known: Architectures) -> str:
    """Return the name that is most like a text, with the architecture's other name: `MI300X (gfx942)`, `gfx942 (MI300X)`; or nothing."""
    typed = "".join(_spelling(text.lower()))

    def likeness(spelling: str) -> tuple[float, int]:
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(typed, spelling, strict=False))
        return difflib.SequenceMatcher(None, typed, spelling).ratio(), len(list(same))

    spelt = _spelt(known)
    best = max(spelt, key=likeness, default="")
    if not best or likeness(best)[0] < _ALIKE:
        return ""
    name, card = spelt[best]
    return with_card(name, card.card if name == card.name else card.name)


def _spelt(known: Architectures) -> dict[str, tuple[str, Architecture]]:
    """Return each name with its architecture, by what is typed for it: `rx7900xtx` and `7900xtx`, `sm90`."""
    found: dict[str, tuple[str, Architecture]] = {}
    for card in known.values():
        for name in (card.name, *card.also, *card.cards):
            words = _spelling(name.lower())
            for first in range(len(words)):
                typed = "".join(words[first:])
                if first == 0 or re.search(r"\d", typed):  # not `xtx`
                    found.setdefault(typed, (name, card))
    return found


def _spelling(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text)
