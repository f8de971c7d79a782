"""Find the root of the package that a kernels folder belongs to, and the folders that its modules are imported from. Many packages keep
their tests in `tests/`, beside the package that the tests import. The root is the folder that a developer would install."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwave.config.files import default_file, read_ini, read_toml, read_yaml, validate
from warpwave.records import PytestSettings

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
# `package_dir={"": "python"}` in a setup.py, which is read and never run.
_PACKAGE_DIR = re.compile(r"package_dir\s*=\s*\{\s*(['\"])\1\s*:\s*(['\"])(?P<folder>[^'\"]+)\2")
_MOST_BYTES = 1 << 20
# Formatters and linters, as `[tool.NAME]` and as sections of a setup.cfg.
_STYLE = frozenset({"black", "ruff", "isort", "yapf", "autopep8", "flake8", "pycodestyle", "pydocstyle", "pylint", "mypy", "pyright"})
_STYLE |= {"codespell", "coverage", "typos", "bandit"}
# Folders whose projects are not the package: of others, or of parts that are built by themselves.
_NO_PROJECTS = frozenset({"3rdparty", "third_party", "submodules", "csrc", "examples", "docs", "test", "tests"})
# A kernel of the Hugging Face Hub: `build.toml`, and its Python package in a folder with a fixed name.
_OF_THE_HUB, _HUB_FOLDER = "build.toml", "torch-ext"


def find_root(kernels: Path, home: Path | None = None) -> Path:
    """Return the nearest folder at or above `kernels` with a project file, `.git` or a wheel that was unpacked there; `kernels` itself if
    there is none. A `pyproject.toml` or `setup.cfg` that only says how code is to look, as in many a `tests/`, is no project file if one is
    above it. The search ends below the home folder, the root of the file system and the border to another file system."""
    folder = kernels.resolve()
    home = (home or Path(os.path.expanduser("~"))).resolve()  # noqa: PTH111 - `Path.expanduser` fails for a user without a home
    device = folder.stat().st_dev
    of_style = []
    for above in (folder, *folder.parents):
        if above in (home, *home.parents) or above.stat().st_dev != device:
            break
        files = [name for name in _PROJECT_FILES if (above / name).is_file()]
        if (above / ".git").exists() or _is_of_the_hub(above) or _is_unpacked(above) or (files and not _is_of_style(above, files)):
            return above
        of_style += [above] if files else []
    return next(iter(of_style), folder)


def find_project(root: Path) -> str:
    """Return the folder that an installer would take, relative to `root`: most often `.`, else the only package in a folder of the root."""
    if _is_package(root):
        return "."
    nested = [
        folder.relative_to(root)
        for pattern in ("*", "*/*")
        for folder in sorted(root.glob(pattern))
        if folder.is_dir() and _is_package(folder) and not _NO_PROJECTS & set(folder.relative_to(root).parts)
    ]
    return nested[0].as_posix() if len(nested) == 1 else "."


def import_folders(root: Path) -> tuple[str, ...]:
    """Return the folders below `root` that modules are imported from, relative to it; the first is `.`, the root itself. The others are the
    folder of the project, if it is another; in that, `src`, where packages are in it, `torch-ext` of a kernel of the Hub, and those that
    the project's files name."""
    place = find_project(root)
    project = root / place
    named = ["src"] if _holds_packages(project / "src") else []
    named += [_HUB_FOLDER] if _is_of_the_hub(project) else []
    named += [*_of_pyproject(project / "pyproject.toml"), *_of_setup(project)]
    inside = [os.path.normpath(f"{place}/{folder}") for folder in named if _is_below(project, folder)]
    return tuple(dict.fromkeys([".", place, *inside]))


def declared_extras(folder: Path) -> list[str] | None:
    """Return the normalized names of what a package declares: extras, dependency groups, and requirements files named after their use. None
    if the file does not say, because a build script computes its extras or there is no such file."""
    tables = read_toml(folder / "pyproject.toml")
    project = tables.get("project", {})
    if not project or "optional-dependencies" in project.get("dynamic", ()):
        return None
    files = [path.stem for path in (*folder.glob("*requirements*.txt"), *folder.glob("requirements/*.txt"))]
    named = [*project.get("optional-dependencies", {}), *tables.get("dependency-groups", {})]
    named += [name for stem in files if (name := re.sub(r"^requirements[-_]?|[-_]requirements$", "", stem))]
    return list(dict.fromkeys(re.sub(r"[-_.]+", "-", name).lower() for name in named))


def package_names(root: Path) -> tuple[str, ...]:
    """Return what the package calls itself: the name of its folder, and the one that its project file gives it."""
    named = _Table(read_toml(root / "pyproject.toml"))["project"]["name"].value
    named = named or read_ini(root / "setup.cfg").get("metadata", {}).get("name")
    return tuple(dict.fromkeys(name for name in (root.name, named) if isinstance(name, str) and name))


