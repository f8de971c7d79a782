"""The pytest plugin of a worker if several share the tests: it claims test files and runs them one after the other.

Loaded with `-p harness.inside.multi_gpu.pytest_plugin`, beside the plugin of the test stage. Every worker collects everything. A single
worker runs a file, so that module fixtures are set up once. Files with most tests come first, so that only short ones remain at the end.
Then, on each card, the worker that stays runs what was postponed, with nobody beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.inside.multi_gpu.cards import card_of
from harness.inside.multi_gpu.claims import given_up
from harness.inside.multi_gpu.neighbours import Neighbours, neighbours_here
from harness.inside.multi_gpu.share import done_by_all, ledger_here
from harness.inside.process.journal import Journal

NEIGHBOURS: pytest.StashKey[Neighbours | None] = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Watch for neighbours before anything of the package is imported."""
    early_config.stash[NEIGHBOURS] = found = neighbours_here()
    if found is not None:
        found.watch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run pytest's own loop over the claimed items. With --collect-only, do nothing."""
    if session.config.option.collectonly:
        return None
    for item, following in _Claims(session).pairs():
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


class _Claims:
    """The items that this worker runs, as it claims them."""

    def __init__(self, session: pytest.Session) -> None:
        self._journal = Journal.from_environment()
        self._ledger, self._done = ledger_here(), done_by_all(self._journal.path)
        self._neighbours = session.config.stash.get(NEIGHBOURS, None)
        self._items = session.items
        self._files: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            self._files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        self._order = sorted(self._files, key=lambda file: (-len(self._files[file]), file))

    def pairs(self) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        """Yield each item with the one that follows it: pytest keeps the fixtures that the next item needs."""
        file = self._next(wait=self._stays())
        items = self._left(file)
        while file is not None:
            following: str | None = None
            others: list[pytest.Item] = []
            for position, item in enumerate(items):
                if position + 1 == len(items) and (following := self._next(wait=False, but=file)) is not None:
                    others = self._left(following)
                yield item, next(iter([*items[position + 1 :], *others]), None)
            self._ledger.finish(file)
            if following is None:
                following = self._next(wait=self._stays())
                others = self._left(following)
            file, items = following, others
        if self._stays():
            yield from self._postponed()

    def _postponed(self) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        """Yield what was postponed, when no other worker is on this card, or on this machine's cores if tests use none."""
        self._ledger.wait_until_alone(self._beat)
        if self._neighbours is not None:
            self._neighbours.all_gone()
        units = self._ledger.postponed()
        while (unit := self._ledger.next(units, {}, self._beat)) is not None:
            done = done_by_all(self._journal.path)
            for item in self._items:
                if item.nodeid == unit and unit not in done and not given_up(self._ledger, self._journal, unit):
                    yield item, None
            self._ledger.finish(unit)

    def _next(self, wait: bool, but: str | None = None) -> str | None:
        file = self._ledger.next(self._order, {}, self._beat, wait, but)
        if file is not None and self._ledger.inherited:
            self._done = done_by_all(self._journal.path)
        return file

    def _left(self, file: str | None) -> list[pytest.Item]:
        """Return what is left to run of a file."""
        if file is None:
            return []
        settled = self._done | set(self._ledger.postponed())
        left = [item for item in self._files[file] if item.nodeid not in settled]
        return [item for item in left if not given_up(self._ledger, self._journal, item.nodeid)]

    def _stays(self) -> bool:
        """Return whether this worker waits until everything is done: on each card one does, and inherits what a lost one leaves."""
        return all(card_of(self._ledger.card) != card_of(seat) or self._ledger.card < seat for seat in self._ledger.neighbours())

    def _beat(self) -> None:
        self._journal.write("waiting")
