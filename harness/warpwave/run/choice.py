"""Choose tests: by what has changed since a commit, by what failed in an earlier run, or by their ids."""

import ast
import difflib
import math
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from warpwave.collect.raw_folder import collect_all, find_raw
from warpwave.errors import InfrastructureError, NothingRanError, UsageError
from warpwave.git import ask_git
from warpwave.records import HARMLESS, Verdict
from warpwave.records.selection import is_load

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Change:
    """What has changed since `commit`. `files` are relative to the package's root, and include deleted and new ones."""

    commit: str
    files: tuple[str, ...]


def changed_files(root: Path, ref: str) -> Change:
    """Return what has changed below `root` since it left `ref`: committed, uncommitted and untracked, but not ignored. Raises UsageError if
    the folder is in no repository, or there is no such commit, and InfrastructureError if git is missing, or does not answer."""
    if _git(root, "rev-parse", "--is-inside-work-tree") is None:
        happened = f"--changed-since: {root} is in no git repository."
        raise UsageError(happened, "A change is what git says it is.", "Leave --changed-since out.")
    commit = _git(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if not commit:
        meaning = "It is misspelt, or this clone does not have it: CI systems fetch one commit only."
        remedy = f"Fetch it first, for example with `git fetch origin {ref}`, and give FETCH_HEAD."
        raise UsageError(f"--changed-since: git knows no commit {ref!r} in {root}.", meaning, remedy)
    # What others have added to the branch since does not count. A shallow clone may not hold the commit that both began with.
    base = _git(root, "merge-base", commit.strip(), "HEAD") or commit
    tracked = _git(root, "diff", "--relative", "--name-only", "--no-renames", "-z", base.strip(), "--", ".")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    if tracked is None or new is None:
        meaning = "The clone is damaged, or lacks files of that commit."
        remedy = f"`git -C {root} diff --name-only {base.strip()}` says why."
        raise InfrastructureError(f"--changed-since: git could not list what has changed since {ref}.", meaning, remedy)
    files = tuple(sorted({name for name in (tracked + new).split("\0") if name}))
    return Change(base.strip()[:12], files)


def _git(root: Path, *words: str) -> str | None:
    if shutil.which("git") is None:
        raise InfrastructureError("--changed-since: there is no git.", "It is not installed, or not on PATH.", "Install git.")
    return ask_git(root, *words, limit_s=_PATIENCE_S)


def failed_tests(run: Path) -> tuple[str, ...]:
    """Return the ids of the tests that did not pass in a run, in its order: on any target, in the test stage or the compile stage. Raises
    NothingRanError if all tests passed, UsageError if the run has no result of any test, and InvalidInputError if the folder holds no
    run."""
    runs = collect_all(find_raw([run]))
    seen = [(case.id, case.verdict) for each in runs for case in each.cases]
    seen += [(row.origin, row.verdict) for each in runs for row in each.compiled if _is_a_test(row.origin)]
    if not seen:
        happened = f"--last-failed: the run in {run} has no result of any test."
        raise UsageError(happened, "It ran no test stage, or it ended before.", "Give another run.")
    failed = dict.fromkeys(name for name, verdict in seen if verdict not in HARMLESS and _is_a_test(name))
    if not failed:
        remedy = "Leave --last-failed out to run all tests."
        raise NothingRanError(f"--last-failed: no test failed in {run}.", "There is nothing to run again.", remedy)
    return tuple(failed)


def failed_in_time(run: Path) -> tuple[str, ...]:
    """Return the ids of the tests that failed in a run, which must be there, and not by their limit: those that a budget has time for."""
    slow = (*HARMLESS, Verdict.TIMEOUT)
    cases = [case for each in collect_all(find_raw([run])) for case in each.cases]
    return tuple(dict.fromkeys(case.id for case in cases if case.verdict not in slow and _is_a_test(case.id)))


def seconds_by_file(run: Path) -> dict[str, float]:
    """Return how long a run took for each of its files, in s, over all of its targets: its tests, and what they launch compiled. What is
    compiled for the points of a benchmark is under the benchmark's kernel. Raises UsageError if the run timed nothing, and
    InvalidInputError if the folder holds no run."""
    found: defaultdict[str, float] = defaultdict(float)
    for each in collect_all(find_raw([run])):
        timed = [(case.id.partition("::")[0], case.seconds) for case in each.cases]
        timed += [(row.origin.partition("::")[0] if _is_a_test(row.origin) else row.kernel, row.seconds) for row in each.compiled]
        for name, seconds in timed:
            found[name] += seconds if math.isfinite(seconds) else 0.0
    if not any(found.values()):
        raise UsageError(f"--shard-times: the run in {run} timed no test.", "It ended before its first test.", "Give another run.")
    return dict(found)


def _is_a_test(name: str) -> bool:
    """Return whether a name is a test's id, or that of a file with tests; not a point's, or pytest itself."""
    return "::" in name or name.endswith(".py")


class ImportGraph:
    """The files of a package and what each imports, as its source says. Paths are relative to `root`, with forward slashes. `files` are its
    Python files, also those that a change has deleted. Modules are imported from the folders `bases`. The answer errs on the side of too
    much: a name that two files may stand for stands for both, and a module on a path that a test puts together itself is found by its name
    alone."""

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


_IMPORTERS = {"import_module", "__import__"}


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
        elif (
            isinstance(node, ast.Call)
            and node.args
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "__import__")
        ):
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


