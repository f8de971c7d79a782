"""What an engine gets, and what it has to do."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Union

from warpwave.config.targets import Target
from warpwave.options import RunOptions
from warpwave.records import Environment, Exit

Say = Callable[[str], None]
"""Takes one line of progress for the user."""


@dataclass(frozen=True)
class Request:
    """One target to run, with the user's options. `raw` is the target's results folder. The caller owns it. It is empty, unless the run is
    resumed. `lock` is the open file that keeps other runs out of the folder."""

    target: Target
    options: RunOptions
    raw: Path
    lock: Union[int, None] = None


@dataclass(frozen=True)
class Layout:
    """The paths that the inside sees: the folder for PYTHONPATH, the kernels, the results, and the whole package. `package` is empty if the
    kernels are all of it."""

    harness: str
    kernels: str
    output: str
    package: str = ""


def import_path(harness: str, *variables: Mapping[str, str]) -> str:
    """Return PYTHONPATH: the folder of the harness, then that of each environment that has one. A package must never hide the harness."""
    return os.pathsep.join([harness, *(found["PYTHONPATH"] for found in variables if found.get("PYTHONPATH"))])


@dataclass(frozen=True)
class Answer:
    """The output of a command or file. `trouble` says why there is none: `absent`, `silent` (timed out), `refused`, or empty."""

    text: str = ""
    trouble: str = ""
    seconds: float = 0.0


class Engine(Protocol):
    """Runs a job. If something is broken, every method raises `InfrastructureError` and never a library's own exception."""

    name: str

    def prepare(self, request: Request, say: Say) -> Environment:
        """Build or find the environment: an image, or a Python that has torch, triton and pytest."""

    def image_id(self, request: Request) -> str | None:
        """Return the id of the image that `prepare` would use: empty if it would build one, None if the engine has none."""

    def layout(self, request: Request) -> Layout:
        """Return the paths at which the inside sees the harness, the kernels and the results."""

    def execute(self, request: Request, environment: Environment, on_line: Say) -> tuple[Environment, Exit]:
        """Run `python -m warpwave.inside OUTPUT/job.json`, and pass each line that it prints to `on_line`. Return the environment, with the
        options that were used, and how the run ended. If the run times out or the user interrupts it (KeyboardInterrupt), stop it
        gracefully and still return. Leave no process running."""
