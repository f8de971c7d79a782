"""A kernel that falls short → the command that measures it again, alone, with its code and every case. Pure."""

from __future__ import annotations

from harness.compare.model import Comparison, TargetSummary
from harness.render.repro import rerun


def bench_patterns(comparison: Comparison) -> dict[str, str]:
    """Return a pattern for the benchmarks of each kernel: those in the folder of its name in which its tests are, if there is one."""
    found: dict[str, str] = {}
    for row in comparison.tests:
        if row.kernel not in found:
            folders = row.id.partition("::")[0].split("/")[:-1]
            inside = row.kernel in folders
            found[row.kernel] = "/".join([*folders[: folders.index(row.kernel) + 1], "bench_*.py"]) if inside else ""
    return found


def look_closer(target: TargetSummary, pattern: str) -> str:
    """Return a shell command: `warpwave run cuda --stage bench,compile --bench 'softmax/bench_*.py' --full`.

    The patterns that the run was given stay. Without any, and with an empty `pattern`, every benchmark runs. A quick look is not repeated.
    """
    given = any(word.partition("=")[0] in ("--bench", "--bench-script") for word in target.command)
    benches = ["--bench", pattern] if pattern and not given else []
    return rerun(target, ["--stage", "bench,compile", *benches, "--full"], without=("--quick",))
