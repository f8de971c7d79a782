"""comparison.json and its schema. All data is synthetic."""

import dataclasses
import json
from importlib.resources import files

from pydantic import TypeAdapter
from synthetic import no_gpu, two_targets

from warpwave.compare import compare
from warpwave.compare.model import Comparison
from warpwave.records import to_json
from warpwave.render.files import comparison_schema


def test_the_stored_schema_is_that_of_the_code():
    """To update it: `python -c "from warpwave.render.files import *; print(comparison_schema(), end='')"`."""
    stored = files("warpwave").joinpath("schemas/comparison.schema.json").read_text(encoding="utf-8")

    assert json.loads(stored, object_hook=_explicit) == json.loads(comparison_schema(), object_hook=_explicit)


def _explicit(found):
    """Remove explicit defaults, which older versions of pydantic do not write."""
    return {key: value for key, value in found.items() if (key, value) != ("additionalProperties", True)}


def test_a_comparison_can_be_read_back_and_drawn_again():
    """The JSON is complete: what is read equals what was written."""
    comparison = compare([no_gpu(), *two_targets()], ["cpu", "alpha", "beta", "gamma"])

    assert TypeAdapter(Comparison).validate_json(to_json(comparison)) == comparison


def test_every_key_of_a_comparison_is_in_the_schema():
    """Nothing is written that the schema does not name, at any depth."""
    schema = json.loads(comparison_schema())

    def check(value, kind):
        while "$ref" in kind:
            kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
        if "anyOf" in kind:
            kind = next((option for option in kind["anyOf"] if option != {"type": "null"}), kind) if value is not None else {}
            return check(value, kind) if "anyOf" not in kind else None
        if isinstance(value, dict) and "properties" in kind:
            assert set(value) == set(kind["properties"])
            for key, below in value.items():
                check(below, kind["properties"][key])
        elif isinstance(value, list):
            for below in value:
                check(below, kind["items"])
        return None

    check(json.loads(to_json(compare(two_targets(), ["alpha", "beta"]))), schema)


def test_units_and_versions_are_in_the_schema():
    """The file alone tells what it contains."""
    schema = json.loads(comparison_schema())

    assert schema["properties"]["schema_version"]["default"] == 1
    assert {field.name for field in dataclasses.fields(Comparison)} == set(schema["properties"])
