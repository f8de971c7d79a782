"""What is asked for, and what this environment has. torch, Triton and pytest stay what they are."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Beside this folder, on the host and in the plan: names of vendors' packages are data.
_PATTERNS = configparser.ConfigParser(allow_no_value=True, interpolation=None)  # in lower case, as normalized names are
_PATTERNS.read(Path(__file__).resolve().parents[1] / "packages.ini", encoding="utf-8")


def is_protected(name: str) -> bool:
    """Return whether nothing may replace this package."""
    return _is_in("protected", name)


def is_companion(name: str) -> bool:
    """Return whether this package is compiled for one build of torch."""
    return _is_in("companions", name)


def _is_in(section: str, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in _PATTERNS[section])


def sort_out(lines: list[str], notes: list[str]) -> tuple[list[str], list[str]]:
    """Split the lines of requirement files into options and packages. Protected ones, and folders, are left out with a note."""
    options = [line for line in lines if line.startswith("-") and not re.match(r"-e\b|--editable", line)]
    rest = [line for line in lines if line not in options]
    folders = [line for line in rest if re.match(r"-e\b|--editable|\.|/|file:", line)]
    notes += [f"{line!r} of the requirements was left out: --install installs the package itself" for line in folders]
    wanted = [line for line in rest if line not in folders]
    brings_torch = any(name_of(line) == "torch" for line in wanted)
    wanted = [line for line in wanted if not (brings_torch and _is_in("runtime", name_of(line)))]
    return options, without_protected(wanted, "the requirements", notes)


def without_protected(lines: Iterable[str], who: str, notes: list[str]) -> list[str]:
    """Leave out requirements of torch, Triton and pytest, and note those that this environment does not meet."""
    kept = []
    for line in lines:
        found = parse(line)
        if found is not None and found.marker is not None and not found.marker.evaluate({"extra": ""}):
            continue
        if not is_protected(name_of(line)):
            kept.append(line)
        elif found is not None:
            notes += unmet(who, found)
    return kept


def unmet(who: str, requirement: Any) -> list[str]:
    """Return a note if what is present is not what is wanted."""
    name = plain(requirement.name)
    found = present().get(name)
    if found is None or requirement.specifier.contains(found, prereleases=True):  # None: another vendor's name for what is there
        return []
    return [f"{who} wants {requirement.name}{requirement.specifier}, present is {found}: installed without that requirement"]


def present() -> dict[str, str]:
    """Return the version of each package that this Python can import."""
    return {plain(one.metadata["Name"]): one.version for one in reversed(list(importlib.metadata.distributions())) if one.metadata["Name"]}


def own_packages() -> dict[str, str]:
    """Return what is installed in this environment itself, and not in the one below."""
    folder = sysconfig.get_paths()["purelib"]
    found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions(path=[folder])}
    return {name: version for name, version in sorted(found.items()) if name and plain(name) not in ("pip", "setuptools", "wheel")}


def parse(line: str) -> Any:
    """Return a parsed requirement; None for a URL or a line that is none."""
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement  # type: ignore[import-not-found,unused-ignore]

    try:
        return Requirement(re.split(r"\s--", line)[0])
    except InvalidRequirement:
        return None


def in_extra(line: str, extra: str) -> str:
    """Return a requirement without its condition if it belongs to an extra; empty if it does not."""
    found = parse(line)
    if found is None or found.marker is None or found.marker.evaluate({"extra": ""}) or not found.marker.evaluate({"extra": extra}):
        return ""
    found.marker = None
    return str(found)


def any_companion(line: str) -> str:
    """Return a requirement without its versions if it is compiled for one build of torch: that of the torch which is here will do.

    pip would else look for another torch that goes with those versions, and download it to read what it needs.
    """
    found = parse(line) if is_companion(name_of(line)) else None
    return line if found is None or found.url else found.name + (f"; {found.marker}" if found.marker else "")


def name_of(line: str) -> str:
    """Return the normalized name at the start of a requirement; empty if there is none."""
    found = re.match(r"[A-Za-z0-9][\w.-]*", line)
    return plain(found[0]) if found else ""


def plain(name: str) -> str:
    """Return a package's name in its normalized form."""
    return re.sub(r"[-_.]+", "-", name).lower()
