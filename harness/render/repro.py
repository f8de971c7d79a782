"""A run → the commands that repeat a part of it: on the same target, with each option that may decide a verdict. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Iterator
from itertools import islice

from harness.compare.model import TargetSummary
from harness.render.text import visible

# Every option of `warpwave run` is in one of these sets; a test checks them against the parser. What may decide a verdict is kept: what
# runs, where, with what, how it is checked and for how long. The first of each two sets has the options with a value.
_KEPT = frozenset(
    {
        *("--kernels", "--engine", "--python", "--targets", "--hosts", "--gpu", "--gpus", "--base-image", "--wheelhouse", "--ca-bundle"),
        *("--pip-config", "--build-network", "--build-arg", "--weaken", "--requirements", "--with", "--env", "--autotune", "--pytest-args"),
        *("--bench", "--bench-script", "--launches", "--compiled", "--compiled-hash", "--test-workers", "--precision"),
        *("--test-timeout", "--timeout", "--results-limit", "--results-files"),
    }
)
_KEPT_FLAGS = frozenset(
    {
        *("--sanitize", "--no-sanitize", "--install", "--install-no-deps", "--here", "--quick"),
        *("--torch-compile-ahead", "--no-torch-compile-ahead"),
    }
)
# What chooses the part that runs is replaced, and what only decides where results go or how they are shown is left out.
_DROPPED = frozenset(
    {
        *("--stage", "-k", "--test", "--last-failed", "--changed-since", "--deselect-from", "--shard", "--shard-times"),
        *("--commit", "--out", "--resume", "--gpu-wait", "--save-compiled"),
        *("--toolchain", "--triton"),  # the target's name has it: `cpu@triton-3.8`
    }
)
_DROPPED_FLAGS = frozenset({"--aa", "--rebuild", "--keep", "--verbose", "-v", "--no-report", "--quiet", "--full"})
# What stands behind them may be their value or the next option; neither is kept by itself.
_OPTIONAL = frozenset({"--json"})
_LONGEST = 4000  # characters of options; the command is repeated beside each failed test


def repro(target: TargetSummary, test: str) -> str:
    """Return a shell command: `warpwave run cuda --kernels ../ops --stage test --test 'test_add.py::test_add[fp32-1]'`."""
    return rerun(target, ["--stage", "test", "--test", test])


def rerun(target: TargetSummary, more: Iterable[str], without: Container[str] = ()) -> str:
    """Return a shell command that runs on the same target with the options that its run had, except those `without`, and `more` options.

    It is empty if the options are too many to print: without some of them, the same test might pass.
    """
    # A second run of one target is shown as `cuda (2)`, but `warpwave run` takes the target's own name.
    name = re.sub(r" \(\d+\)$", "", target.target)
    kept = [word for option in _options(target.command) if option[0].partition("=")[0] not in without for word in option]
    if sum(map(len, kept)) > _LONGEST:
        return ""
    return visible(" ".join(map(shlex.quote, ["warpwave", "run", name, *kept, *more])))


def _options(command: Iterable[str]) -> Iterator[list[str]]:
    """Yield each option of a recorded command that is kept, with its value."""
    words = iter(command)
    for word in words:
        option, equals, _ = word.partition("=")
        if option in _KEPT or word in _DROPPED:
            whole = [word] if equals else [word, *islice(words, 1)]
            if option in _KEPT:
                yield whole
        elif word in _KEPT_FLAGS:
            yield [word]
