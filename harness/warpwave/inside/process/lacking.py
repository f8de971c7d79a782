"""What a package calls or imports and this environment does not have: compiled code that is not built, modules of others.

Neither is a fault of the package. A misspelt name looks alike, and is one.
"""

from __future__ import annotations

import ast
import functools
import io
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from warpwave.inside.environment import files_below

NOT_BUILT = "is compiled code of the package, which is not built here"


class Package:
    """Set by the process that runs the package: its root, and the folders that its modules are imported from."""

    root: Path | None = None
    folders: tuple[Path, ...] = ()


# What torch says of an operator or a class that nothing has registered.
_NO_OPERATOR = re.compile(
    r"'_OpNamespace' '(\w+)' object has no attribute '([A-Za-z]\w*)'|[Oo]perator (\w+)::(\w+) does not exist"
    r"|No such operator (\w+)::(\w+)|Tried to instantiate class '(\w+)\.(\w+)', but it does not exist"
)
_LIBRARIES = re.compile(r"\bTORCH_LIBRARY\w*\(\s*(\w+)")
_NO_LIBRARY = re.compile(r"Could not load this library: (.+)")
_NO_FILE = re.compile(r"(\S+\.so[.\d]*): cannot open shared object file")  # what `ctypes` says
_NONE_HAS_NO = re.compile(r"'NoneType' object has no attribute '(\w+)'")
# What torch says while it builds an extension, if there is no compiler for it.
_NO_COMPILER = re.compile(
    r"\b[A-Z]+_HOME\b.* not set|Ninja is required|version file not found|No such file or directory: '[^']*(?:cc|ninja)'"
)
# What a package says itself, of compiled code that it could not load before: "the native library is not available", "X requires the
# CUDA extensions".
_NATIVE = r"(?:\b(?:native|compiled|shared|cpp|gpu|cuda)\b|\bc\+\+)[^.\n]*"
_SAYS_SO = re.compile(
    rf"[^\n]*{_NATIVE}\b(?:librar\w+|extensions?|binar\w+|kernels?|operators?|ops|support)\b"
    r"[^.\n]*(?:\bnot\b|n't\b|\bun|\bmissing\b|\bfail)[^.\n]*(?:availab|found|load|buil[dt]|compil|install)[^\n]*"
    rf"|[^\n]*\b(?:requires?|needs?)\b[^.\n]*{_NATIVE}\bextensions?\b[^\n]*",
    re.IGNORECASE,
)
_BUILDING = "/torch/utils/cpp_extension.py"
_COMPILED = (".c", ".h", ".mm")  # how the suffixes of C++ and its kin begin
_MOST_FILES, _MOST_BYTES = 4000, 1 << 20
_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST_PATH, _LONGEST_POINTER = 4096, 1024
_MOST_IMPORTED = 1000  # files, the nearest first: a large package imports thousands, and it takes seconds to parse them


def unbuilt(error: BaseException, files: Sequence[str]) -> str:
    """Return what an error misses of the package's compiled code, in a sentence; empty if it is about something else.

    Args:
        error: What was raised. It may be about an operator with a misspelt name, which is the author's mistake.
        files: The files of its traceback.
    """
    text = str(error)
    if found := _NO_OPERATOR.search(text):
        namespace, name = filter(None, found.groups())
        return _unbuilt_operator(namespace, name)
    if (found := _NO_LIBRARY.search(text)) and not Path(found[1].strip()).exists():
        return f"{Path(found[1].strip()).name} {NOT_BUILT}"
    if any(file.endswith(_BUILDING) for file in files) and _NO_COMPILER.search(text):
        return f"an extension that torch.utils.cpp_extension builds {NOT_BUILT}: {' '.join(text.split())[:200]}"
    if isinstance(error, OSError) and (found := _NO_FILE.match(text)) and _is_own_library(found[1]):
        return f"{Path(found[1]).name} {NOT_BUILT}"
    if name := _none_of_compiled(error, text):
        return f"{name} is registered by {NOT_BUILT.removeprefix('is ')}: the package went on without it"
    by_package = Package.root is not None and bool(files) and Path(files[-1]).is_relative_to(Package.root)
    if by_package and (found := _SAYS_SO.search(text)) and compiled_sources():
        return f"the package says that its compiled code is not built here: {found[0].strip()[:200]}"
    return ""


def _is_own_library(path: str) -> bool:
    """Return whether a library is one of the package: below its root, or of the name of one of its files of C++."""
    root = Package.root
    if root is None or not compiled_sources():
        return False
    stem = Path(path).name.partition(".")[0].removeprefix("lib")
    return Path(path).is_relative_to(root) or any(Path(source).stem == stem for source, _ in compiled_sources())


