"""Where a package declares what it needs, and which option of a run installs it. Reads files, and runs none of them."""

from __future__ import annotations

import ast
import configparser
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_FOR_TESTS = ("test", "tests", "testing", "dev")  # what `--install` takes without being asked
_FOR_ALL = ("requirements", "common", "base")  # what a file is called that has what each platform needs
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
        by_name = [(place, options, wanted & names) for place, options, names in places]
        by_part = [(place, options, {name for name in names if wanted & set(name.split("-"))}) for place, options, names in places]
        for place, options, names in [*by_name, *by_part]:
            if len(names) == 1:  # of several names with that part, any may be meant
                found[module] = (place, options.replace("NAME", next(iter(names))))
                break
    return found


def _places(root: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each place that declares packages, the options that install them, and their names; what needs fewest options first.

    If `--install` would compile the package, which may need a GPU's toolkit and an hour, what it declares is installed alone.
    """
    project = _toml(root / "pyproject.toml")
    table = project.get("project", {})
    of_setup = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error):
        of_setup.read_string(_text(root / "setup.cfg"))
    own = of_setup.get("options", "install_requires", fallback="").splitlines()
    more = of_setup["options.extras_require"] if of_setup.has_section("options.extras_require") else {}
    extras = {**{name: more[name].splitlines() for name in more}, **table.get("optional-dependencies", {})}
    groups = {**project.get("dependency-groups", {})}
    script = _text(root / "setup.py")
    install = "--with NAME" if "ext_modules" in script else "--install"
    yield "", install, _names([*table.get("dependencies", ()), *own])
    for kind, named in (("extra", extras), ("group", groups)):
        for name in sorted(named, key=lambda name: name not in _FOR_TESTS):
            chosen = install if name in _FOR_TESTS or install != "--install" else f"--install --extra {name}"
            yield f"{kind} {name}", chosen, _names(named[name])
    for pattern in ("requirements.txt", "*requirements*.txt", "requirements/*.txt"):
        for file in sorted(root.glob(pattern)):
            path = file.relative_to(root).as_posix()
            lines = _text(file).splitlines()
            # Others are for one platform, or pin a whole environment, such as that of a service.
            whole = file.stem in _FOR_ALL or any(word in path for word in _FOR_TESTS)
            whole = whole and not any(line.replace(" ", "").startswith("torch==") for line in lines)
            yield path, f"--requirements {path}" if whole else "--with NAME", _names(lines)
    yield "setup.py", "--with NAME", _names(_in_lists(script))


def _in_lists(script: str) -> Iterator[str]:
    """Yield the texts in lists of a script: some of them are requirements, whatever the lists are called."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(script)):
            if isinstance(node, ast.List):
                yield from (each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


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
