"""Read the tuned configurations that a package keeps in JSON files: an entry is a mapping of constants, `num_warps` and `num_stages`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.compare.toolchains.tuned import Tuned
from harness.config.package.pyproject import load_tuned
from harness.errors import ConfigError

_MOST = 100_000  # entries
_LARGEST = 32 << 20  # bytes of a file


def tuned_configurations(kernels: Path) -> list[Tuned]:
    """Return the entries of the files that `tuned` in the package's `pyproject.toml` names; none if it names none.

    Raises:
        ConfigError: the setting is not valid, or a file cannot be read.
    """
    folder, tables = load_tuned(kernels)
    found: list[Tuned] = []
    for table in tables:
        assert folder is not None  # of the file that holds the tables
        for path in sorted(folder.glob(table["files"])):
            name = path.relative_to(folder).as_posix()
            for entry, values in _entries(_read(path, table.get("key", ""))):
                found.append(Tuned(name, entry, values, table.get("function", "")))
                if len(found) >= _MOST:
                    return found
    return found


def _read(path: Path, key: str) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
        content = json.loads(path.read_text(encoding="utf-8"))
        return content[key] if key else content
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path} holds no tuned configurations: {type(error).__name__}: {error}.",
            "`tuned` in [tool.warpwave] names this file; it is not JSON, or has no such key.",
            "Fix the pattern `files` or the `key`.",
        ) from None


def _entries(content: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each innermost mapping of plain values, with its keys on the way: `{"16": {"BLOCK": 64}}` has the entry `16`."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    values = {str(key): value for key, value in pairs if isinstance(value, (int, float, str, bool))}
    if values and isinstance(content, dict):
        yield path or "(all)", values
    for key, value in content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ():
        yield from _entries(value, f"{path}/{key}".lstrip("/"))
