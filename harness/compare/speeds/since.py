"""This run and an earlier one → how each kernel's speed changed since then. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare.model import Since
from harness.compare.speeds.changed_speeds import changed_speeds
from harness.errors import UsageError
from harness.records import TargetRun


def since_base(base: Sequence[TargetRun], head: Sequence[TargetRun]) -> tuple[tuple[Since, ...], tuple[str, ...]]:
    """Return a line per kernel, provider and target that both runs measured, and why others could not be compared.

    The rules are those of `warpwave compare`: the same card, timer, cache flush, parameters and FP-fusion setting.
    """
    if not base:
        return (), ()
    try:
        found = changed_speeds(base, head)
    except UsageError as error:
        return (), (f"not compared with the base run: {error.happened}",)
    commits = {pair.target: pair.commits[0] for pair in found.pairs}
    refused = tuple(f"{pair.target} is not compared with the base run: {barrier}" for pair in found.pairs for barrier in pair.barriers)
    lines = (Since(one.kernel, one.provider, one.target, one.n, one.mean, one.changes, commits[one.target]) for one in found.groups)
    return tuple(lines), refused