def _is_of_style(folder: Path, files: list[str]) -> bool:
    """Whether these project files of a folder have settings of formatters and linters alone."""
    if "setup.py" in files:
        return False
    tables = read_toml(folder / "pyproject.toml")
    tools = set(tables.get("tool") or ()) if set(tables) <= {"tool"} else {""}
    tools |= {re.split(r"[:-]", section)[0] for section in read_ini(folder / "setup.cfg")}
    return bool(tools) and tools <= _STYLE


def _is_package(folder: Path) -> bool:
    if (folder / "setup.py").is_file() or _is_of_the_hub(folder):
        return True
    found = _Table(read_toml(folder / "pyproject.toml"))
    names_one = found["project"].value or found["build-system"].value or found["tool"]["poetry"].value or found["tool"]["warpwave"].value
    return bool(names_one) or "metadata" in read_ini(folder / "setup.cfg")


def _is_of_the_hub(folder: Path) -> bool:
    return (folder / _OF_THE_HUB).is_file() and _holds_packages(folder / _HUB_FOLDER)


def _is_unpacked(folder: Path) -> bool:
    """Return whether one wheel was unpacked there. With several, as in `site-packages`, most of the folder is of others."""
    return len(list(folder.glob("*.dist-info/METADATA"))) == 1


def _holds_packages(folder: Path) -> bool:
    """Return whether a folder holds modules or packages, also of a namespace, and is not a package itself."""
    found = (path for pattern in ("*.py", "*/*.py", "*/*/__init__.py") for path in folder.glob(pattern))
    return folder.is_dir() and not (folder / "__init__.py").exists() and any(found)


def _is_below(root: Path, folder: str) -> bool:
    path = (root / folder).resolve()
    return path.is_dir() and path != root.resolve() and path.is_relative_to(root.resolve())


def _of_pyproject(path: Path) -> list[str]:
    """Return what the settings of setuptools, Hatch, Poetry, PDM and maturin name."""
    tool = read_toml(path).get("tool")
    at = _Table(tool)
    found = [at["setuptools"]["package-dir"][""].value]
    found += _list(at["setuptools"]["packages"]["find"]["where"].value)
    hatch = at["hatch"]["build"]["targets"]["wheel"]
    found += [entry.rpartition("/")[0] for entry in _list(hatch["packages"].value) if isinstance(entry, str)]
    found += _list(hatch["sources"].value)
    found += [entry.get("from") for entry in _list(at["poetry"]["packages"].value) if isinstance(entry, dict)]
    found += [at["pdm"]["build"]["package-dir"].value, at["maturin"]["python-source"].value]
    return [folder for folder in found if isinstance(folder, str) and folder]


def _of_setup(root: Path) -> list[str]:
    found = []
    settings = read_ini(root / "setup.cfg")
    for line in settings.get("options", {}).get("package_dir", "").splitlines():
        name, _, folder = line.partition("=")
        found += [folder.strip()] if not name.strip() else []
    found.append(settings.get("options.packages.find", {}).get("where", ""))
    script = root / "setup.py"
    if script.is_file() and script.stat().st_size < _MOST_BYTES:
        found += [match["folder"] for match in _PACKAGE_DIR.finditer(script.read_text(encoding="utf-8", errors="replace"))]
    return [folder for folder in found if folder]


class _Table:
    """A table that may lack any key, so that a path into it can be written in one line."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, key: str) -> _Table:
        return _Table(self.value.get(key) if isinstance(self.value, dict) else None)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


# pytest reads the file again, in the environment of the kernels. Only files between the kernels folder and the package's root count: a
# container has no others.

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
                file = (folder / name).relative_to(root).as_posix()
                above = f"{file.rpartition('/')[0]}/".lstrip("/")
                paths = {
                    key: tuple(path if path.startswith("/") else above + path for path in _words(found.get(key)))
                    for key in ("pythonpath", "testpaths")
                }
                patterns = tuple(_words(found.get("python_files"))) or PytestSettings.python_files
                return PytestSettings(file=file, python_files=patterns, addopts=tuple(_words(found.get("addopts"))), **paths)
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


def _words(value: Any) -> list[str]:
    """Return a list as it is, and a text as the words that pytest reads in it."""
    if not isinstance(value, str):
        return list(map(str, _list(value)))
    try:
        return shlex.split(value)
    except ValueError:  # an open quote, which pytest reports
        return value.split()


# Which variables a file of a package may set: `docker/variables.yml` lists them. The file may be a stranger's; `--env` is the user's own.

ALLOWED = (
    "a setting of Triton or torch that loads nothing, or a name that begins with the package's own, such as MY_OPS_FAST for my_ops; "
    "put any other on the command line: --env NAME=VALUE"
)


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
    return validate(Rules, read_yaml(path, "list of variables", str(path)), path, str(path))


def _beginnings(root: Path) -> tuple[str, ...]:
    """Return how names of a package's own variables begin: with its name, or that of a module that it has."""
    found = {*package_names(root)}
    for folder in import_folders(root):
        found |= {path.parent.name for path in (root / folder).glob("*/*.py")} | {path.stem for path in (root / folder).glob("*.py")}
    return tuple(f"{begins}_" for name in sorted(found) if (begins := re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")))
