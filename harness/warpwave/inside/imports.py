"""What a package imports and this environment does not have: extensions that are not built, and plugins that do not fit."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from warpwave.inside.environment import enter
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.lacking import NOT_BUILT, Package
from warpwave.inside.process.outcomes import NotBuilt
from warpwave.inside.process.workers import JOURNAL_VARIABLE

# Whether a package goes on if an import fails: whether a `try` with a handler for that, or `suppress`, is around it.

_HANDLED = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
# Python's own import, whose frames say nothing of who imports.
_IMPORTING = ("<frozen importlib", "importlib/__init__.py")
# Those who ask whether a module is there, and those who run tests: what they do with a failed import is not the package's decision.
_ASKING = ("<frozen importlib.util>", "importlib/util.py", "pkgutil.py", "_pytest/outcomes.py")
_RUNNING = ("/_pytest/", "/pluggy/", "/warpwave/inside/", "<frozen runpy>")


def is_guarded(frame: FrameType | None) -> bool:
    """Return whether an import that is being looked up fails without harm. `frame` is that of the finder's caller."""
    first = True
    while frame is not None:
        file = frame.f_code.co_filename.replace("\\", "/")
        if first and file.endswith(_ASKING):
            return True
        if not (file.startswith(_IMPORTING[0]) or file.endswith(_IMPORTING[1])):
            if any(part in file for part in _RUNNING):
                return False
            if any(start <= frame.f_lineno <= end for start, end in _guarded_lines(frame.f_code.co_filename)):
                return True
            first = False
        frame = frame.f_back
    return False


@functools.cache
def _guarded_lines(file: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a file's lines where an ImportError is caught and not raised again."""
    try:
        module = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Try):  # a handler that takes an ImportError, and does not raise it, or a plainer one, again
            caught = [each for each in node.handlers if each.type is None or _HANDLED & set(_names(each.type))]
            goes_on = any(not isinstance(each.body[-1], ast.Raise) for each in caught)
        elif isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            suppressed = {name for call in calls if "suppress" in _names(call.func) for each in call.args for name in _names(each)}
            goes_on = bool(_HANDLED & suppressed)
        else:
            continue
        if goes_on:
            found.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno))
    return tuple(found)


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Tuple):
        return [name for each in node.elts for name in _names(each)]
    return [node.attr] if isinstance(node, ast.Attribute) else [node.id] if isinstance(node, ast.Name) else []


# Stand in for the compiled extensions of a package that are not built here, so that its Triton kernels can be imported and tested.
#
# Many packages keep Triton kernels beside CUDA or HIP sources, and import the extension made from those at the top. Without the vendor's
# compiler it is not there, and no test of the package could be imported. An import that the package guards (`try: … except ImportError:`)
# fails as ever: the package has another way then. Any other import of an extension that the package's build script names gets a module
# whose functions and classes raise `NotBuilt` when they are called.

_SCRIPTS = ("setup.py", "*/setup.py", "csrc/*/setup.py")
_CMAKE = ("CMakeLists.txt", "*/CMakeLists.txt")
_ADDED_BY_CMAKE = re.compile(r"\b(?:pybind11|nanobind|Python3?)_add_(?:module|library)\s*\(\s*(\w+)", re.IGNORECASE)
_MOST_BYTES = 1 << 20


def enter_package(folders: Iterable[str], first: Iterable[str] = (), root: Path | None = None) -> None:
    """Put a package's folders on the path, as `enter` does, and stand in for its extensions that are not there.

    `root` is the package's root, below which its sources are looked for; without it, nothing that fails is explained by them.
    """
    folders = list(folders)
    Package.root, Package.folders = root, tuple(map(Path, folders))
    enter(folders, first)
    if not any(isinstance(finder, Unbuilt) for finder in sys.meta_path):
        sys.meta_path += [Unbuilt(folders), WrittenByBuild()]
        sys.meta_path.insert(0, HalfImported())


class HalfImported:
    """A finder that Python asks first. What is imported below a package whose own import failed gets that failure again.

    Python forgets such a package, but not the parts of it that were imported before. If a part has no `__init__.py`, Python's own answer
    is `KeyError: 'PACKAGE'`, which says nothing.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Import the package again if Python needs it, which raises why it cannot be imported. Find nothing."""
        while parent := getattr(path, "_name", "").rpartition(".")[0]:  # only the path of a folder without `__init__.py` has a name
            if parent not in sys.modules:
                importlib.import_module(parent)
            path = sys.modules[parent].__path__


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


# The layout of a hub for kernels: `build.toml`, and the package below `torch-ext`. Its build writes `_ops.py`, with the namespace that the
# compiled operators are registered in. Python code registers its own operators there, too.

_WRITTEN_BY_BUILD = "_ops"


class WrittenByBuild(Loader):
    """A finder for the `_ops.py` of such a package, which Python asks last, and the loader of its stand-in."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the stand-in's spec if the folder is that of a package in this layout."""
        package, _, last = name.rpartition(".")
        folders = [Path(folder) for folder in path or ()] if package and last == _WRITTEN_BY_BUILD else []
        is_hubs = any((above / "build.toml").is_file() for folder in folders for above in _torch_ext(folder))
        return ModuleSpec(name, self, is_package=False) if is_hubs else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module with what the build writes: `ops`, and what puts their namespace before a name."""
        import torch

        namespace = f"_{spec.name.partition('.')[0]}_not_built"
        module = ModuleType(spec.name)
        vars(module).update(ops=getattr(torch.ops, namespace), add_op_namespace_prefix=lambda name: f"{namespace}::{name}")
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is whole."""


def _torch_ext(folder: Path) -> Iterator[Path]:
    """Yield the folder that holds the `torch-ext` in which a package's folder is."""
    yield from (above.parent for above in folder.parents if above.name == "torch-ext")


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _part(f"{self.__name__}.{name}")


class _Called(type):
    """The class of what an extension has: a function, a class to derive from, or an enumeration; which is unknown."""

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


# Load the pytest plugins that the environment has, and leave out those that do not fit this pytest.
#
# A package's extras for tests may pin an old pytest with its plugins. The environment has one pytest for all packages, and a single
# plugin that does not load would end it before the first test. What an omitted plugin would have given (a fixture, an option) is then
# missing in the tests that need it, and the report names the plugin.


def load_leniently(manager: pytest.PytestPluginManager) -> None:
    """Make this manager go on behind a plugin that does not load. pytest calls it before it loads the first installed one."""
    load = manager.load_setuptools_entrypoints
    if not isinstance(load, functools.partial):
        manager.load_setuptools_entrypoints = functools.partial(_load, manager, load)  # type: ignore[method-assign]


def _load(manager: pytest.PytestPluginManager, load: Callable[..., int], group: str, name: str | None = None) -> int:
    try:
        return load(group, name=name)
    except pytest.UsageError:
        raise
    except Exception:
        if name is not None:  # asked for by name, with -p
            raise
    loaded = 0
    for entry in entry_points(group=group):
        try:
            loaded += load(group, name=entry.name)
        except pytest.UsageError:
            raise
        except Exception as error:
            cause = error.__cause__ or error
            with contextlib.suppress(Exception):  # an older pluggy has registered half of it
                manager.unregister(name=entry.name)
            manager.set_blocked(entry.name)
            if JOURNAL_VARIABLE in os.environ:
                said = " ".join(f"{type(cause).__name__}: {cause}".split())
                text = f"the plugin {entry.name} does not load in pytest {pytest.__version__}, so it is off: {said}"
                Journal.from_environment().write("note", text=text)
    return loaded
