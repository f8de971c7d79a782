"""What one of the workers that compile ahead does: its share of the points, then tests as it claims them.

Tests run without data, as in the compile stage. Where a test decides by data, a guess takes its place. What it launches beyond that, and
nobody guessed, is compiled when the test reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warpwave.inside.compile.launches import Choice, run_tests
from warpwave.inside.fake_gpu.unknown import Guesses
from warpwave.inside.multi_gpu.ledger import Ledger
from warpwave.inside.precompile import ahead
from warpwave.inside.test.settings import is_narrowed, pytest_options, test_paths
from warpwave.records import Architecture, Job, Stage

# Neighbours in a file mostly launch the same kernels: small pieces balance the work, large ones compile less twice.
_PIECES = 6


def work(job: Job, card: Architecture, share: int, shares: int) -> None:
    """Compile what this share launches on a pretended `card`."""
    with ahead.on_pretended(job, card) as reading:
        if Stage.BENCH in job.what.stages:
            ahead.launch_points(job, share, shares)
        Guesses.allowed = True
        reading.clear()  # nobody reads the code of what tests launch
        if Stage.TEST in job.what.stages:
            _launch_tests(job, share, shares)


def _launch_tests(job: Job, share: int, shares: int) -> None:
    folder = Path(job.output) / Stage.TEST.value
    folder.mkdir(exist_ok=True)
    options = [*pytest_options(job, folder), *test_paths(job)]
    choice = Choice(set(), job.what.quick, narrowed=is_narrowed(job), benches=job.what.benches)
    claims = _Claims(Ledger(folder / "ledger-ahead.jsonl", share), shares)
    run_tests(options, choice, lambda *told: None, lambda nodeid: None, lambda nodeid, ended: None, [claims])


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
