"""Which variables a file of a package may set: `docker/variables.yml` lists them.

The file may be a stranger's. What the user gives with `--env` is the user's own, and is not asked here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warpwave.config.files import read_yaml, validate
from warpwave.config.package import find_root, import_folders, package_names
from warpwave.config.targets import default_file

ALLOWED = (
    "a setting of Triton or torch that loads nothing, or a name that begins with the package's own, such as MY_OPS_FAST for my_ops; "
    "put any other on the command line: --env NAME=VALUE"
)
_WHAT = "list of variables"


@dataclass(frozen=True)
class Rules:
    """The three lists. `never` and `endings` are the beginnings and ends of names."""

    settings: tuple[str, ...]
    endings: tuple[str, ...]
    never: tuple[str, ...]


def not_allowed(names: Iterable[str], folder: Path) -> list[str]:
    """Return those of `names` that a file in `folder`, which is in a package, may not set."""
    rules = _rules()
    unknown = [name for name in names if name not in rules.settings]
    own = _beginnings(find_root(folder)) if unknown else ()
    return [name for name in unknown if name.startswith(rules.never) or not (name.startswith(own) or name.endswith(rules.endings))]


@functools.cache
def _rules() -> Rules:
    path = default_file().with_name("variables.yml")
    return validate(Rules, read_yaml(path, _WHAT, str(path)), path, str(path))


def _beginnings(root: Path) -> tuple[str, ...]:
    """Return how names of a package's own variables begin: with its name, or that of a module that it has."""
    found = {*package_names(root)}
    for folder in import_folders(root):
        found |= {path.parent.name for path in (root / folder).glob("*/*.py")} | {path.stem for path in (root / folder).glob("*.py")}
    return tuple(f"{begins}_" for name in sorted(found) if (begins := re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")))
