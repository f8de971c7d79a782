"""Node ids as users have them → ids relative to the kernels folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.run.choice.test_names import missing

_MOST_BYTES = 4 << 20  # of all ids together: job.json holds them, and a report reads at most 8 MiB of it
_MOST_IDS = 50_000


def placed(ids: Iterable[str], option: str, kernels: Path, root: Path) -> tuple[str, ...]:
    """Return ids relative to the kernels folder. A path may be relative to it, to the package's root or to this folder, or absolute.

    Raises:
        UsageError: there is no such file or folder in the package, or the ids are too many.
    """
    found = [_placed(nodeid, kernels, root) for nodeid in ids]
    for nodeid, asked in zip(found, ids, strict=True):
        if nodeid is None:
            raise UsageError(
                f"{option}: there is no file {asked.partition('::')[0]!r} in {kernels}.",
                "An id begins with a file, as pytest and the report print it: relative to --kernels, or to the package's root.",
                f"For example {option} 'tests/test_add.py::test_add[1]'. `pytest --collect-only -q` lists the ids of a package.",
            )
    return checked((nodeid for nodeid in found if nodeid is not None), option)


def named(ids: Sequence[str], option: str, kernels: Path) -> tuple[str, ...]:
    """Return ids relative to the kernels folder, each of a test that its file may have.

    Raises:
        UsageError: a file has no test of that name.
    """
    for nodeid in ids:
        if (said := missing(nodeid, kernels)) is not None:
            raise UsageError(
                f"{option}: {said}",
                "The file has no test of that name, so nothing was started.",
                "`pytest --collect-only -q` lists the ids of a package; a file or a folder is an id, too.",
            )
    return tuple(ids)


def still_there(ids: Iterable[str], option: str, kernels: Path, run: Path) -> tuple[str, ...]:
    """Return those ids of an earlier run whose files are still in the package. A broken `conftest.py` stands for its folder.

    Raises:
        UsageError: none of them is, or they are too many.
    """
    names = list(ids)
    found = [nodeid for name in names if (nodeid := _placed(name, kernels, kernels)) is not None]
    if not found:
        raise UsageError(
            f"{option}: none of the {len(names)} tests that failed in {run} is in {kernels}.",
            "That run was of another package, or had another --kernels. Ids are relative to it.",
            "Give the --kernels of that run.",
        )
    return checked(found, option)


def listed(file: Path, option: str) -> list[str]:
    """Return the ids in a file: one a line. Empty lines, and those that begin with #, do not count.

    Raises:
        UsageError: there is no such file, or no id in it.
    """
    if not file.is_file():
        raise UsageError(f"{option}: there is no file {file}.", "The path is misspelt.", "Give a file with one node id a line.")
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    ids = [line for line in lines if line and not line.startswith("#")]
    if not ids:
        raise UsageError(f"{option}: {file} lists no test.", "All of its lines are empty or comments.", "Write one node id a line.")
    return ids


def checked(ids: Iterable[str], option: str) -> tuple[str, ...]:
    """Return each id once.

    Raises:
        UsageError: they are more than a job can hold.
    """
    found = tuple(dict.fromkeys(ids))
    if len(found) > _MOST_IDS or sum(len(nodeid.encode(errors="replace")) for nodeid in found) > _MOST_BYTES:
        raise UsageError(
            f"{option} lists {len(found)} ids.",
            f"A run takes at most {_MOST_IDS}, of {_MOST_BYTES >> 20} MiB.",
            "Name files or functions: they stand for all tests in them.",
        )
    return found


def _placed(nodeid: str, kernels: Path, root: Path) -> str | None:
    name, colons, rest = nodeid.partition("::")
    for base in (kernels, root, Path.cwd()):
        path = Path(os.path.normpath(base / name))
        if path.is_relative_to(kernels) and path.exists():
            path = path.parent if path.name == "conftest.py" else path
            return path.relative_to(kernels).as_posix() + colons + rest
    return None
