"""Validate files that a user writes. Errors name the key path, what was found, and what is allowed."""

from __future__ import annotations

import configparser
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import yaml

from warpwave.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

Kind = TypeVar("Kind")

_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_TABLES = ("model_type", "dataclass_type", "dict_type")


def default_file() -> Path:
    """Return the path of the shipped `targets.yml`: in the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    packaged = package / "docker" / "targets.yml"
    return packaged if packaged.exists() else package.parents[1] / "docker" / "targets.yml"


def validate(kind: type[Kind], raw: Any, path: Path, example: str) -> Kind:
    """Return the content of a file as a `kind`. `example` names the page that shows every key. Raises ConfigError if a key or a value is
    not allowed; the message names the first one."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        first = error.errors()[0]
    keys = [part for part in first["loc"] if part != "__args__"]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in keys).lstrip(".")
    if first["type"] == "missing":
        raise ConfigError(f"{path}: {where} is missing.", "This key is required.", f"Add it; {example}.")
    raise refusal(path, where, *_found_and_allowed(first, adapter, keys), example)


def refusal(path: Path, where: str, found: str, allowed: str, example: str) -> ConfigError:
    """Return the error for a key or value that is not allowed."""
    meaning = "The key is misspelt, at the wrong level, or its value has another type."
    return ConfigError(f"{path}: {where}: found {found}, allowed is {allowed}.", meaning, f"Fix that key; {example}.")


def refuse(allowed: str, found: str = "") -> NoReturn:
    """Refuse the value that a type's validator checks, or what `found` says."""
    from pydantic_core import PydanticCustomError

    raise PydanticCustomError("refused", "{allowed}", {"allowed": allowed, "found": found})


def _found_and_allowed(first: ErrorDetails, adapter: TypeAdapter[Any], keys: Sequence[int | str]) -> tuple[str, str]:
    shown = repr(first["input"])
    if first["type"] in _UNKNOWN:
        return "a key that does not exist", "one of " + ", ".join(_known_keys(adapter.json_schema(), keys[:-1]))
    if first["type"] == "refused":
        return first["ctx"]["found"] or shown, first["ctx"]["allowed"]
    if first["type"] in _TABLES:
        return shown, "a table"
    if first["type"] in ("list_type", "tuple_type") and isinstance(first["input"], dict):
        return "one table", f"a list of tables, each headed [[{'.'.join(map(str, keys))}]]"
    return shown, re.sub(r"<[^:>]+: ('[^']*')>", r"\1", first["msg"].replace("Input should be ", ""))


def _known_keys(schema: dict[str, Any], keys: Sequence[int | str]) -> list[str]:
    here: dict[str, Any] = schema
    for key in (*keys, None):
        while "$ref" in here or "anyOf" in here:
            here = schema["$defs"][here["$ref"].rpartition("/")[2]] if "$ref" in here else here["anyOf"][0]
        if key is not None:
            here = here["items"] if isinstance(key, int) else here.get("properties", {}).get(key) or here["additionalProperties"]
    return list(here.get("properties", {}))


_MOST_VALUES = 100_000
# PyYAML's reader in C needs a tenth of the time: each command reads the targets file. Not every build of PyYAML has it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path, what: str, example: str, mapping: str = "a mapping, such as `schema_version: 1`") -> dict[str, Any]:
    """Return the mapping in a file. `what` names the kind of file, `example` the page that shows every key, `mapping` what it has to hold.
    Raises ConfigError if the file is missing, is not YAML, or holds something else."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - one of the safe two
        if (size := _values(content, {})) > _MOST_VALUES:
            many = "without end" if math.isinf(size) else f"{size:.0f}"
            meaning = f"Anchors repeat a part of it again and again; {_MOST_VALUES} values are read."
            raise ConfigError(f"{path} holds more values than a {what} can need: {many}.", meaning, "Write out the parts that it needs.")
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


# Read a package's project files leniently: what other tools accept or ignore is not warpwave's to judge.

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path, *, strict: bool = False) -> dict[str, Any]:
    """Return a TOML file as tables; empty if it is missing or not valid. With `strict`, that raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        wrong = ConfigError(f"{path} cannot be read: {error}.", "It is not text, or not readable for this user.", "Fix or move it.")
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError; so is an invalid number or date
        wrong = ConfigError(f"{path} is not valid TOML: {error}.", "Usually a quote or a bracket is missing.", "Fix that line.")
    if strict:
        raise wrong
    return {}


def read_ini(path: Path) -> dict[str, dict[str, str]]:
    """Return the sections of an INI file; empty if it is missing or is not valid."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True, default_section="\0")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return {}
    return {section: {key: value or "" for key, value in parser[section].items()} for section in parser.sections()}
