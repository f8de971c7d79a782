"""What the files of a kernel package are, from their paths alone: rules that the host and the inside share.

A path is relative to the package's folder and has forward slashes, as in pytest's node ids.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import PurePosixPath


def kernel_of(path: str) -> str:
    """Return the kernel that a file is about: its top folder, or for a file in no folder its name without `bench_` or `test_`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if len(parts) > 1:
        return parts[0]
    return PurePosixPath(*parts).stem.removeprefix("bench_").removeprefix("test_")


def is_test(path: str) -> bool:
    """Return whether pytest collects a file by its name, with the patterns that it has by default."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def is_bench(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a file's name or path matches one of the patterns for benchmarks; hidden folders and caches have none."""
    *folders, name = path.split("/")
    if any(folder.startswith((".", "__")) and folder != "." for folder in folders):
        return False
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in patterns)