def _none_of_compiled(error: BaseException, text: str) -> str:
    """Return the name of compiled code for which the package has None: `except ImportError: _C = None`, and later `_C.f()`."""
    if isinstance(error, AttributeError) and (found := _NONE_HAS_NO.fullmatch(text)):
        names = [found[1]]
    elif isinstance(error, TypeError) and text == "'NoneType' object is not callable" and error.__traceback__:
        (frame, line) = list(traceback.walk_tb(error.__traceback__))[-1]
        words = re.findall(r"(\w+)\(", linecache.getline(frame.f_code.co_filename, line))
        names = [word for word in words if word in frame.f_globals and frame.f_globals[word] is None]
    else:
        return ""
    return next((name for name in names if any(f'"{name}"' in source for _, source in compiled_sources())), "")


def _unbuilt_operator(namespace: str, name: str) -> str:
    """Return a sentence about an operator; empty if its name is misspelt.

    Compiled code of the package that has the name in quotes registers it. Where none has, a namespace that torch or that code knows has
    no such operator, and any other is that of code which is not installed.
    """
    quoted = re.compile(rf'"\(?(?:{namespace}::)?{name}\b')
    theirs = {found[1] for _, source in compiled_sources() for found in _LIBRARIES.finditer(source)}
    if namespace not in theirs and any(is_near(namespace, other) for other in theirs):
        return ""
    if named := next((path for path, source in compiled_sources() if quoted.search(source)), None):
        return f"torch.ops.{namespace}.{name} is registered by compiled code of the package, which is not built here ({named})"
    if any(namespace in source for _, source in compiled_sources()) or any(
        namespace == other or is_near(namespace, other) for other in _namespaces()
    ):
        return ""
    return f"torch.ops.{namespace}.{name} is registered by compiled code, which is not installed or built here"


def _namespaces() -> set[str]:
    import torch

    names: Iterable[str] = torch._C._dispatch_get_all_op_names()
    return {name.partition("::")[0] for name in names}


def compiled_sources() -> tuple[tuple[str, str], ...]:
    """Return the package's files of C++ and its kin: their paths below its root, and their texts."""
    return _sources_of(Package.root) if Package.root else ()


@functools.lru_cache(maxsize=4)
def _sources_of(root: Path) -> tuple[tuple[str, str], ...]:
    found = []
    for path in files_below(root):
        if path.suffix.startswith(_COMPILED) and path.stat().st_size < _MOST_BYTES:
            found.append((path.relative_to(root).as_posix(), path.read_text(encoding="utf-8", errors="replace")))
            if len(found) == _MOST_FILES:
                break
    return tuple(found)


# Modules of other packages that are not installed.

_DECLARING = ("pyproject.toml", "setup.py", "setup.cfg", "*requirements*.txt", "requirements/*.txt")
_DECLARED = re.compile(r"(?:^\s*|[\"'])([A-Za-z][\w-]*)(?=\s*(?:\[|==|[<>!~;]|[\"']|$))", re.MULTILINE)


def missing_modules(error: ModuleNotFoundError) -> list[str]:
    """Return the modules of other packages that an import needs and that are not installed, the missing one first.

    Empty if it is the package's own module, or has the name of a known one with one letter wrong, and no file of the package declares it:
    these are the author's mistakes.
    """
    missing = error.name if isinstance(error, metadata.PackageNotFoundError) else _requirement(error.name or "")
    if not missing:
        return []
    importing = _importing(error)
    others = (_requirement(name) for name in _imports_from(importing)) if importing else ()
    return list(dict.fromkeys([missing, *filter(None, others)]))


def _requirement(name: str) -> str:
    """Return the uppermost name of a module, if it is missing and may be another package's."""
    top = name.partition(".")[0]
    if not top or top == "conftest" or top in sys.builtin_module_names or top in sys.modules or PathFinder.find_spec(top):
        return ""
    own = _own_modules(Package.root) if Package.root else frozenset()
    if top in own:
        return ""
    if Package.root and _is_declared(top, Package.root):
        return top
    known = {*own, *sys.stdlib_module_names, *sys.modules, *metadata.packages_distributions()}
    return "" if any(is_near(top, other) for other in known if len(other) > 3 and "." not in other) else top


# What pytest says where a plugin of it is missing: the plugin, by the fixture that it has.
_NO_ASYNC = "async def functions are not natively supported"
_PLUGINS = {"benchmark": "pytest-benchmark", "mocker": "pytest-mock", "event_loop": "pytest-asyncio", "httpserver": "pytest-httpserver"}


def missing_plugin(error: BaseException) -> str:
    """Return the plugin of pytest without which a test cannot be called; empty if it is about something else."""
    if type(error).__name__ == "FixtureLookupError":
        return _PLUGINS.get(getattr(error, "argname", None) or "", "")
    return "pytest-asyncio" if str(error).startswith(_NO_ASYNC) else ""


