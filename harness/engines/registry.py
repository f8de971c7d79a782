"""The engines that there are. A new one is a file with `connect()`, and a line in `ENGINES`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """Where an engine is, and what it can do. The host asks these questions and never looks at an engine's name.

    `module` has `connect() -> Engine`, and is imported only when the engine is chosen. `local_gpus`: it uses the GPUs of this machine, so
    this machine's locks decide who has them. `container`: it runs jobs in containers, built from the target's Dockerfile.
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
"""Runs a target without a GPU where its own engine does not answer."""
