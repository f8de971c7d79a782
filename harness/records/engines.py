"""The list of engines. To add one, write a file with `connect()` and add a line to `ENGINES`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An engine's module and abilities. The host checks these fields and never an engine's name.

    `module` has `connect() -> Engine`, and is imported only when the engine is chosen. `local_gpus`: the engine uses the GPUs of this
    machine, so locks on this machine decide which run gets them. `container`: the engine runs jobs in containers, built from the target's
    Dockerfile.
    """

    module: str
    local_gpus: bool
    container: bool


ENGINES = {
    "docker": Entry("harness.engines.docker.engine", local_gpus=True, container=True),
    "local": Entry("harness.engines.local", local_gpus=True, container=False),
}
DEFAULT = "docker"
FALLBACK = "local"
"""Runs a target that needs no GPU if the target's own engine does not answer."""
