"""Where a package declares what it needs, and which option of a run installs it. Reads files, and runs none of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_FOR_TESTS = ("test", "tests", "testing", "dev")  # what `--install` takes without being asked
# What is installed by another name than it is imported by.
_ANOTHER_NAME = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def sources(modules: Iterable[str], root: Path) -> dict[str, tuple[str, str]]:
    """Return for each module that the package declares somewhere what to call that place, and the options that install it."""
    places = list(_places(root))
    found: dict[str, tuple[str, str]] = {}
    for module in modules:
        top = module.partition(".")[0]
        wanted = {_plain(top), _plain(_ANOTHER_NAME.get(top, top))}
        for place, options, names in places:
            if wanted & names:
                found[module] = (place, options)
                break
    return found


def _places(root: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each place that declares packages, the options that install them, and their names; what needs fewest options first."""
    project = _toml(root / "pyproject.toml")
    table = project.get("project", {})
    extras = {**table.get("optional-dependencies", {})}
    groups = {**project.get("dependency-groups", {})}
    yield "", "--install", _names(table.get("dependencies", ()))
    for kind, named in (("extra", extras), ("group", groups)):
        for name in sorted(named, key=lambda name: name not in _FOR_TESTS):
            yield f"{kind} {name}", "--install" if name in _FOR_TESTS else f"--install --extra {name}", _names(named[name])
    for pattern in ("requirements.txt", "*requirements*.txt", "requirements/*.txt"):
        for file in sorted(root.glob(pattern)):
            path = file.relative_to(root).as_posix()
            yield path, f"--requirements {path}", _names(file.read_text(encoding="utf-8", errors="replace").splitlines())


def _names(lines: Any) -> set[str]:
    found = (re.match(r"\s*([A-Za-z0-9][\w.-]*)", line) for line in lines if isinstance(line, str))
    return {_plain(match[1]) for match in found if match}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _toml(file: Path) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        return {}  # its requirements files still say what brings a module
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
