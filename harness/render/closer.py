"""A kernel that falls short → the command that measures it again, alone, with its code and every case. Pure."""

from __future__ import annotations

from harness.compare.comparison import Comparison, TargetSummary
from harness.render.repro import rerun


def look_closer(target: TargetSummary, kernel: str, comparison: Comparison) -> str:
    """Return a shell command: `warpwave run cuda --stage bench,compile --bench 'softmax/bench_*.py' --full`."""
    return rerun(target, ["--stage", "bench,compile", *_benches(target, kernel, comparison), "--full"])


def _benches(target: TargetSummary, kernel: str, comparison: Comparison) -> list[str]:
    """Return the patterns that the run was given, or else one for the folder in which the kernel's tests are, if that has its name."""
    given = [word for option, word in zip(target.command, target.command[1:], strict=False) if option == "--bench"]
    if given:
        return [part for word in given for part in ("--bench", word)]
    for row in comparison.tests:
        folders = row.id.split("::")[0].split("/")[:-1]
        if row.kernel == kernel and kernel in folders:
            return ["--bench", "/".join([*folders[: folders.index(kernel) + 1], "bench_*.py"])]
    return []
