"""Which test files and benches a change touches, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.run.choice.import_graph import ImportGraph

# Files that decide how everything below their folder is built, installed or tested.
_SETTINGS = re.compile(
    r"pyproject\.toml|setup\.(py|cfg)|\.?pytest\.(ini|toml)|tox\.ini|requirements[\w.-]*\.(txt|in)|uv\.lock|poetry\.lock"
)
_NO_CODE = re.compile(r".*\.(md|rst|png|jpe?g|svg|gif|pdf)|LICENSE.*|NOTICE.*|AUTHORS.*|CODEOWNERS|Makefile|Dockerfile.*")
_SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules"})


@dataclass(frozen=True)
class Touched:
    """The files that a change touches, each with the reason; and the changed files that touch none."""

    reasons: dict[str, str]
    without_effect: tuple[str, ...]


def python_files(root: Path) -> Iterator[str]:
    """Yield the Python files of a package, but those in hidden folders, caches, environments and results of builds."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        own = (name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        folders[:] = sorted(name for name in own if not (here / name / "pyvenv.cfg").exists())
        yield from ((here / name).relative_to(root).as_posix() for name in files if name.endswith(".py"))


def touched(graph: ImportGraph, wanted: Iterable[str], changed: Collection[str]) -> Touched:
    """Return which of the files `wanted` the files `changed` touch. All paths are relative to the package's root."""
    wanted = list(wanted)
    settings = [path for path in changed if _SETTINGS.fullmatch(PurePosixPath(path).name)]
    modules = {path: "" for path in changed if path.endswith(".py")}
    others = [path for path in changed if path not in modules and path not in settings and not _is_no_code(path)]
    known = {needed for path in wanted for needed in graph.reached(path)} if others else set()
    for path in others:
        modules |= {module: path for module in _users_of(path, known, graph) if module not in modules}
    reasons: dict[str, str] = {}
    for path in wanted:
        reached = graph.reached(path)
        above = next((file for file in settings if PurePosixPath(file).parent in PurePosixPath(path).parents), None)
        hit = path if path in modules and not modules[path] else next(iter(sorted(reached & modules.keys())), None)
        if hit is not None:
            reasons[path] = _reason(path, hit, modules[hit])
        elif above is not None:
            reasons[path] = f"{above} governs it"
    effective = {hit for path in reasons for hit in graph.reached(path) & modules.keys()}
    used = effective | {modules[hit] for hit in effective} | {file for file in settings if reasons}
    return Touched(reasons, tuple(path for path in changed if path not in used))


def _reason(path: str, hit: str, data: str) -> str:
    if data:
        return f"{hit}, which it needs, may read {data}" if hit != path else f"may read {data}"
    return "it has changed" if hit == path else f"needs {hit}"


def _users_of(path: str, known: Iterable[str], graph: ImportGraph) -> list[str]:
    """Return the modules that may read a file which is no module: those that name it, else those in its folder or the next one above."""
    known = sorted(known)
    name = PurePosixPath(path).name
    if named := [module for module in known if name in graph.text(module)]:
        return named
    for folder in PurePosixPath(path).parents:
        if near := [module for module in known if PurePosixPath(module).parent == folder]:
            return near
    return []


def _is_no_code(path: str) -> bool:
    pure = PurePosixPath(path)
    return any(part.startswith(".") for part in pure.parts) or _NO_CODE.fullmatch(pure.name) is not None
