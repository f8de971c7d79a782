"""Which tests of a package a run was asked for. The host chooses them, and the inside finds them by their ids. Ids are pytest's own,
relative to the kernels folder, with forward slashes. The id of a folder, a file, a class or a function stands for all tests in it."""

import fnmatch
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Union

from warpwave.records.words import Few, Page, Prose, record

NO_SUCH_TEST = "there is no such test"  # the end of the message of a chosen id that stands for none
RAN_NO_TEST = "pytest ran no test: "  # the start of the reason of a stage in which pytest refused an option
FOR_TIME = ("--quick", "--budget")  # options that leave out tests for want of time: others choose what is wanted
_CHOOSING = ("-k", "-m", "--deselect", "--ignore", "--ignore-glob")  # options of pytest


@record(frozen=True)
class Chosen:
    """The tests that were asked for; None if all were. Those of `without` are left out. `how` is what chose them, as the user wrote it.
    `why` says in lines what was chosen and for which reason. With `must_exist`, an id without a test is an error; otherwise the test is
    gone since it was listed."""

    tests: Union[tuple[str, ...], None] = None
    without: tuple[str, ...] = ()
    how: Annotated[tuple[Page, ...], Few] = ()
    why: Annotated[tuple[Prose, ...], Few] = ()
    must_exist: bool = False

    def __str__(self) -> str:
        parts = [] if self.tests is None else [f"{len(self.tests)} chosen: {' '.join(self.tests[:3])}"]
        parts += [f"{len(self.without)} left out: {' '.join(self.without[:3])}"] if self.without else []
        return f"{' '.join(self.how)} ({'; '.join(parts)})" if parts else "none"


CONFIGURATION_OF = "configuration of "  # the start of the property of a test that launched an autotuned kernel


def parse_configuration(text: str) -> tuple[str, dict[str, str]]:
    """Return the kernel and the settings of `matmul: BLOCK=128 num_warps=4`.

    Raises:
        ValueError: the text is something else.
    """
    kernel, _, rest = text.partition(":")
    pairs = [part.partition("=") for part in re.split(r"[\s,]+", rest.strip())]
    if not kernel.strip() or not all(name and equals and value for name, equals, value in pairs):
        raise ValueError(f"{text!r} is no configuration, such as 'matmul: BLOCK=128 num_warps=4'")
    return kernel.strip(), {name: value for name, _, value in pairs}


