"""Find the settings that a package gives to pytest, and read those that warpwave itself must know.

pytest reads the file again, in the environment of the kernels. Only files between the kernels folder and the package's root count: a
container has no others.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from harness.config.package.ini_files import read_ini, read_toml
from harness.records import PytestSettings

# In pytest's order of preference, with the tables or sections that make each of them pytest's.
_TOML = {
    "pyproject.toml": (("tool", "pytest", "ini_options"), ("tool", "pytest")),
    "pytest.toml": (("pytest",),),
    ".pytest.toml": (("pytest",),),
}
_INI = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
_ORDER = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")  # pytest's also if they are empty


def load_pytest_settings(kernels: Path, root: Path) -> PytestSettings:
    """Return the settings in the nearest file of pytest's, from the folder `kernels` up to `root`; the defaults if there is none."""
    kernels, root = kernels.resolve(), root.resolve()
    for folder in (kernels, *kernels.parents):
        for name in _ORDER:
            found = _section(folder / name)
            if found is not None:
                return _settings((folder / name).relative_to(root).as_posix(), found)
        if folder == root:
            break
    return PytestSettings()


def _section(path: Path) -> dict[str, Any] | None:
    """Return pytest's part of a file, or None if the file is not pytest's."""
    if not path.is_file():
        return None
    if path.name in _INI:
        found: dict[str, Any] | None = read_ini(path).get(_INI[path.name])
        return {} if found is None and path.name in _ALWAYS else found
    for keys in _TOML[path.name]:
        table: Any = read_toml(path)
        for key in keys:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return table
    return {} if path.name in _ALWAYS else None


def _settings(file: str, found: dict[str, Any]) -> PytestSettings:
    above = file.rpartition("/")[0]
    return PytestSettings(
        file=file,
        pythonpath=tuple(_join(above, folder) for folder in _words(found.get("pythonpath"))),
        python_files=tuple(_words(found.get("python_files"))) or PytestSettings.python_files,
        testpaths=tuple(_join(above, folder) for folder in _words(found.get("testpaths"))),
        addopts=tuple(_words(found.get("addopts"))),
    )


def _join(above: str, path: str) -> str:
    return f"{above}/{path}" if above and not path.startswith("/") else path


def _words(value: Any) -> list[str]:
    """Return a list as it is, and a text as the words that pytest reads in it."""
    if isinstance(value, list):
        return [str(word) for word in value]
    try:
        return shlex.split(value) if isinstance(value, str) else []
    except ValueError:  # an open quote, which pytest reports
        return value.split() if isinstance(value, str) else []