_MAKERS = {"globals", "locals", "vars", "setattr", "exec", "__dict__"}  # what makes a name that is written nowhere


def missing(nodeid: str, kernels: Path) -> str | None:
    """Return in pytest's words that an id (relative to `kernels`) names no test, with the names that are close; None if it may name one.
    The parameters in brackets are not checked: only running the file tells them."""
    file, *names = nodeid.partition("[")[0].split("::")
    path = kernels / file
    if path.suffix != ".py" or is_load(nodeid) or not names or names[0] == path.stem or not all(map(str.isidentifier, names)):
        return None  # what a plugin collects has other names; a doctest has its module's
    try:
        text = path.read_text(encoding="utf-8")
        body: Sequence[ast.stmt] = ast.parse(text).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # pytest reports why, when it loads the file
    if _makes_names(body):
        return None
    where = f"<Module {path.name}>"
    for name in names:
        if not re.search(rf"\b{name}\b", text):
            return f"not found: {nodeid} (no match in any of [{where}]){_close(name, body)}"
        found = next((each for each in body if isinstance(each, ast.ClassDef) and each.name == name), None)
        if found is None or any(not (isinstance(base, ast.Name) and base.id == "object") for base in found.bases):
            return None  # a function, or a class that inherits tests
        where, body = f"<Class {name}>", found.body
    return None


