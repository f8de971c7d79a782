"""The pytest plugin of a worker if several share the tests: it claims test files and runs them one after the other.

Loaded with `-p warpwave.inside.multi_gpu.pytest_plugin`, beside the plugin of the test stage. Every worker collects everything. A single
worker runs a file, so that module fixtures are set up once. Files with most tests come first, so that only short ones remain at the end.
Then, on each card, the worker that stays runs what was postponed, alone. PYTEST_DONT_REWRITE: it was imported before pytest.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from warpwave.inside.facts.device import accelerator
from warpwave.inside.multi_gpu.ledger import LEDGER_VARIABLE, Ledger, card_of
from warpwave.inside.multi_gpu.share import SHARE_VARIABLE, done_by_all, given_up, ledger_here
from warpwave.inside.process.journal import Journal

# In a test worker: neighbours are other workers on the same card. What they may have caused does not count.
#
# With neighbours, a test is postponed if it fails for lack of memory, skips itself, or leaves the device without an answer. It runs again
# when they have ended, and that outcome counts. A test that asks how much memory is free is postponed, too: alone, it would see more. Any
# other outcome is the test's own. A failed assertion never gets a second try.

_NO_MEMORY = re.compile(r"out of memory|OutOfMemory|OUT_OF_MEMORY|ALLOC_FAILED|alloc\w* fail|[Cc]annot allocate memory|MemoryError")


class Neighbours:
    """Decides which outcomes count, and keeps this worker's memory within its share while there are neighbours."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._device: Any = None
        self._asked = self._asked_while_collecting = False
        self._begun = self._alone = False
        self._share = float(os.environ.get(SHARE_VARIABLE) or 1)

    def watch(self) -> None:
        """From now on, notice who asks how much memory is free. Called before the package is imported; uses no device."""
        here = accelerator()
        if here is None or not hasattr(here[1], "mem_get_info"):
            return
        self._device = here[1]
        ask: Callable[..., Any] = self._device.mem_get_info

        def mem_get_info(*args: Any, **options: Any) -> Any:
            self._asked = True
            return ask(*args, **options)

        self._device.mem_get_info = mem_get_info

    def begin(self) -> None:
        """A test starts."""
        if not self._begun:
            self._begun, self._asked_while_collecting = True, self._asked
        self._asked = False
        # Keep within the share: no more than that at any time, and half of it between tests.
        device = self._device
        if self._alone or device is None or not device.is_initialized() or not hasattr(device, "set_per_process_memory_fraction"):
            return
        device.set_per_process_memory_fraction(self._share)
        if device.memory_reserved() > self._share / 2 * device.get_device_properties(device.current_device()).total_memory:
            device.empty_cache()

    def why_again(self, outcome: str, text: str, in_body: bool, poisoned: bool) -> str:
        """Return why a test that just ended must run again; empty if its outcome counts.

        `text` is what it said, and `in_body` is True if it skipped itself while it ran.
        """
        if self._alone or not self._ledger.neighbours():
            return ""
        if poisoned:
            return "the device no longer answered this process"
        if outcome in ("failed", "error") and _NO_MEMORY.search(text):
            return "it lacked memory"
        if self._asked:
            return "it asked how much memory is free"
        if outcome == "skipped" and (in_body or self._asked_while_collecting):
            return "it was skipped, perhaps for what they hold"
        return ""

    def postpone(self, journal: Journal, case: str, why: str, poisoned: bool) -> None:
        """Have a case run again alone."""
        self._ledger.postpone(case)
        journal.write("postponed", id=case, reason=f"beside other tests on this card, {why}", poisoned=poisoned)

    def all_gone(self) -> None:
        """No neighbour is left: from here on, this worker has the card for itself."""
        self._alone = True
        if self._device is not None and self._device.is_initialized():
            self._device.empty_cache()
            if hasattr(self._device, "set_per_process_memory_fraction"):
                self._device.set_per_process_memory_fraction(1.0)


NEIGHBOURS: pytest.StashKey[Neighbours | None] = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Watch for neighbours before anything of the package is imported."""
    # There are none if this is the only worker of its stage, or tests use no card.
    known = LEDGER_VARIABLE in os.environ and SHARE_VARIABLE in os.environ
    early_config.stash[NEIGHBOURS] = found = Neighbours(ledger_here()) if known else None
    if found is not None:
        found.watch()


TURNS = "warpwave-turns"  # the plugin that has its own order of tests


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run pytest's own loop over the claimed items. With --collect-only, do nothing."""
    if session.config.option.collectonly or session.config.pluginmanager.hasplugin(TURNS):
        return None
    for item, following in Claims(session).pairs():
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


class Claims:
    """The items that this worker runs, as it claims them: by file, or in `units` that have an order."""

    def __init__(self, session: pytest.Session, units: Mapping[str, list[pytest.Item]] | None = None) -> None:
        self._journal = Journal.from_environment()
        self._ledger, self._done = ledger_here(), done_by_all(self._journal.path)
        self._neighbours = session.config.stash.get(NEIGHBOURS, None)
        self._items, self._begun = session.items, time.time()
        self._files: dict[str, list[pytest.Item]] = dict(units or {})
        self._order = list(self._files)
        if units is None:
            for item in session.items:
                self._files.setdefault(item.nodeid.partition("::")[0], []).append(item)
            self._order = sorted(self._files, key=lambda file: (-len(self._files[file]), file))

    def ended(self) -> set[str]:
        """Return the tests that were ended in this run, on any seat, so that others had a turn."""
        journals = [Journal(path) for path in self._journal.path.parent.parent.glob(f"*/{self._journal.path.name}")]
        return {event["id"] for one in journals for event in one.read() if "unfinished" in event and event["at"] >= self._begun}

    def workers(self) -> int:
        """Return how many workers share the tests of this card."""
        return 1 + len(self._ledger.neighbours())

    def units(self, wait: bool) -> Iterator[tuple[str, list[pytest.Item]]]:
        """Yield each unit that is free, with its items that are not done; if `wait`, also what others leave."""
        while (unit := self._next(wait=wait and self._stays())) is not None:
            self._done = done_by_all(self._journal.path)
            yield unit, self._left(unit)
            self._ledger.finish(unit)

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
        yield from self.postponed()

    def keep(self, item: pytest.Item) -> None:
        """Note that an item is to run at this worker's end, or at that of the one after it."""
        self._ledger.keep(item.nodeid)

    def postponed(self) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        """Yield what was postponed, when no other worker is on this card, or on this machine's cores if tests use none.

        And what a worker that died had kept for its end: its units are done, and those tests are not.
        """
        if not self._stays():
            return
        self._ledger.wait_until_alone(self._beat)
        if self._neighbours is not None:
            self._neighbours.all_gone()
        done = done_by_all(self._journal.path)
        kept = (case for case in self._ledger.kept_here() if case not in done)
        units = list(dict.fromkeys([*self._ledger.postponed(), *kept]))
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
