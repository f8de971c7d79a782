"""Run a target on a toolchain, unless it has run there already, and read its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.collect import collect_all, find_raw
from harness.compare.shards import join
from harness.config.target import Target
from harness.engines import signals
from harness.engines.protocol import Say
from harness.errors import StoppedError
from harness.options import RunOptions
from harness.records import RunRecord, TargetRun
from harness.run import check_target, run_target
from harness.run.attempt import OnEvent


def run_legs(legs: Sequence[Target], options: RunOptions, say: Say, on_event: OnEvent) -> list[RunRecord]:
    """Run each leg in turn. One whose folder exists is resumed, which does nothing if it is finished.

    Raises:
        UsageError: a leg makes no sense, or its folder holds another run.
        StoppedError: the user stopped it.
    """
    asked = [(leg, replace(options, resume=(options.out / "raw" / leg.name).exists())) for leg in legs]
    for leg, own in asked:
        check_target(leg, own)  # before the first one runs
    records = []
    for leg, own in asked:
        records.append(run_target(leg, own, say, on_event))
        if signals.asked():
            remedy = f"The same command with --out {options.out} continues."
            raise StoppedError("Stopped by the user or the CI system.", "What is finished has been kept.", remedy)
    return records


def read_runs(folders: Sequence[Path]) -> list[TargetRun]:
    """Return all runs at or below these folders, the shards of one joined.

    Raises:
        InvalidInputError: there is none.
    """
    return join(collect_all(find_raw(folders)))
