"""Names that a user types, checked by what the files say before they are validated: pydantic alone takes longer than such an answer."""

from __future__ import annotations

import difflib
import functools
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from warpwave.config.files import default_file, keys, merge, read_yaml
from warpwave.config.package import find_root
from warpwave.errors import UsageError

_WHAT, EXAMPLE = "targets file", "docs/reference/targets.md shows every key"
_HOSTS_FILE = "hosts.yml"
_MOST_LIKE = 3  # names for a misspelt one


def state_of(overlay: Path | None) -> tuple[Any, ...]:
    """Return the paths of both targets files, and what they hold."""
    shipped = default_file()
    return (shipped, overlay, overlay and overlay.resolve(), *(path.read_bytes() for path in (shipped, overlay) if path and path.is_file()))


@functools.lru_cache(maxsize=2)
def read_targets(shipped: Path, overlay: Path | None, *state: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what both files say together, and what the user's own says; nothing in them is checked. This reads them once for each `state`.
    Raises ConfigError if a file is missing, or is not YAML."""
    raw = read_yaml(shipped, _WHAT, EXAMPLE)
    own = read_yaml(overlay, _WHAT, EXAMPLE) if overlay is not None else {}
    return merge(raw, own), own


def check_names(names: Iterable[str], overlay: Path | None) -> None:
    """Refuse what is no target of the files. Raises UsageError if a name is unknown, and ConfigError as above."""
    raw, _ = read_targets(*state_of(overlay))
    targets = raw["targets"] if isinstance(raw["targets"], dict) else {}  # what else it is, its validation says
    unknown = next((name for name in names if targets and name not in targets), None)
    if unknown is None:
        return
    if Path(unknown).exists():
        kind, folder = ("folder", unknown) if Path(unknown).is_dir() else ("file", str(Path(unknown).parent))
        happened = f"There is no target named {unknown!r}, but a {kind}."
        meaning = "Words behind `run` name targets; the folder of the kernels has an option of its own."
        raise UsageError(happened, meaning, f"Choose a target ({', '.join(targets)}), and add --kernels {shlex.quote(folder)}.")
    like = _targets_like(unknown, targets, raw.get("architectures"))
    meaning = f"The nearest is {' or '.join(like)}." if like else "It is misspelt, or its file was not given with --targets."
    remedy = f"Choose from: {', '.join(targets)}. `warpwave list` shows them with their images and stages."
    raise UsageError(f"There is no target named {unknown!r}.", meaning, remedy)


def check_kernels(folder: Path) -> None:
    """Refuse a package that is not there. Raises UsageError."""
    if not folder.is_dir():
        meaning = "warpwave looks for a folder of test_*.py and bench_*.py files; the default is `kernels` in the current folder."
        raise UsageError(f"There is no kernel package at {folder}.", meaning, "Give its path with --kernels.")


def _targets_like(name: str, targets: Mapping[str, Any], cards: Any) -> list[str]:
    """Return the targets that a misspelt name may mean. It may also be a word of their labels, or the name of a card."""
    spelt: dict[str, list[str]] = {}
    for target, entry in targets.items():
        entry = entry if isinstance(entry, dict) else {}
        emulated = [entry["emulate"]] if entry.get("emulate") else []
        own = emulated or ([] if entry.get("interpret") else entry.get("architectures", []))
        words = [target, *re.findall(r"[\w-]+", str(entry.get("label"))), *own]
        words += [card for each in own if each in keys(cards) for card in cards[each].get("cards", [])]
        for word in words:
            spelt.setdefault(word.lower(), []).append(target)
    like = difflib.get_close_matches(name.lower(), spelt, n=1)
    return list(dict.fromkeys(spelt[like[0]]))[:_MOST_LIKE] if like else []


def find_hosts(kernels: Path, root: Path) -> Path | None:
    """Return the hosts file of a package, in the kernels folder or at the root, or else the user's own; None if there is none."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "warpwave"  # noqa: PTH111 - also without a home
    return next((path for folder in (kernels, root, own) if (path := folder / _HOSTS_FILE).is_file()), None)


def hosts_file(options: Mapping[str, Any]) -> tuple[Path | None, bool]:
    """Return the hosts file that the options mean, and whether the user wrote or named it; no file if there is none."""
    if options["here"] and options["hosts"]:
        raise UsageError("--here and --hosts were both given.", "--here runs every leg on this machine.", "Give one of them.")
    if options["hosts"]:
        return options["hosts"], True
    kernels: Path = options["kernels"].resolve()
    root = find_root(kernels) if kernels.is_dir() else kernels
    found = find_hosts(kernels, root)
    return found, found is not None and not found.is_relative_to(root)
