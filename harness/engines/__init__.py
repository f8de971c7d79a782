"""The seam between the host and wherever the job runs: one small protocol, two engines.

An engine is imported only when it is chosen, so a machine without the docker SDK can still run locally. An explicit choice never falls
back. The default of a target may, and says so in one line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Union

from harness.engines.results_limit import Cap
from harness.errors import InfrastructureError
from harness.records import Environment, Exit
from harness.targets import Target

Say = Callable[[str], None]
"""Takes one line of progress for the user."""


@dataclass(frozen=True)
class Build:
    """How an image is built here: behind a mirror, or without any network."""

    base_image: Union[str, None] = None
    wheelhouse: Union[Path, None] = None
    ca_bundle: Union[Path, None] = None
    pip_config: Union[Path, None] = None
    network: Union[str, None] = None
    args: dict[str, str] = field(default_factory=dict)
    rebuild: bool = False


@dataclass(frozen=True)
class Request:
    """Everything an engine needs to run one target. `raw` is this target's result folder, the caller's, and new unless a run is taken up
    again; `lock` is the open file that keeps others out of it."""

    run_id: str
    target: Target
    kernels: Path
    raw: Path
    gpu: Union[str, None] = None
    limit_s: float = 3 * 3600.0
    grace_s: float = 30.0
    commit: str = ""
    build: Build = field(default_factory=Build)
    python: Union[str, None] = None
    weaken: tuple[str, ...] = ()
    keep: bool = False
    cap: Cap = field(default_factory=Cap)
    lock: Union[int, None] = None


@dataclass(frozen=True)
class Layout:
    """Where the inside finds things: the folder to put on PYTHONPATH, the kernel package, and the results."""

    harness: str
    kernels: str
    output: str


class Engine(Protocol):
    """What runs a job. Every method raises `InfrastructureError` for what is broken, never a bare exception of a library."""

    name: str

    def prepare(self, request: Request, say: Say) -> Environment:
        """Build or find the environment: an image, or a Python that has torch, triton and pytest."""
        ...

    def image_id(self, request: Request) -> str | None:
        """The id of the image that `prepare` would find; empty where it would build another one, None where nothing is known of it."""
        ...

    def layout(self, request: Request) -> Layout:
        """Where the inside will see the harness, the kernels and the results."""
        ...

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run `python -m harness.inside OUTPUT/job.json`; each line it prints goes to `on_line`.

        Returns the environment, completed with the options that were really given, and how the run ended. A run that times out or
        is interrupted (KeyboardInterrupt) is stopped gracefully and still returns; nothing of it is left running.
        """
        ...


def load_engine(name: str) -> Engine:
    """The engine called `name`, connected.

    Raises:
        InfrastructureError: it cannot be reached.
    """
    module = importlib.import_module({"docker": "harness.engines.docker.engine"}.get(name, f"harness.engines.{name}"))
    engine: Engine = module.connect()
    return engine


def choose_engine(asked: str | None, target: Target, say: Say) -> Engine:
    """The engine asked for, or the target's own; only the latter may fall back, and only where the job can run without a GPU."""
    if asked is not None:
        return load_engine(asked)
    try:
        return load_engine(target.engine)
    except InfrastructureError as error:
        if not target.interpret:
            raise
        say(f"{target.name}: {error.happened} Running with the local engine instead.")
        return load_engine("local")