def _makes_names(body: Sequence[ast.stmt]) -> bool:
    """Whether a file may have tests that it does not name: by `from base import *`, or made while it runs."""
    for node in (found for statement in body for found in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
            return True
        if (isinstance(node, ast.Name) and node.id in _MAKERS) or (isinstance(node, ast.Attribute) and node.attr in _MAKERS):
            return True
    return False


def _close(name: str, body: Sequence[ast.stmt]) -> str:
    there = [each.name for each in body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    close = difflib.get_close_matches(name, [each for each in there if each.lower().startswith("test")], n=2)
    return f"; did you mean {' or '.join(close)}?" if close else ""


_MOST_BYTES = 4 << 20  # of all ids together: job.json holds them, and a report reads at most 8 MiB of it
_MOST_IDS = 50_000


def placed(ids: Iterable[str], option: str, kernels: Path, root: Path) -> tuple[str, ...]:
    """Return ids relative to the kernels folder. A path may be relative to it, to the package's root or to this folder, or absolute. Raises
    UsageError if there is no such file or folder in the package, or the ids are too many."""
    found = [place_of(nodeid, kernels, root) for nodeid in ids]
    for nodeid, asked in zip(found, ids, strict=True):
        if nodeid is None:
            meaning = "An id begins with a file, as pytest and the report print it: relative to --kernels, or to the package's root."
            remedy = f"For example {option} 'tests/test_add.py::test_add[1]'. `pytest --collect-only -q` lists the ids of a package."
            raise UsageError(f"{option}: there is no file {asked.partition('::')[0]!r} in {kernels}.", meaning, remedy)
    return checked((nodeid for nodeid in found if nodeid is not None), option)


def named(ids: Sequence[str], option: str, kernels: Path) -> tuple[str, ...]:
    """Return ids relative to the kernels folder, each of a test that its file may have. Raises UsageError if a file has no test of that
    name."""
    for nodeid in ids:
        if (said := missing(nodeid, kernels)) is not None:
            remedy = "`pytest --collect-only -q` lists the ids of a package; a file or a folder is an id, too."
            raise UsageError(f"{option}: {said}", "The file has no test of that name, so nothing was started.", remedy)
    return tuple(ids)


def still_there(ids: Iterable[str], option: str, kernels: Path, run: Path) -> tuple[str, ...]:
    """Return those ids of an earlier run whose files are still in the package. A broken `conftest.py` stands for its folder. Raises
    UsageError if none of them is, or they are too many."""
    names = list(ids)
    found = [nodeid for name in names if (nodeid := place_of(name, kernels, kernels)) is not None]
    if not found:
        happened = f"{option}: none of the {len(names)} tests that failed in {run} is in {kernels}."
        meaning = "That run was of another package, or had another --kernels. Ids are relative to it."
        raise UsageError(happened, meaning, "Give the --kernels of that run.")
    return checked(found, option)


def listed(file: Path, option: str) -> list[str]:
    """Return the ids in a file: one a line. Empty lines, and those that begin with #, do not count. Raises UsageError if there is no such
    file, or no id in it."""
    if not file.is_file():
        raise UsageError(f"{option}: there is no file {file}.", "The path is misspelt.", "Give a file with one node id a line.")
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    ids = [line for line in lines if line and not line.startswith("#")]
    if not ids:
        raise UsageError(f"{option}: {file} lists no test.", "All of its lines are empty or comments.", "Write one node id a line.")
    return ids


def checked(ids: Iterable[str], option: str) -> tuple[str, ...]:
    """Return each id once. Raises UsageError if they are more than a job can hold."""
    found = tuple(dict.fromkeys(ids))
    if len(found) > _MOST_IDS or sum(len(nodeid.encode(errors="replace")) for nodeid in found) > _MOST_BYTES:
        meaning = f"A run takes at most {_MOST_IDS}, of {_MOST_BYTES >> 20} MiB."
        raise UsageError(f"{option} lists {len(found)} ids.", meaning, "Name files or functions: they stand for all tests in them.")
    return found


def place_of(nodeid: str, kernels: Path, root: Path) -> str | None:
    """Return an id relative to the kernels folder; None if there is no such file or folder in it."""
    name, colons, rest = nodeid.partition("::")
    for base in (kernels, root, Path.cwd()):
        path = Path(os.path.normpath(base / name))
        if path.is_relative_to(kernels) and path.exists():
            path = path.parent if path.name == "conftest.py" else path
            return path.relative_to(kernels).as_posix() + colons + rest
    return None


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


def package_files(root: Path) -> Iterator[str]:
    """Yield the files of a package, but those in hidden folders, caches, environments and results of builds."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        own = (name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        folders[:] = sorted(name for name in own if not (here / name / "pyvenv.cfg").exists())
        yield from ((here / name).relative_to(root).as_posix() for name in files)


def python_files(root: Path) -> Iterator[str]:
    """Yield its Python files."""
    return (name for name in package_files(root) if name.endswith(".py"))


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
            needed = f"{hit}, which it needs, " if hit != path and modules[hit] else ""
            changed_file = "it has changed" if hit == path else f"needs {hit}"
            reasons[path] = f"{needed}may read {modules[hit]}" if modules[hit] else changed_file
        elif above is not None:
            reasons[path] = f"{above} governs it"
    effective = {hit for path in reasons for hit in graph.reached(path) & modules.keys()}
    used = effective | {modules[hit] for hit in effective} | {file for file in settings if reasons}
    return Touched(reasons, tuple(path for path in changed if path not in used))


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
    *_, name = parts = PurePosixPath(path).parts
    return any(part.startswith(".") for part in parts) or _NO_CODE.fullmatch(name) is not None
