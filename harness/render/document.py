"""Comparison → `comparison.json`, in pieces: a key of the comparison a line, an entry of its long lists a line. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from harness.compare.comparison import Comparison
from harness.render.text import json_text


def json_pieces(comparison: Comparison) -> Iterator[str]:
    """Strict JSON, without NaN and infinity. Lines keep what one entry says together, for eyes, diffs and grep."""
    lead = "{"
    for field in dataclasses.fields(comparison):
        value = getattr(comparison, field.name)
        yield f"{lead}\n {json.dumps(field.name)}: "
        if isinstance(value, tuple) and value:
            yield "["
            for position, entry in enumerate(value):
                yield f"{',' if position else ''}\n  {_line(entry)}"
            yield "\n ]"
        else:
            yield _line(value)
        lead = ","
    yield "\n}\n"


def _line(value: Any) -> str:
    return json_text(value, default=_fields)


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass as JSON holds it; unlike `asdict` this copies nothing."""
    kind = type(value)
    names = _NAMES.get(kind) or _NAMES.setdefault(kind, tuple(field.name for field in dataclasses.fields(value)))
    return {name: getattr(value, name) for name in names}


_NAMES: dict[type, tuple[str, ...]] = {}  # asked for a million times
