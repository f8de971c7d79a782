"""Make a package's modules importable in the processes that run its code.

The folders come behind the standard library, so that a module of the package never hides one of its modules, and before what is installed:
the package's own files are what is tested, not an installed copy of them. Supervisors never get these folders.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from harness.records import Job

_NOT_SOURCES = frozenset({"build", "dist", "node_modules", "__pycache__"})
_MOST_MODULES = 20_000
_INSTALLED = ("site-packages", "dist-packages")


def root_of(job: Job) -> Path:
    """Return the folder of the whole package."""
    return Path(job.package_root or job.kernels)


def modules_of(root: Path) -> list[Path]:
    """Return the Python files of a whole package, without those of environments and builds in its folder, which differ between machines."""
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in sorted(folders) if name not in _NOT_SOURCES and not name.startswith(".")]
        found += [Path(folder, name) for name in sorted(files) if name.endswith(".py")]
        if len(found) > _MOST_MODULES:
            break
    return found


def names_any(job: Job, *names: str) -> bool:
    """Return whether a Python file of the package contains any of these words."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in modules_of(root_of(job)))
    return any(name in text for text in texts for name in names)


def package_folders(job: Job) -> list[str]:
    """Return the folders that the package's modules are imported from: those of the package, and the one that the user named.

    pytest adds the latter for tests if there is a `conftest.py` in it, and benches below it import the same helpers.
    """
    folders = [*(root_of(job) / folder for folder in job.import_folders), Path(job.kernels)]
    return [*dict.fromkeys(map(os.path.normpath, folders))]


def python_path(job: Job) -> list[str]:
    """Return the folders of the package's `pythonpath`."""
    return [os.path.normpath(root_of(job) / folder) for folder in job.pytest.pythonpath]


def enter(folders: Iterable[str], first: Iterable[str] = ()) -> None:
    """Put folders on the path of this process and of those that the package starts; those of `first` before everything, as pytest does."""
    folders, first = list(folders), list(first)
    added = [*first, *folders]
    place = next((position for position, path in enumerate(sys.path) if Path(path).name in _INSTALLED), len(sys.path))
    before = sys.path[:place]
    sys.path[place:place] = [folder for folder in folders if folder not in before]
    sys.path[:0] = [folder for folder in first if folder not in before]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, known), *(folder for folder in added if folder not in known)])
    if not any(isinstance(finder, _Built) for finder in sys.meta_path):
        sys.meta_path.append(_Built(added))


class _Built:
    """Finds what a package's files lack and its installed copy has: extension modules and files that the build wrote."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(f"{folder}{os.sep}" for folder in folders)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Look for a submodule of the package in the installed packages. Python asks here last."""
        parent = name.rpartition(".")[0].replace(".", os.sep)
        if not parent or not any(str(folder).startswith(self.folders) for folder in path or ()):
            return None
        elsewhere = [Path(site, parent) for site in sys.path if Path(site).name in _INSTALLED]
        return PathFinder.find_spec(name, [str(folder) for folder in elsewhere if folder.is_dir()], target)
