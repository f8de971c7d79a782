"""What the files of a kernel package are, from their paths alone: rules that the host and the inside share.

A path is relative to the package's folder and has forward slashes, as in pytest's node ids.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

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
    """Return the kernel that a file is about, by which the report groups its tests and sweeps.

    Folders on top that only have a role are skipped, and so are those with one of the package's `own` names. Then it is the top folder; or
    for a file in no folder its name without `bench_` or `test_`.
    """
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
    """Return whether pytest collects a file by its name. `patterns` are the package's `python_files`, by default pytest's own.

    As in pytest, a pattern with a slash is compared with the end of the path.
    """
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
