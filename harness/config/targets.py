"""`docker/targets.yml` (and a file of the user's laid over it) → `Target`.

Strict: a wrong key or value is refused with the file, the key path, what was found and what is allowed.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.config.strict import refusal, validate
from harness.config.target import Entry, File, Target
from harness.config.yaml_files import keys, merge, read_yaml
from harness.errors import ConfigError, UsageError
from harness.records import EMULATED, Architecture, Card, Stage
from harness.records.toolchain import Toolchains

_WHAT, _EXAMPLE = "targets file", "docker/targets.yml shows every key in use"


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
    file, folders, where = _load(overlay)
    cards = {name: _describe(name, card, where) for name, card in file.architectures.items()}
    return {name: _resolve(name, entry, folders[name], cards, where) for name, entry in file.targets.items()}


def load_toolchains(overlay: Path | None = None) -> Toolchains:
    """Return the toolchains of the same files. Raises as above."""
    file, _, where = _load(overlay)
    for name, entry in file.toolchains.items():
        if entry.name or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,79}", name):
            raise _refusal(where, f"toolchains.{name}", "such a name", "letters, digits and . _ + - as the key, and no key `name` below it")
    return Toolchains({name: replace(entry, name=name) for name, entry in file.toolchains.items()}, file.linker)


def _load(overlay: Path | None) -> tuple[File, dict[str, Path], Path]:
    """Return the content of the files, the folder of each target's Dockerfile, and the path for messages."""
    shipped = default_file()
    raw, where = read_yaml(shipped, _WHAT, _EXAMPLE), shipped
    folders = dict.fromkeys(raw["targets"], shipped.parent)
    if overlay is not None:
        extra, where = read_yaml(overlay, _WHAT, _EXAMPLE), overlay
        raw = merge(raw, extra)
        # The path of a Dockerfile is relative to the file that names it.
        folders.update({name: overlay.resolve().parent for name in keys(raw["targets"]) if _names_dockerfile(extra, name)})
    return validate(File, raw, where, _EXAMPLE), folders, where


def _names_dockerfile(extra: dict[str, Any], target: str) -> bool:
    value: Any = extra
    for key in ("targets", target, "image", "dockerfile"):
        value = value.get(key) if isinstance(value, dict) else None
    return value is not None


def targets_schema() -> str:
    """Return the JSON Schema of a targets file, made from the types that read it."""
    return json.dumps(TypeAdapter(File).json_schema(), indent=1) + "\n"


def select(targets: dict[str, Target], names: list[str]) -> list[Target]:
    """Return the named targets, in the given order.

    Raises:
        UsageError: a name is unknown.
    """
    for name in names:
        if name not in targets and Path(name).exists():
            kind, folder = ("folder", name) if Path(name).is_dir() else ("file", str(Path(name).parent))
            raise UsageError(
                f"There is no target named {name!r}, but a {kind}.",
                "Words behind `run` name targets; the folder of the kernels has an option of its own.",
                f"Choose a target ({', '.join(targets)}), and add --kernels {shlex.quote(folder)}.",
            )
        if name not in targets:
            raise UsageError(
                f"There is no target named {name!r}.",
                "The name is misspelt, or the file that defines it was not given with --targets.",
                f"Choose from: {', '.join(targets)}. `warpwave list` shows them with their images and stages.",
            )
    return [targets[name] for name in dict.fromkeys(names)]


def _resolve(name: str, entry: Entry, folder: Path, cards: dict[str, Architecture], where: Path) -> Target:
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
    # Not refused: one that the target does not compile for, since a file of the user's may replace its architectures only.
    if unknown := [arch for arch in entry.quick if arch not in cards]:
        raise _refusal(where, f"targets.{name}.quick", repr(unknown[0]), f"one of {', '.join(cards)}")
    if not entry.stages:
        raise _refusal(where, f"targets.{name}.stages", "an empty list", "at least one of test, bench, compile")
    if entry.emulate:
        _check_emulated(name, entry, cards, where)
    resolved = ("architectures", "interpret_as", "emulate")
    values = {key: getattr(entry, key) for key in (f.name for f in fields(Entry)) if key not in resolved}
    own = tuple(cards[arch] for arch in entry.architectures)
    emulate = cards[entry.emulate] if entry.emulate else None
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
        torch_devices=devices,
        **values,
    )


def _check_emulated(name: str, entry: Entry, cards: dict[str, Architecture], where: Path) -> None:
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


def _refusal(path: Path, where: str, found: str, allowed: str) -> ConfigError:
    return refusal(path, where, found, allowed, _EXAMPLE)
