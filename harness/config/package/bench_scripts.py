"""Benchmarks that are scripts: `benchmarks/*.py -- --dtype bf16`, a glob in the package and the arguments for each file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from harness.config.package.pyproject import load_bench_scripts
from harness.errors import UsageError
from harness.records import BenchScript
from harness.records.selection.package import find_scripts

_EXAMPLE = "For example --bench-script 'benchmarks/*.py -- --dtype bf16'."


def chosen_scripts(texts: Sequence[str], kernels: Path, root: Path) -> tuple[BenchScript, ...]:
    """Return the scripts of the command line, or those that the package's own file names.

    Raises:
        UsageError: a text cannot be read, or matches no file below `root`, the package's folder.
    """
    return tuple(_script(text, kernels, root) for text in texts or load_bench_scripts(kernels))


def _script(text: str, kernels: Path, root: Path) -> BenchScript:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--bench-script {text!r} cannot be read: {error}.", "It is split as a shell does it.", _EXAMPLE) from None
    pattern, *rest = words or [""]
    if not pattern or pattern == "--" or (rest and rest[0] != "--"):
        raise UsageError(f"--bench-script {text!r} is not a glob with arguments.", "A script's arguments come behind --.", _EXAMPLE)
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(
            f"--bench-script {text!r} leaves the package.",
            "Only files of the package are there where the script runs.",
            f"Give a path relative to {root}.",
        )
    if not find_scripts(pattern, root, kernels):
        raise UsageError(
            f"--bench-script {text!r} matches no file in {root}.", "The path is misspelt, or relative to another folder.", _EXAMPLE
        )
    return BenchScript(pattern, tuple(rest[1:]))
