"""Take what was compiled elsewhere, and compile the rest on all cores: `python -m warpwave.inside.precompile.process job.json`.

This is a process of its own, which does not use the card. It imports beside the facts stage, then waits for what that finds. Tests may run
beside it, and get the cores first. Each of its workers runs its share of the points, then tests as it claims them. Tests run without data,
as in the compile stage. Where a test decides by data, a guess takes its place. What it launches on another path is compiled when the test
reaches it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpwave.inside.compile.launches import run_tests
from warpwave.inside.fake_gpu.unknown import Guesses
from warpwave.inside.handed_over import unpack
from warpwave.inside.multi_gpu.ledger import Ledger
from warpwave.inside.precompile import ahead, torch_ahead
from warpwave.inside.process.workers import GO_VARIABLE, answered, as_stage
from warpwave.records import Architecture, Job, Stage

# Neighbours in a file mostly launch the same kernels: small pieces balance the work, large ones compile less twice.
_PIECES = 6
_NICE = 10


def work(job: Job, card: Architecture, share: int, shares: int) -> None:
    """Compile what this share launches on a pretended `card`."""
    with ahead.on_pretended(job, card) as reading:
        if Stage.BENCH in job.what.stages:
            ahead.launch_points(job, share, shares)
        Guesses.allowed = True
        reading.clear()  # the code of what tests launch is not read
        if Stage.TEST in job.what.stages:
            _launch_tests(job, share, shares)


def _launch_tests(job: Job, share: int, shares: int) -> None:
    folder = Path(job.output) / Stage.TEST.value
    folder.mkdir(exist_ok=True)
    claims = _Claims(Ledger(folder / "ledger-ahead.jsonl", share), shares)
    run_tests(job, Stage.TEST, set(), plugins=[claims])


class _Claims:
    """A pytest plugin: run the pieces of the collected tests that this worker claims."""

    def __init__(self, ledger: Ledger, shares: int) -> None:
        self._ledger, self._shares = ledger, shares

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what is claimed. A failure stops nothing: results do not matter here."""
        for item, following in self._pairs(session.items):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return True

    def _pairs(self, items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        size = max(1, len(items) // (self._shares * _PIECES))
        pieces = {f"{start} of {len(items)}": items[start : start + size] for start in range(0, len(items), size)}
        while (name := self._ledger.next(list(pieces), {}, lambda: None, wait=False)) is not None:
            piece = pieces[name]
            yield from zip(piece, [*piece[1:], None], strict=True)
            self._ledger.finish(name)


def main() -> None:
    """Run all workers, and write `bench/ahead.json`: the bench stage then compiles nothing itself."""
    os.nice(_NICE)
    job = Job.load(Path(sys.argv[1]))
    answered(os.getpid)  # imports what compiling needs
    if (go := os.environ.pop(GO_VARIABLE, "")) and not os.read(int(go), 1):
        return
    marker = ahead.marker_of(job)
    marker.parent.mkdir(parents=True, exist_ok=True)
    if card := ahead.card_of(job):
        kernels, refused = unpack(job, card) if job.what.compiled else (0, "")
        facts = {"handed_over": kernels, "refused": refused} if job.what.compiled else {}
        beside, where = torch_ahead.started(job, card, marker)
        ahead.run(job, card, marker, work, {**facts, **where}, beside)


if __name__ == "__main__":
    as_stage(main)
