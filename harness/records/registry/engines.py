"""The list of engines. To add one, write a file with `connect()` and add a line to `ENGINES`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An engine's module and abilities. The host checks these fields and never an engine's name.

    `module` has `connect(host: Host | None) -> Engine`, and is imported only when the engine is chosen. `local_gpus`: the engine uses the
    GPUs of this machine, so locks on this machine decide which run gets them. `container`: the engine runs jobs in containers, built from
    the target's Dockerfile. `needs_host`: it runs jobs on a machine that hosts.yml describes, so nobody can choose it without one.
    """

    module: str
    local_gpus: bool
    container: bool
    needs_host: bool = False


ENGINES = {
    "docker": Entry("harness.engines.docker.engine", local_gpus=True, container=True),
    "slurm": Entry("harness.engines.slurm.engine", local_gpus=False, container=False, needs_host=True),
    "ssh": Entry("harness.engines.remote.engine", local_gpus=False, container=True, needs_host=True),
    "local": Entry("harness.engines.local", local_gpus=True, container=False),
}
HERE = tuple(name for name, entry in ENGINES.items() if not entry.needs_host)
"""The engines of this machine."""
DEFAULT = "docker"
ELSEWHERE = "ssh"
"""Takes the place of the default if DOCKER_HOST names another machine."""
FALLBACK = "local"
"""Runs a target that needs no GPU if the target's own engine does not answer."""
