"""A new engine or stage is its own files and an entry: every other place reads the registries."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from pathlib import Path

import pytest

from warpwave.cli.options import where_options
from warpwave.config.targets import targets_schema
from warpwave.records import CHOSEN, STAGES, Stage, TargetRun
from warpwave.records.registry import DEFAULT, ENGINES, FALLBACK, HERE

HARNESS = Path(__file__).parents[3] / "harness" / "warpwave"
METHODS = {"prepare", "image_id", "layout", "execute"}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_where_the_registry_says(name):
    """Its module can be imported without an engine that answers, has `connect`, and a class with the seam's methods and this name."""
    module = importlib.import_module(ENGINES[name].module)
    classes = [kind for kind in vars(module).values() if isinstance(kind, type) and vars(kind).get("name") == name]

    assert callable(module.connect)
    assert [kind for kind in classes if set(dir(kind)) >= METHODS]


def test_the_registry_names_every_file_of_an_engine():
    """What stands in a file and not in the registry could never be chosen."""
    files = {path for path in (HARNESS / "engines").rglob("*.py") if "\ndef connect(" in path.read_text()}

    assert files == {HARNESS.parent / (entry.module.replace(".", "/") + ".py") for entry in ENGINES.values()}
    assert {DEFAULT, FALLBACK} <= set(ENGINES)


def test_the_user_chooses_from_the_registry():
    """On the command line and in a targets file."""
    command = where_options(lambda: None)
    (engine,) = [option for option in command.__click_params__ if option.name == "engine"]

    assert list(engine.type.choices) == list(HERE)
    assert all(f'"{name}"' in targets_schema() for name in (*HERE, *(stage.value for stage in CHOSEN)))


def test_nobody_asks_for_an_engines_name():
    """What an engine can do is data; a comparison with its name would have to learn of each new one."""
    paths = sorted(HARNESS.rglob("*.py"))
    compared = [
        (path.relative_to(HARNESS).as_posix(), constant.value)
        for path in paths
        if any(name in (text := path.read_text()) for name in ENGINES)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and constant.value in ENGINES
    ]

    assert paths
    assert compared == []


@pytest.mark.parametrize("stage", Stage)
def test_a_stage_has_a_module_and_outputs_with_a_place(stage):
    """The inside starts `warpwave.inside.<stage>.stage`; what it writes goes to a field of the run."""
    fields = {field.name for field in dataclasses.fields(TargetRun)}

    assert (HARNESS / "inside" / stage.value / "stage.py").exists()
    assert {output.field for output in STAGES[stage].outputs} <= fields
    assert all(output.path.startswith((f"{stage.value}/", f"{stage.value}.")) for output in STAGES[stage].outputs)
