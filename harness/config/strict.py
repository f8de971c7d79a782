"""Validate files that a user writes. Errors name the key path, what was found, and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from harness.errors import ConfigError

Kind = TypeVar("Kind")

_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_TABLES = ("model_type", "dataclass_type", "dict_type")


def validate(kind: type[Kind], raw: Any, path: Path, example: str) -> Kind:
    """Return the content of a file as a `kind`. `example` names the page that shows every key.

    Raises:
        ConfigError: a key or a value is not allowed; the message names the first one.
    """
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
    return ConfigError(
        f"{path}: {where}: found {found}, allowed is {allowed}.",
        "The key is misspelt, at the wrong level, or its value has another type.",
        f"Fix that key; {example}.",
    )


def refuse(allowed: str, found: str = "") -> NoReturn:
    """Refuse the value that a type's validator checks, or what `found` says."""
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
    """Return the keys that a table may have, from the JSON Schema of the file."""
    here: dict[str, Any] = schema
    for key in (*keys, None):
        while "$ref" in here or "anyOf" in here:
            here = schema["$defs"][here["$ref"].rpartition("/")[2]] if "$ref" in here else here["anyOf"][0]
        if key is not None:
            here = here["items"] if isinstance(key, int) else here.get("properties", {}).get(key) or here["additionalProperties"]
    return list(here.get("properties", {}))
