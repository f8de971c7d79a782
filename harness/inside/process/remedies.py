"""What failures say that the environment lacks → the option that helps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

# What Triton 3.8 and 3.9 say of what 3.6 took.
_REFUSED = re.compile(r"Block pointers have been removed|key contains names that are not kernel arguments")
TOOK_IT = "3.6.0"
# What an import says that builds operators in C++ with a vendor's compiler.
_TOOLKIT = re.compile(r"\b[A-Z]+_HOME\b.* not set|version file not found")
_MISSING = re.compile(r"No module named '([\w.]+)'|No package metadata was found for ([\w.-]+)|The '([\w.-]+)' distribution was not found")
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(\S.*?)\s*$", re.MULTILINE)
_FEW = 6
_INSTALL = "--install installs the package and what it declares, --with NAME one more, by pip's name."
_ALREADY = "The package is installed. --with NAME installs one more, by pip's name. --install-no-deps leaves out what the package declares."
_OWN_MODULE = "A module of the package itself may need --env PYTHONPATH=FOLDER."
_NO_CONFTEST = (
    "Tests import conftest.py, which these sources do not have. Source archives often leave it out. "
    "Take the tests from the package's repository."
)


def hint_of(messages: Iterable[str], root: Path | None = None) -> str:
    """Return what to do if one of the failures is about the environment; empty if none is. `root` is the package's root."""
    found = list(messages)
    hints = [missing_of(found, root)]
    if any(_REFUSED.search(message) for message in found):
        hints.append(f"Some of it is written for an older Triton, which took what this one refuses: add --triton {TOOK_IT}, or port it.")
    if any(_TOOLKIT.search(message) for message in found):
        hints.append("An import wants a toolkit that is not here. A package may have a switch for its Triton kernels alone: --env NAME=1.")
    return " ".join(filter(None, hints))


def missing_of(messages: Iterable[str], root: Path | None = None) -> str:
    """Return which modules cannot be imported, the most wanted first, and what brings them; empty if none is missing.

    `root` is the package's root: what its `.gitmodules` names may not be checked out.
    """
    wanted = Counter(next(filter(None, match.groups())) for match in map(_MISSING.search, messages) if match)
    without_conftest = _NO_CONFTEST if wanted.pop("conftest", 0) else ""
    other_version = {name: installed for name in wanted if (installed := _installed(name))}
    told = []
    if absent := [name for name, _ in wanted.most_common() if name not in other_version]:
        told.append(f"Missing here: {_listed(absent)}. {_ALREADY if _is_installed(root) else _INSTALL} {_OWN_MODULE}")
    if other_version:
        has = ", ".join(dict.fromkeys(other_version.values()))
        told.append(
            f"The installed {has} has no {_listed(list(other_version))}. The package may be written for another version: "
            "--with 'NAME==VERSION' installs one, --triton VERSION another Triton."
        )
    if wanted and (empty := _empty_submodules(root)):
        told.append(f"Git submodules are not checked out: {_listed(empty)}. Run git submodule update --init.")
    return " ".join(filter(None, (*told, without_conftest)))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def _installed(module: str) -> str:
    """Return the name and version of the installed package that should hold a submodule; empty for the package that is being tested."""
    top, dot, _ = module.partition(".")
    for name in metadata.packages_distributions().get(top, ()) if dot else ():
        found = metadata.distribution(name)
        if not _is_from_folder(found):
            return f"{name} {found.version}"
    return ""


def _is_installed(root: Path | None) -> bool:
    """Return whether a module of the package at `root` is installed from a folder or a file, as `--install` does it."""
    places = [root / place for place in (".", "src", "python")] if root else []
    return any(
        any(_is_from_folder(metadata.distribution(owner)) for owner in owners)
        for name, owners in metadata.packages_distributions().items()
        if any((place / name).is_dir() or (place / f"{name}.py").is_file() for place in places)
    )


def _is_from_folder(installed: metadata.Distribution) -> bool:
    """Return whether pip says that a package comes from a folder or a file, as the package under test does."""
    return installed.read_text("direct_url.json") is not None


def _empty_submodules(root: Path | None) -> list[str]:
    """Return the folders that `.gitmodules` names and that hold nothing."""
    try:
        named = _SUBMODULE.findall((root / ".gitmodules").read_text(encoding="utf-8", errors="replace")) if root else []
    except OSError:
        return []
    return [path for path in named if root and not any((root / path).glob("*"))]
