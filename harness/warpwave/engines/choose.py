"""Choose the engine that runs a target."""

import importlib
import os
from typing import Any

from warpwave.config.hosts import Host
from warpwave.config.targets import Target
from warpwave.engines.protocol import Engine, Request, Say
from warpwave.errors import InfrastructureError
from warpwave.records.registry import DEFAULT, ELSEWHERE, ENGINES, FALLBACK


def load_engine(name: str, host: Host | None = None) -> Engine:
    """Import the engine called `name` and connect to it, on `host` if one is given. Raises InfrastructureError if the engine cannot be
    reached."""
    engine: Engine = importlib.import_module(ENGINES[_name(name, host)].module).connect(host)
    return engine


def _name(name: str, host: Host | None) -> str:
    elsewhere = os.environ.get("DOCKER_HOST", "").startswith("ssh://") and not (host and (host.engine or host.socket))
    return ELSEWHERE if name == DEFAULT and elsewhere else name


def planned(request: Request) -> tuple[str, str, tuple[str, ...]]:
    """Return the engine that a run would use, its image and the command that it would start. No engine is asked."""
    options, target = request.options, request.target
    name = _name((options.where.host.runs_with if options.where.host else "") or options.where.engine or target.engine, options.where.host)
    image, words = importlib.import_module(ENGINES[name].module).planned(request)
    return name, image, words


def close(engine: Engine | None) -> None:
    """End the connections of an engine, if it has any."""
    getattr(engine, "close", lambda: None)()


def clean(dry_run: bool) -> list[str]:
    """Connect to the usual engine, and remove what finished runs left behind; with `dry_run`, only return the names. Raises
    InfrastructureError if the engine cannot be reached."""
    engine: Any = load_engine(DEFAULT)
    try:
        removed: list[str] = engine.clean(dry_run)
    finally:
        close(engine)
    return removed


def choose_engine(asked: str | None, target: Target, say: Say, host: Host | None = None) -> Engine:
    """Connect to the engine that the user asked for, to that of the leg's host, or to the target's own engine. If the target's own engine
    cannot be reached and the target needs no GPU, print a line and use the fallback engine instead. An engine that the user or hosts.yml
    names is never replaced. Raises InfrastructureError if the engine cannot be reached."""
    named = (host.runs_with if host else "") or asked
    if named:
        return load_engine(named, host)
    try:
        return load_engine(target.engine, host)
    except InfrastructureError as error:
        if target.needs_card:
            raise
        say(f"{target.name}: {error.happened} Running with the {FALLBACK} engine instead.")
        return load_engine(FALLBACK, host)
