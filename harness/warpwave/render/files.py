"""Comparison → the files that other programs read: JSON with its schema, JUnit and CSV."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from warpwave import records
from warpwave.compare import model
from warpwave.compare.model import Cell, Comparison, Row
from warpwave.compare.speeds import is_bandwidth
from warpwave.records.words import is_memory, is_time
from warpwave.render.charts.sweeps import swept
from warpwave.safe_text import plain_json, visible

# Comparison → `bandwidth.csv`: tidy data for plots, one line per number.

COLUMNS = (
    *("kernel", "case", "provider", "dtype", "x", "x_label", "metric", "unit", "value", "median_ms", "p20_ms", "p80_ms"),
    *("ceiling_share", "target", "device", "verdict", "gpu", "commit", "run"),
)
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 - some spreadsheets take the wide ones too
_DTYPE = re.compile(r"(torch\.|tl\.)?(bf16|fp?\d+\w*|float\d+\w*|bfloat16|half|double|u?int\d+|i\d+)")


def render_csv(comparison: Comparison) -> str:
    """Return every measured point. A point that is not sound keeps its line, with the reason in `verdict`."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS)
    origins = {target.target: (_inert(target.commit), _inert(target.run_id)) for target in comparison.targets}
    axes = swept(comparison.rows)
    for row in comparison.rows:
        dtype, label = _parameters(row)
        x = axes.get((row.kernel, row.unit, row.case))
        for cell in row.cells:
            writer.writerow([*_line(row, cell, dtype, label, x), *origins.get(cell.target, ("", ""))])
    return "".join(lines)


_LONGEST = 4000  # characters of parameters


class _Lines(list[str]):
    """A list with the `write` method that a csv writer needs."""

    def write(self, line: str) -> None:
        """Append a line."""
        self.append(line)


def _parameters(row: Row) -> tuple[str, str]:
    """Return the type, and the other parameters as text. Long lists are cut, because the line of every target repeats them."""
    dtype = next((key for key, value in row.params.items() if key == "dtype" or (isinstance(value, str) and _DTYPE.fullmatch(value))), "")
    others = {key: value for key, value in row.params.items() if key != dtype}
    label = " ".join(f"{key}={value}" for key, value in others.items())
    return str(row.params.get(dtype, "")), label if len(label) <= _LONGEST else f"{label[:_LONGEST]}…"


def _line(row: Row, cell: Cell, dtype: str, label: str, x: float | None) -> list[str]:
    metric = (
        "bandwidth" if is_bandwidth(cell.unit) else "time" if is_time(cell.unit) else "memory" if is_memory(cell.unit) else "throughput"
    )
    size = "" if x is None else f"{x:.17g}"
    numbers = (cell.value, cell.median_ms, cell.p20_ms, cell.p80_ms, cell.share)
    state = "suspect" if cell.suspect else "unverified" if cell.value is not None and not cell.verified else cell.verdict.value
    figures = ("" if number is None else repr(number) for number in numbers)
    origin = [*map(_inert, (row.kernel, row.case, row.provider, dtype)), size, _inert(label), metric, _inert(cell.unit)]
    return [*origin, *figures, _inert(cell.target), _inert(cell.gpu), state, str(cell.device)]


def _inert(text: str) -> str:
    """Prefix an apostrophe to text that a spreadsheet would take for a formula."""
    shown = visible(text)
    return f"'{shown}" if shown.lstrip()[:1] in _FORMULA else shown


# Comparison → `comparison.json` in pieces: a line per key, and a line per entry of the long lists. Pure.

_MANY = 10_000  # entries. pydantic writes each in half the time once it knows the type, and to learn all types takes half a second.


def json_pieces(comparison: Comparison) -> Iterator[str]:
    """Yield strict JSON, without NaN and infinity. One entry per line suits readers, diffs and grep."""
    lead = "{"
    for field in dataclasses.fields(comparison):
        value = getattr(comparison, field.name)
        yield f'{lead}\n "{field.name}":'
        if isinstance(value, tuple) and value:
            write = partial(TypeAdapter(type(value[0])).dump_json, warnings=False) if len(value) > _MANY else _of_any_type
            yield "["
            for position, entry in enumerate(value):
                yield f"{',' if position else ''}\n  {plain_json(write(entry).decode())}"
            yield "\n ]"
        else:
            yield plain_json(_of_any_type(value).decode())
        lead = ","
    yield "\n}\n"


_of_any_type: Callable[[Any], bytes] = partial(to_json, inf_nan_mode="null")


# The JSON Schema of `comparison.json`, derived from the dataclasses; the package ships the result in `harness/warpwave/schemas/`.


def comparison_schema() -> str:
    """Return the schema as JSON text, as stored in `harness/warpwave/schemas/comparison.schema.json`."""
    schema = TypeAdapter(Comparison).json_schema(mode="serialization")
    for name, definition in schema["$defs"].items():
        # Older versions of pydantic leave out some descriptions. The text must not depend on the version.
        definition["description"] = inspect.getdoc(getattr(model, name, None) or getattr(records, name))
    named = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"warpwave comparison, version {records.SCHEMA_VERSION}",
        "description": inspect.getdoc(Comparison),
    }
    return json.dumps({**schema, **named}, indent=1, sort_keys=True) + "\n"
