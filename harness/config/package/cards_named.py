"""For which cards a package keeps settings, by the names of its files: `configs/gfx942-GEMM.json`, `device_name=H100.json`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from harness.config.package.root import import_folders
from harness.config.target import Target
from harness.records import Architecture

_SETTINGS = frozenset({".json", ".yaml", ".yml", ".toml", ".csv"})
_MOST_FILES = 50_000
_MODEL = re.compile(r"[a-z]{1,3}\d{2,4}[a-z]?")  # of a card: H100, MI300X


def card_for(target: Target, root: Path) -> Architecture | None:
    """Return the card that host code should see where kernels are interpreted: the target's own, if the package does not decide.

    Host code reads settings by the card's name. A package with settings for one vendor's cards alone would find none on another's. A card
    that the targets file names stays.
    """
    seen = target.interpret_as
    if seen is None or target.interpret_as_named:
        return seen
    paths = [f"/{path.lower()}" for path in itertools.islice(_settings(root), _MOST_FILES)]
    kept_for = [card for card in (seen, *target.architectures) if _are_named(paths, _vendor(card), *_names(card))]
    if not kept_for or any(card.backend == seen.backend for card in kept_for):
        return seen
    return next((card for card in kept_for if _are_named(paths, *_names(card))), kept_for[0])


def note(target: Target, card: Architecture | None, root: Path) -> tuple[str, ...]:
    """Return what a user should know of a card that the package has decided on."""
    if card is None or target.interpret_as is None or card == target.interpret_as:
        return ()
    return (
        f"in Triton's interpreter, host code sees {card.name}: {root.name} keeps settings for it, and none for {target.interpret_as.name}; "
        "interpret_as in a targets file names another",
    )


def _settings(root: Path) -> Iterator[str]:
    """Yield the files of settings in the package's importable folders, relative to each."""
    for folder in import_folders(root):
        for package in sorted((root / folder).glob("*/__init__.py")):
            for path in package.parent.rglob("*"):
                if path.suffix in _SETTINGS:
                    yield path.relative_to(package.parent).as_posix()


def _names(card: Architecture) -> list[str]:
    """Return what a file for a card is called by: its architecture, and its model."""
    return [card.name.replace("_", "_?"), *(word for word in _words(card) if _MODEL.fullmatch(word))]


def _vendor(card: Architecture) -> str:
    """Return the first word of the name that a card's driver gives it."""
    return next(iter(_words(card)), card.name)


def _words(card: Architecture) -> list[str]:
    return re.findall(r"[a-z0-9]+", str(card.torch_properties.get("name", "")).lower())


def _are_named(paths: list[str], *names: str) -> bool:
    found = re.compile(rf"(?<![a-z0-9])({'|'.join(names)})(?![a-z0-9])")
    return any(found.search(path) for path in paths)
