"""In a test worker: neighbours are other workers on the same card. What they may have caused does not count.

With neighbours, a test is postponed if it fails for lack of memory, skips itself, or leaves the device without an answer. It runs again
when they have ended, and that outcome counts. A test that asks how much memory is free is postponed, too: alone, it would see more. Any
other outcome is the test's own. A failed assertion never gets a second try.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from harness.inside.facts.device import accelerator
from harness.inside.multi_gpu.ledger import LEDGER_VARIABLE, Ledger
from harness.inside.multi_gpu.seats import SHARE_VARIABLE
from harness.inside.multi_gpu.share import ledger_here
from harness.inside.process.journal import Journal

_NO_MEMORY = re.compile(r"out of memory|OutOfMemory|OUT_OF_MEMORY|ALLOC_FAILED|alloc\w* fail|[Cc]annot allocate memory|MemoryError")


def neighbours_here() -> Neighbours | None:
    """Return what watches this worker's neighbours; None if it is the only worker of its stage, or tests use no card."""
    if LEDGER_VARIABLE not in os.environ or SHARE_VARIABLE not in os.environ:
        return None
    return Neighbours(ledger_here())


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
        self._limit()

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

    def _limit(self) -> None:
        """Keep within the share: no more than that at any time, and half of it between tests."""
        device = self._device
        if self._alone or device is None or not device.is_initialized() or not hasattr(device, "set_per_process_memory_fraction"):
            return
        device.set_per_process_memory_fraction(self._share)
        if device.memory_reserved() > self._share / 2 * device.get_device_properties(device.current_device()).total_memory:
            device.empty_cache()
