"""The lease of a card: a stage asks the host for it when its first worker is about to use it, and gives it back after the last one.

Imports, collection and compilation happen without it, so that another run on this machine can measure meanwhile. The stage asks with an
event; the host answers with a file in the stage's folder, when it has locked the card. A host that locks nothing gives no job a lease.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from warpwave.inside.process.journal import Event, Journal, emit
from warpwave.records import LEASE_FILE, Job, Stage

LEASE_VARIABLE = "WARPWAVE_LEASE"  # the file with the host's answer; empty if there is no lease
_POLL_S, _HEARTBEAT_S = 0.02, 60.0


class Lease:
    """A stage's side, in its supervisor."""

    def __init__(self, job: Job, stage: Stage) -> None:
        self._stage, self._asked = stage, False
        file = Path(job.output) / stage.value / LEASE_FILE
        os.environ[LEASE_VARIABLE] = str(file) if job.lease else ""
        self._given = not job.lease
        file.unlink(missing_ok=True)

    def ask(self) -> None:
        """Ask the host for the card, once."""
        if not self._asked and not self._given:
            self._asked = True
            emit("lease", stage=self._stage.value, wanted=True)

    def await_answer(self) -> str:
        """Ask, and return the host's answer: empty if this run has the card, else why not."""
        self.ask()
        path = os.environ[LEASE_VARIABLE]
        while path and (answer := _answer(path)) is None:
            time.sleep(_POLL_S)
        return answer or "" if path else ""

    def give_back_card(self, card: int) -> None:
        """Tell the host that this stage has no more work for one of its cards, by its index; others still have some."""
        if self._asked and not self._given:
            emit("lease", stage=self._stage.value, wanted=False, card=card)

    def renew(self) -> None:
        """Give everything back and ask again: cards that were given back one by one are needed once more."""
        if self._asked and not self._given:
            emit("lease", stage=self._stage.value, wanted=False)
            Path(os.environ[LEASE_VARIABLE]).unlink(missing_ok=True)
            emit("lease", stage=self._stage.value, wanted=True)

    def give_back(self) -> None:
        """Tell the host that this stage uses the card no more."""
        if self._asked and not self._given:
            self._given = True
            emit("lease", stage=self._stage.value, wanted=False)


def await_card(journal: Journal) -> None:
    """In a worker: return when this run has the card. If the host cannot get it, say so and end this process."""
    path = os.environ.get(LEASE_VARIABLE)
    if not path:
        return
    beaten, asked = time.monotonic(), False
    while (answer := _answer(path)) is None:
        if not asked:
            asked = True
            journal.write("card")
        if time.monotonic() - beaten > _HEARTBEAT_S:
            journal.write("waiting")
            beaten = time.monotonic()
        time.sleep(_POLL_S)
    if answer:
        journal.write("lost", id="(card)", reason=answer)
        os._exit(1)


def await_card_at_first_use(journal: Journal) -> None:
    """Make torch's first use of the device in this worker wait for the card. Packages may use it while they are imported."""
    if not os.environ.get(LEASE_VARIABLE):
        return
    import torch

    kind = torch.accelerator.current_accelerator()
    module: Any = sys.modules.get(f"torch.{kind.type}") if kind is not None else None
    begin = getattr(module, "_lazy_init", None)  # of torch's module for each vendor's device
    if begin is None or module.is_initialized():
        return

    def wait_and_begin() -> None:
        if not module.is_initialized():
            await_card(journal)
        begin()

    module._lazy_init = wait_and_begin


def _answer(path: str) -> str | None:
    """Return the host's answer: empty if it has locked the card, else why not; None if it has not answered yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1000)
    except OSError:
        return None


# How long a stage used its card, from the events of its workers.


class Used:
    """The `seconds` in which at least one test ran and did not compile. Events of several workers may arrive in any order."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._spans: list[tuple[float, float]] = []

    def note(self, event: Event) -> None:
        """Take one event."""
        kind, identity, at = event["event"], str(event.get("id")), event.get("at")
        if not isinstance(at, (int, float)):
            return
        if kind == "start":
            self._began[identity] = at
        elif kind in ("finish", "poisoned", "postponed") and identity in self._began:
            compiling = event.get("compiling_s", 0.0)
            began = self._began.pop(identity) + (compiling if isinstance(compiling, (int, float)) else 0.0)
            if began < at:
                self._spans.append((began, at))

    @property
    def seconds(self) -> float:
        """The length of all spans together; where they overlap, once."""
        total = until = 0.0
        for began, ended in sorted(self._spans):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total