class Selection:
    """What one process runs of a package: the chosen tests, as far as they are in `files`. None of either means all."""

    def __init__(self, chosen: Chosen, files: Union[Iterable[str], None] = None) -> None:
        self.chosen = chosen
        self.files = None if files is None else frozenset(files)
        self._tests = None if chosen.tests is None else frozenset(chosen.tests)
        self._without = frozenset(chosen.without)
        named = [self.files, None if self._tests is None else {file_of(test) for test in self._tests}]
        # For each of both choices, the folders on the way to what was chosen.
        self._ways = [None if each is None else {above for name in each for above in at_and_above(name)} for each in named]

    def takes(self, nodeid: str) -> bool:
        """Return whether a test is to run."""
        return self._is_in_files(file_of(nodeid)) and _holds(self._tests, nodeid) and not (self._without and _holds(self._without, nodeid))

    def looks_into(self, path: str) -> bool:
        """Return whether any test of a file, or of a folder, may be to run."""
        ways = [way is None or path in way for way in self._ways]
        wanted = ways[1] or _holds(self._tests, path)
        return (ways[0] or self._is_in_files(path)) and wanted and not (self._without and _holds(self._without, path))

    def unmet(self, found: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the ids that were chosen, and those to be left out, that stand for none of the tests `found`."""
        met = {above for nodeid in found for above in at_and_above(nodeid)}
        lacking = [each for each in self.chosen.tests or () if each not in met and self._has(file_of(each))]
        unknown = [each for each in self.chosen.without if each not in met and self.looks_into(file_of(each))]
        return lacking, unknown

    def _has(self, path: str) -> bool:
        """Return whether a file belongs to this process: another shard may have it."""
        return self._ways[0] is None or path in self._ways[0] or self._is_in_files(path)

    def _is_in_files(self, name: str) -> bool:
        return self.files is None or name in self.files


def file_of(nodeid: str) -> str:
    """Return the file, or folder, that an id begins with."""
    return nodeid.partition("::")[0]


def at_and_above(nodeid: str) -> list[str]:
    """Return an id and those of all that it is in: `a`, `a/test_x.py`, `a/test_x.py::test_y`, `a/test_x.py::test_y[1]`."""
    file, colons, rest = nodeid.partition("::")
    parts = file.split("/")
    found = [".", *("/".join(parts[: end + 1]) for end in range(len(parts)))]
    if colons:
        names = rest.partition("[")[0].split("::")  # a parameter may have any character
        found += [f"{file}::{'::'.join(names[: end + 1])}" for end in range(len(names))]
        found += [nodeid] if "[" in rest else []
    return found


@dataclass(frozen=True)
class Narrowed:
    """How a run had only some of a package's tests. `by` are the options, as the user wrote them; none if it had all."""

    by: tuple[str, ...] = ()
    chosen: Chosen = field(default_factory=Chosen)


def narrowed(chosen: Chosen, quick: bool, pytest_args: Iterable[str], out_of_time: bool = False) -> Narrowed:
    """Return how these options narrow a run; `out_of_time`: and its budget."""
    found = list(chosen.how)
    words = list(pytest_args)
    for place, word in enumerate(words):
        option = word.partition("=")[0] if word.startswith("--") else word[:2]
        if option in _CHOOSING:
            text = " ".join(words[place : place + 2]) if word in _CHOOSING else word
            found.append(f"{option} {text[3:]}" if text[2:3] == "=" else text)
    return Narrowed((*found, *(["--quick"] if quick else ["--budget"] if out_of_time else [])), chosen)


def _holds(ids: Union[Collection[str], None], nodeid: str) -> bool:
    return ids is None or any(above in ids for above in at_and_above(nodeid))


# A path is relative to the package's folder and has forward slashes, as in pytest's node ids.

TEST_FILES = ("test_*.py", "*_test.py")  # pytest's default for `python_files`
# A folder whose name has only these words says what kind of code is in it, not which kernel: `tests`, `op_tests`, `src`.
_ROLES = frozenset(
    {
        *("test", "tests", "testing", "unit", "unittest", "unittests", "integration"),
        *("bench", "benches", "benchmark", "benchmarks", "benchmarking", "perf", "performance", "speed"),
        *("src", "source", "lib", "python", "op", "ops", "operator", "operators", "kernel", "kernels", "triton"),
        *("example", "examples", "tutorial", "tutorials", "script", "scripts"),
        *("model", "models", "module", "modules", "layer", "layers", "nn", "functional", "transformers", "common"),
    }
)
_ROLE_OF_FILE = re.compile(r"(?:(?:test|bench|benchmark|perf)_)?(.+?)(?:_(?:test|bench|benchmark|perf))?")


def kernel_of(path: str, own: Iterable[str] = ()) -> str:
    """Return the kernel that a file is about, by which the report groups its tests and sweeps. Folders on top that only have a role are
    skipped, and so are those with one of the package's `own` names. Then it is the top folder; or for a file in no folder its name without
    `bench_` or `test_`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    names = {_plain(name) for name in own}
    while len(parts) > 1 and (_plain(parts[0]) in names or _ROLES.issuperset(_plain(parts[0]).split("_"))):
        parts.pop(0)
    if len(parts) > 1:
        return parts[0]
    stem = PurePosixPath(*parts).stem
    found = _ROLE_OF_FILE.fullmatch(stem)
    return found[1] if found else stem


def _plain(name: str) -> str:
    """Return a name as all of its spellings have it: `flash-attn` and `Flash_Attn` are one."""
    return re.sub(r"[-_.]+", "_", name).lower()


def is_test(path: str, patterns: Iterable[str] = TEST_FILES) -> bool:
    """Return whether pytest collects a file by its name. `patterns` are the package's `python_files`, by default pytest's own. As in
    pytest, a pattern with a slash is compared with the end of the path."""
    name = path.rpartition("/")[2]
    if not name.endswith(".py"):
        return False
    return any(fnmatch.fnmatch(f"/{path}", f"*/{pattern}") if "/" in pattern else fnmatch.fnmatch(name, pattern) for pattern in patterns)


def is_bench(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a file's name or path matches one of the patterns for benchmarks; hidden folders and caches have none."""
    *folders, name = path.split("/")
    if any(folder.startswith((".", "__")) and folder != "." for folder in folders):
        return False
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in patterns)


def is_load(test: str) -> bool:
    """Return whether a test's id stands for the load of a file of benchmarks: warpwave adds such a test for each, `bench_x.py::module`."""
    return test.endswith(".py::module")


def find_scripts(pattern: str, *folders: Path) -> list[tuple[Path, str]]:
    """Return the files that a glob matches, sorted, each with its path in its folder. The first folder where it matches anything counts."""
    for folder in folders:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if found:
            return [(path, path.relative_to(folder).as_posix()) for path in found]
    return []