def missing_program(error: BaseException) -> str:
    """Return the program that a package starts and this machine does not have; empty if its name is one of the path with a letter wrong."""
    name = str(getattr(error, "filename", None) or "")
    trace = traceback.extract_tb(error.__traceback__)[-1:]
    if not isinstance(error, FileNotFoundError) or not name or "/" in name or not trace or not trace[0].filename.endswith("/subprocess.py"):
        return ""
    programs = {path.name for folder in map(Path, os.get_exec_path()) if folder.is_dir() for path in folder.iterdir()}
    return "" if any(is_near(name, program) for program in programs) else name


def pointer(error: BaseException) -> str:
    """Return the file that was read and is only a pointer of Git LFS; empty if no variable of a frame that the error passed names one."""
    values = [value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()]
    named = [getattr(value, "name", "") if isinstance(value, io.IOBase) else value for value in values]
    paths = [os.fspath(each) for each in named if isinstance(each, (str, os.PathLike))] if not isinstance(error, AssertionError) else []
    found = next((path for path in paths if isinstance(path, str) and len(path) < _LONGEST_PATH and _is_pointer(Path(path))), "")
    return os.path.relpath(found, Package.root) if found and Package.root else found


def _is_pointer(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size < _LONGEST_POINTER and path.read_bytes().startswith(_POINTER)
    except (OSError, ValueError):
        return False


@functools.lru_cache(maxsize=4)
def _own_modules(root: Path) -> frozenset[str]:
    """Return the names of all modules and folders of a package's Python files.

    A requirement may have the name of a module within a package, which `import NAME` does not reach: `src/mine/transformers/`.
    """
    files = [path.relative_to(root) for path in files_below(root) if path.suffix == ".py"]
    packages = {path.parent for path in files if path.name == "__init__.py"}
    places = {place for path in files for place in (path.with_suffix(""), *path.parents) if place.name}
    within = {place.name for place in places} - {place.name for place in places if place.parent not in packages}
    return frozenset({place.name for place in places} - {name for name in within if _is_declared(name, root)})


def _is_declared(name: str, root: Path) -> bool:
    """Return whether a requirement has a module's name, or adds a word to it: `cuda-python`, `python-dateutil`."""
    return any(name == each or each.startswith(f"{name}_") or each.endswith(f"_{name}") for each in _declared(root))


@functools.lru_cache(maxsize=4)
def _declared(root: Path) -> frozenset[str]:
    """Return what a package's files seem to name as requirements, as names of modules."""
    paths = [path for pattern in _DECLARING for path in root.glob(pattern) if path.is_file() and path.stat().st_size < _MOST_BYTES]
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
    return frozenset(name.replace("-", "_") for text in texts for name in _DECLARED.findall(text))


def _importing(error: BaseException) -> Path | None:
    """Return the first file of the package that an import passed: the one that was to be imported."""
    passed = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    files = (Path(code.co_filename) for code in passed if code.co_name == "<module>")
    return next((file for file in files if Package.root and file.is_relative_to(Package.root)), None)


def _imports_from(file: Path) -> Iterator[str]:
    """Yield what a file, and those of the package's modules that it imports, import unless an `if` or a `try` guards it."""
    seen: set[Path] = set()
    left = [file]
    while left and len(seen) < _MOST_IMPORTED:
        path = left.pop(0)
        if path not in seen:
            seen.add(path)
            names, files = _imported(path, Package.folders)
            yield from names
            left += files


@functools.lru_cache(maxsize=4096)
def _imported(path: Path, folders: tuple[Path, ...]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return the modules that a file imports at its top, but for those by a relative name, and the files of the package that are run so.

    `from a.b import c` runs those of `a`, of `a.b`, and of `a.b.c` if it is a module.
    """
    try:
        nodes: list[ast.AST] = list(ast.parse(path.read_text(encoding="utf-8", errors="replace")).body)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return (), ()
    found: list[tuple[int, str]] = []
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, ".".join(filter(None, (node.module, alias.name)))) for alias in node.names]
        elif isinstance(node, ast.ClassDef):
            nodes += node.body
    files = []
    for level, name in found:
        parts = name.split(".")
        for folder in (path.parents[level - 1],) if level else (path.parent, *folders):
            modules = [folder.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
            files += [place for module in modules for place in (module.with_suffix(".py"), module / "__init__.py") if place.is_file()]
    return tuple(name for level, name in found if not level), tuple(dict.fromkeys(files))


def is_near(name: str, other: str) -> bool:
    """Return whether two names differ by one letter: another one, one more, one less, or two that are swapped."""
    if name == other or abs(len(name) - len(other)) > 1:
        return False
    if len(name) == len(other):
        wrong = [place for place, (one, two) in enumerate(zip(name, other, strict=True)) if one != two]
        swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1 and name[wrong[0]] == other[wrong[1]] and name[wrong[1]] == other[wrong[0]]
        return len(wrong) == 1 or swapped
    short, long = sorted((name, other), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)) if not long[place].isdigit())
