"""Hand kernels from the job that compiles without a card to the jobs with cards, by the options of `warpwave run`."""

from __future__ import annotations

from pathlib import Path

from harness import console
from harness.config.targets import load_targets
from harness.errors import UsageError
from harness.run import handover

COMPILER = "cpu"  # the target that compiles for all cards, on a machine without one


def cards() -> dict[str, list[str]]:
    """Return the architectures of each target with a card."""
    return {name: [card.name for card in target.architectures] for name, target in load_targets(None).items() if target.visible_devices}


def keeping(architectures: str) -> list[str]:
    """Return the options of a run that only compiles, for these architectures, and keeps it; none if none are named."""
    return ["--stage", "compile", "--launches", "bench,test", "--save-compiled", architectures] if architectures else []


def taking(folder: Path | None, digest: str) -> list[str]:
    """Return the options of a run that takes another job's kernels; none if there is no such job."""
    if not digest or folder is None:
        return []
    if not folder.is_dir():
        console.say(f"{folder} is missing, so this job compiles for itself: the artifact could not be downloaded.")
        return []
    return ["--stage", "test,bench", "--compiled", str(folder), "--compiled-hash", digest]


def digest_in(folder: Path) -> str:
    """Print and return the hash of the kernels in a job's results; empty if there are none."""
    try:
        digest = handover.digest_of(handover.find(folder))
    except UsageError as error:
        console.say(f"{error.happened} The jobs with cards compile for themselves.")
        return ""
    console.say(digest)
    return digest
