"""A failed test → the command that runs it alone, on the same target in the same environment. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import islice

from harness.compare.model import TargetSummary
from harness.render.text import visible

# Options of `warpwave run` that decide a test's environment. Each takes a value.
_KEPT = frozenset(
    {
        *("--kernels", "--engine", "--python", "--targets", "--gpu", "--base-image", "--wheelhouse", "--ca-bundle", "--pip-config"),
        *("--build-network", "--build-arg", "--weaken", "--test-timeout", "--requirements", "--with", "--env", "--autotune", "--hosts"),
        *("--compiled", "--compiled-hash"),
    }
)
_KEPT_FLAGS = frozenset({"--install", "--install-no-deps", "--here"})
# The other options with a value, which may itself look like an option. A test checks both sets against the parser.
_DROPPED = frozenset(
    {
        *("--stage", "--bench", "--launches", "-k", "--commit", "--gpus", "--shard", "--precision", "--timeout", "--out", "--resume"),
        *("--bench-script", "--gpu-wait", "--results-limit", "--results-files"),
        *("--test", "--last-failed", "--changed-since", "--deselect-from", "--pytest-args", "--shard-times"),
        *("--test-workers", "--save-compiled"),
        *("--toolchain", "--triton"),  # the target's name has it: `cpu@triton-3.8`
    }
)
# What stands behind them may be their value or the next option; neither is kept by itself.
_OPTIONAL = frozenset({"--json"})
_LONGEST = 4000  # characters of options; the command is repeated beside each failed test


def repro(target: TargetSummary, test: str) -> str:
    """Return a shell command: `warpwave run cuda --kernels ../ops --stage test --test 'test_add.py::test_add[fp32-1]'`."""
    return rerun(target, ["--stage", "test", "--test", test])


def rerun(target: TargetSummary, more: Iterable[str]) -> str:
    """Return a shell command that runs on the same target in the same environment, with `more` options."""
    # A second run of one target is shown as `cuda (2)`, but `warpwave run` takes the target's own name.
    name = re.sub(r" \(\d+\)$", "", target.target)
    words = ["warpwave", "run", name, *_kept(target.command), *more]
    return visible(" ".join(map(shlex.quote, words)))


def _kept(command: Iterable[str]) -> list[str]:
    words = iter(command)
    found = []
    for word in words:
        option, equals, _ = word.partition("=")
        if option in _KEPT or word in _DROPPED:
            whole = [word] if equals else [word, *islice(words, 1)]
            found += whole if option in _KEPT else []
        elif word in _KEPT_FLAGS:
            found.append(word)
        if sum(map(len, found)) > _LONGEST:
            return []
    return found
