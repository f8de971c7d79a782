"""The artifacts of a workflow's run → those that count: of a leg that was run again, the last attempt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# As `gpu.yml` and `action.yml` call them: the leg, and the attempt of the run.
_NAME = re.compile(r"(raw-.+)-(\d{1,6})")


def latest(folders: Iterable[Path]) -> list[Path]:
    """Each folder, or its artifacts where it holds some, without the attempts that a later one of the same leg stands in for.

    A name that is none of ours stays: it is a folder of results like any other.
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
