"""The JSON Schema of `comparison.json`, derived from the dataclasses; the package ships the result in `harness/schemas/`."""

from __future__ import annotations

import inspect
import json

from pydantic import TypeAdapter

from harness import records
from harness.compare import model
from harness.compare.model import Comparison


def comparison_schema() -> str:
    """Return the schema as JSON text, as stored in `harness/schemas/comparison.schema.json`."""
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
