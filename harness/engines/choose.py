"""Choose the engine that runs a target."""

from __future__ import annotations

import importlib

from harness.config.targets import Target
from harness.engines.protocol import Engine, Say
from harness.errors import InfrastructureError
from harness.records.engines import ENGINES, FALLBACK


def load_engine(name: str) -> Engine:
    """Import the engine called `name` and connect to it.

    Raises:
        InfrastructureError: the engine cannot be reached.
    """
    engine: Engine = importlib.import_module(ENGINES[name].module).connect()
    return engine


def choose_engine(asked: str | None, target: Target, say: Say) -> Engine:
    """Connect to the engine that the user asked for, or to the target's own engine.

    If the target's own engine cannot be reached and the target needs no GPU, print a line and use the fallback engine instead. An engine
    that the user asked for is never replaced.

    Raises:
        InfrastructureError: the engine cannot be reached.
    """
    if asked is not None:
        return load_engine(asked)
    try:
        return load_engine(target.engine)
    except InfrastructureError as error:
        if target.needs_card:
            raise
        say(f"{target.name}: {error.happened} Running with the {FALLBACK} engine instead.")
        return load_engine(FALLBACK)
