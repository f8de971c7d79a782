"""Select the artifacts of a workflow's run that count: for a job that ran several times, the last attempt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# The names that `gpu.yml` and `action.yml` give: the leg (a job of the matrix), and the number of the attempt.
_NAME = re.compile(r"(raw-.+)-(\d{1,6})")


def latest(folders: Iterable[Path]) -> list[Path]:
    """Return each folder, or the artifacts in it if it holds some. Leave out an attempt if the same leg has a later one.

    A folder with any other name stays, like any folder of results.
    """
    found: list[Path] = []
    for folder in folders:
        inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()] if folder.is_dir() else []
        attempts: dict[str, tuple[int, Path]] = {}
        for path in inner:
            match = _NAME.fullmatch(path.name)
            if match and (match[1] not in attempts or int(match[2]) > attempts[match[1]][0]):
                attempts[match[1]] = (int(match[2]), path)
        if not attempts:
            found.append(folder)
            continue
        found += [path for _, path in attempts.values()]
        found += [path for path in inner if not _NAME.fullmatch(path.name)]
    return found
