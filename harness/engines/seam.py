"""The seam between the host and wherever a job runs: what an engine gets, and what it has to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Union

from harness.options import RunOptions
from harness.records import Environment, Exit
from harness.targets import Target

Say = Callable[[str], None]
"""Takes one line of progress for the user."""


@dataclass(frozen=True)
class Request:
    """One target to run, as the user asked for it.

    `raw` is this target's results folder. It belongs to the caller, and is new unless the run is resumed. `lock` is the open file that
    keeps other runs out of it.
    """

    target: Target
    options: RunOptions
    raw: Path
    lock: Union[int, None] = None


@dataclass(frozen=True)
class Layout:
    """Where the inside finds things: the folder to put on PYTHONPATH, the kernel package, and the results."""

    harness: str
    kernels: str
    output: str


class Engine(Protocol):
    """Runs a job. Every method raises `InfrastructureError` for what is broken, never a bare exception of a library."""

    name: str

    def prepare(self, request: Request, say: Say) -> Environment:
        """Build or find the environment: an image, or a Python that has torch, triton and pytest."""
        ...

    def image_id(self, request: Request) -> str | None:
        """Return the id of the image that `prepare` would find: empty if it would build one, None if the engine knows of none."""
        ...

    def layout(self, request: Request) -> Layout:
        """Where the inside will see the harness, the kernels and the results."""
        ...

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run `python -m harness.inside OUTPUT/job.json`, and pass each line that it prints to `on_line`.

        Returns the environment, completed with the options that were used, and how the run ended. A run that times out or is interrupted
        (KeyboardInterrupt) is stopped gracefully, and still returns. Nothing of it is left running.
        """
        ...
