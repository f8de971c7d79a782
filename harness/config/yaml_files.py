"""Read a YAML file of the user's, and lay one over another. The only file of the harness that reads YAML."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from harness.config.strict import refusal
from harness.errors import ConfigError

_MOST_VALUES = 100_000
# PyYAML's reader in C needs a tenth of the time: each command reads the targets file. Not every build of PyYAML has it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path, what: str, example: str, mapping: str = "a mapping, such as `schema_version: 1`") -> dict[str, Any]:
    """Return the mapping in a file. `what` names the kind of file, `example` the page that shows every key, `mapping` what it has to hold.

    Raises:
        ConfigError: the file is missing, is not YAML, or holds something else.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - one of the safe two
        if (size := _values(content, {})) > _MOST_VALUES:
            many = "without end" if math.isinf(size) else f"{size:.0f}"
            raise ConfigError(
                f"{path} holds more values than a {what} can need: {many}.",
                f"Anchors repeat a part of it again and again; {_MOST_VALUES} values are read.",
                "Write out the parts that it needs.",
            )
    except FileNotFoundError:
        raise ConfigError(f"There is no {what} at {path}.", "The path is misspelt.", "Give the path of an existing YAML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "It is a folder, or not a text file.", "Give a UTF-8 YAML file.") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # its dates, its numbers, its depth
        happened = f"{path} is not valid YAML: {' '.join(str(error).split())}."
        raise ConfigError(happened, "Usually the indentation is off, or a `:` needs quotes.", "Fix the line named above.") from None
    if not isinstance(content, dict):
        raise refusal(path, "(top level)", repr(content)[:80], mapping, example)
    return content


def _values(content: Any, counted: dict[int, float]) -> float:
    """Return how many values there are if each anchor is written out where it is used; a part that contains itself has no end."""
    if not isinstance(content, (dict, list)):
        return 1
    if id(content) not in counted:
        counted[id(content)] = math.inf
        parts = content.values() if isinstance(content, dict) else content
        counted[id(content)] = 1 + sum(_values(part, counted) for part in parts)
    return counted[id(content)]


def keys(value: Any) -> list[str]:
    """Return the keys of a mapping, or nothing for any other value: validation reports that later."""
    return list(value) if isinstance(value, dict) else []


def merge(below: Any, above: Any) -> Any:
    """Merge `above` into `below`: mappings key by key; any other value of `above` replaces that of `below`."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: merge(below.get(key), value) for key, value in above.items()}}
    return above
