"""Stand in for the compiled extensions of a package that are not built here, so that its Triton kernels can be imported and tested.

Many packages keep Triton kernels beside CUDA or HIP sources, and import the extension made from those at the top. Without the vendor's
compiler it is not there, and no test of the package could be imported. An import that the package guards (`try: … except ImportError:`)
fails as ever: the package has another way then. Any other import of an extension that the package's build script names gets a module
whose functions and classes raise `NotBuilt` when they are called.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.inside.environment.package_path import enter
from harness.inside.imports.guarded_imports import is_guarded
from harness.inside.process.exceptions import NOT_BUILT, NotBuilt
from harness.inside.process.journal import Journal
from harness.inside.process.workers import JOURNAL_VARIABLE

_SCRIPTS = ("setup.py", "*/setup.py", "csrc/*/setup.py")
_CMAKE = ("CMakeLists.txt", "*/CMakeLists.txt")
_ADDED_BY_CMAKE = re.compile(r"\b(?:pybind11|nanobind|Python3?)_add_(?:module|library)\s*\(\s*(\w+)", re.IGNORECASE)
_MOST_BYTES = 1 << 20


def enter_package(folders: Iterable[str], first: Iterable[str] = ()) -> None:
    """Put a package's folders on the path, as `enter` does, and stand in for its extensions that are not there."""
    folders = list(folders)
    enter(folders, first)
    if not any(isinstance(finder, Unbuilt) for finder in sys.meta_path):
        sys.meta_path.append(Unbuilt(folders))


class Unbuilt(Loader):
    """A finder for the extensions of a package, which Python asks last, and the loader of their stand-ins."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a stand-in's spec if the package builds this extension and does not guard its import."""
        last = name.rpartition(".")[2]
        if not {name, last} & self._names or ("." in name and not any(str(folder).startswith(self.folders) for folder in path or ())):
            return None
        return None if is_guarded(sys._getframe(1)) else ModuleSpec(name, self, is_package=False)

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for folder in self.folders for name in extension_names(Path(folder)))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the stand-in, and note that it is one."""
        if JOURNAL_VARIABLE in os.environ:
            Journal.from_environment().write("note", text=f"{spec.name} {NOT_BUILT}: what calls it does not run")
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in has no code."""


def extension_names(folder: Path) -> Iterator[str]:
    """Yield the names that the build scripts of a package give its extensions. The scripts are read and never run."""
    for pattern in _SCRIPTS:
        for script in sorted(folder.glob(pattern)):
            yield from _of_setup(script)
    for pattern in _CMAKE:
        for script in sorted(folder.glob(pattern)):
            yield from _ADDED_BY_CMAKE.findall(_text_of(script))


def _of_setup(script: Path) -> Iterator[str]:
    try:
        module = ast.parse(_text_of(script))
    except (SyntaxError, ValueError, RecursionError):
        return
    constants = {
        node.targets[0].id: node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(module):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, (ast.Name, ast.Attribute)) and getattr(called, "id", getattr(called, "attr", "")).endswith("Extension"):
            assert isinstance(node, ast.Call)
            given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
            yield from filter(None, (_constant(each, constants) for each in given))


def _constant(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """Return a text that can be read off: a constant, the name of one, or an f-string of both."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Name):
        found = constants.get(node.id)
        return _constant(found, {}) if found is not None else ""
    if isinstance(node, ast.JoinedStr):
        parts = [_constant(part.value if isinstance(part, ast.FormattedValue) else part, constants) for part in node.values]
        return "".join(parts) if all(parts) else ""
    return ""


def _text_of(script: Path) -> str:
    return script.read_text(encoding="utf-8", errors="replace") if script.stat().st_size < _MOST_BYTES else ""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _part(f"{self.__name__}.{name}")


class _Called(type):
    """The class of what an extension has: a function, a class to derive from, or an enumeration; nobody knows which."""

    _of_extension: str

    def __call__(cls, *_: object, **__: object) -> Any:
        raise NotBuilt(f"{cls._of_extension} {NOT_BUILT}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _part(f"{cls._of_extension}.{name}")


@functools.cache
def _part(name: str) -> _Called:
    return _Called(name.rpartition(".")[2], (), {"_of_extension": name, "__module__": name.partition(".")[0]})
