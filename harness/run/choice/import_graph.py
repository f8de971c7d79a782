"""What a Python file of a package imports from the package, as its source says. Nothing is run.

The answer errs on the side of too much: a name that two files may stand for stands for both, and a module on a path that a test puts
together itself is found by its name alone.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath


class ImportGraph:
    """The files of a package and what each needs. Paths are relative to `root`, with forward slashes.

    `files` are its Python files, also those that a change has deleted. Modules are imported from the folders `bases`.
    """

    def __init__(self, root: Path, files: Iterable[str], bases: Iterable[str] = (".",)) -> None:
        self.root, self.files = root, frozenset(files)
        self.bases = [PurePosixPath(base) for base in bases]
        self._needs: dict[str, frozenset[str]] = {}
        self._text: dict[str, str] = {}
        self._named: defaultdict[str, list[str]] = defaultdict(list)  # by the last word of the module's name
        for path in self.files:
            pure = PurePosixPath(path)
            self._named[pure.parent.name if pure.stem == "__init__" else pure.stem].append(path)

    def reached(self, path: str) -> frozenset[str]:
        """Return a file and all that it needs, directly or not: what it imports, and the conftest.py files above it."""
        found, left = {path}, [path]
        while left:
            for needed in self.needs(left.pop()) - found:
                found.add(needed)
                left.append(needed)
        return frozenset(found)

    def needs(self, path: str) -> frozenset[str]:
        """Return the files that a file needs directly."""
        if path not in self._needs:
            above = [str(folder / "conftest.py") for folder in PurePosixPath(path).parents]
            found = {other for other in above if other in self.files}
            for base, name in _imports(self.text(path), PurePosixPath(path)):
                found |= set(self._files_of(name, [base] if base is not None else self._bases_of(path)))
            self._needs[path] = frozenset(found - {path})
        return self._needs[path]

    def text(self, path: str) -> str:
        """Return a file's source; empty if it is deleted or is not UTF-8."""
        if path not in self._text:
            try:
                self._text[path] = (self.root / path).read_text(encoding="utf-8")
            except (OSError, ValueError):
                self._text[path] = ""
        return self._text[path]

    def _bases_of(self, path: str) -> list[PurePosixPath]:
        """Return the folders that a file imports from: the package's, and those that pytest and Python put on the path for it."""
        folders = [folder for folder in PurePosixPath(path).parents if f"{folder}/conftest.py" in self.files]
        own = [PurePosixPath(path).parent, *folders]
        return [*self.bases, *own, *(self._outside(folder) for folder in own)]

    def _outside(self, folder: PurePosixPath) -> PurePosixPath:
        """Return the first folder at or above this one that is no package."""
        while str(folder / "__init__.py") in self.files and folder != folder.parent:
            folder = folder.parent
        return folder

    def _files_of(self, name: tuple[str, ...], bases: list[PurePosixPath]) -> Iterator[str]:
        """Yield the files that `import a.b.c` runs: the `__init__.py` of each package on the way, and the module."""
        hit = False
        for base in dict.fromkeys(bases):
            for end in range(len(name) + 1):
                place = base.joinpath(*name[:end])
                for path in (f"{place}.py" if end else "", str(place / "__init__.py")):
                    if path in self.files and (end or base not in self.bases):
                        hit = hit or end > 0
                        yield path
        if not hit and name:
            for end in (len(name), len(name) - 1):  # the last word may be something in the module
                tail = name[:end]
                yield from (path for path in self._named[tail[-1]] if _ends_with(path, tail)) if tail else ()


def _ends_with(path: str, name: tuple[str, ...]) -> bool:
    pure = PurePosixPath(path)
    parts = pure.parent.parts if pure.stem == "__init__" else (*pure.parent.parts, pure.stem)
    return parts[-len(name) :] == name


def _imports(text: str, path: PurePosixPath) -> Iterator[tuple[PurePosixPath | None, tuple[str, ...]]]:
    """Yield the modules that a source names: the folder that a relative one starts from, and the words of the name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # pytest reports it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((None, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _up(path, node.level) if node.level else None
            module = tuple(node.module.split(".")) if node.module else ()
            yield from ((base, module if alias.name == "*" else (*module, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__") and node.args:
            yield from _of_text(node.args[0], path)
        elif isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == "pytest_plugins" for each in node.targets):
            for value in ast.walk(node.value):
                yield from _of_text(value, path)


def _of_text(node: ast.AST, path: PurePosixPath) -> Iterator[tuple[PurePosixPath | None, tuple[str, ...]]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.lstrip(".")
        level = len(node.value) - len(name)
        yield (_up(path, level) if level else None, tuple(name.split(".")) if name else ())


def _up(path: PurePosixPath, level: int) -> PurePosixPath:
    return path.parents[min(level, len(path.parents)) - 1]


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
