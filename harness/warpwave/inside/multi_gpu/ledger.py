"""The division of work between seats, which are GPUs or several workers on one: a file that their workers read and write in turn.

A worker claims a unit of work (a test file, or a case with all its providers) before it starts, and marks it when done. A unit may have a
home: the seat that does it unless that seat's GPU is lost. So what is measured on one GPU today is measured on the same one tomorrow.
Access is guarded by a kernel lock (`flock`), which ends with the process that holds it. Every line is complete, except perhaps the last.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from warpwave.inside.environment import devices_here
from warpwave.records import Job

# The GPUs that share a stage's work, and how one process is limited to one of them.
#
# The variable that limits a process to some GPUs is set per target in targets.yml and comes with the job. A worker sees a single GPU, as
# its first. Every result carries the index that this GPU has in `facts.json`.

CARD_VARIABLE = "WARPWAVE_CARD"
SEAT_VARIABLE = "WARPWAVE_SEAT"
SEAT_STEP = 1000  # more cards than a host has


@dataclass(frozen=True)
class Card:
    """A GPU by its index among all GPUs of this run, and the variables that hide the others from a process."""

    index: int
    variables: dict[str, str] = field(default_factory=dict)


def cards(job: Job) -> tuple[Card, ...]:
    """Return the GPUs that share the work; empty if a single process does everything on the first GPU."""
    if job.visible_devices is None or not job.needs_card:
        return ()
    devices = devices_here(job)
    # An engine or scheduler that selected GPUs has listed them in this variable, in torch's order.
    shown = [name.strip() for name in os.environ.get(job.visible_devices, "").split(",") if name.strip()]
    names = shown if len(shown) >= len(devices) else list(map(str, range(len(devices))))
    found: dict[object, Card] = {}
    for device, name in zip(devices, names, strict=False):
        # The same GPU under two names is one GPU: two processes on it would disturb each other's timings.
        found.setdefault(
            device.get("uuid") or device["index"],
            Card(device["index"], {job.visible_devices: name, CARD_VARIABLE: str(device["index"])}),
        )
    return tuple(found.values()) if len(found) > 1 else ()


def own_index() -> int:
    """In a worker: return the index of its GPU; 0 if the GPUs are not shared out."""
    return int(os.environ.get(CARD_VARIABLE, "0"))


def own_seat() -> int:
    """In a worker: return the number of its seat; 0 if no other worker shares its stage."""
    return int(os.environ.get(SEAT_VARIABLE, "0"))


def card_of(seat: int) -> int:
    """Return the index of the card of a seat, by the seat's number."""
    return seat % SEAT_STEP


def is_shared() -> bool:
    """In a worker: return whether other GPUs have workers too."""
    return CARD_VARIABLE in os.environ


LEDGER_VARIABLE = "WARPWAVE_LEDGER"
_POLL_S = 0.05
_HEARTBEAT_S = 60.0
# If a GPU was lost during a case, the case is tried on one other GPU. If that is lost too, the case is to blame.
_MOST_LOST = 2


@dataclass
class _State:
    holder: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    lost_during: dict[str, set[int]] = field(default_factory=dict)
    postponed: dict[str, None] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    seats: set[int] = field(default_factory=set)

    def take(self, entry: dict[str, object]) -> None:
        """Apply one line."""
        card = int(str(entry["card"]))
        if entry["event"] == "claim":
            self.holder[str(entry["unit"])] = card
        elif entry["event"] == "done":
            self.done.add(str(entry["unit"]))
        elif entry["event"] == "gone":
            self.gone.add(card)
            if entry.get("during"):
                self.lost_during.setdefault(str(entry["during"]), set()).add(card)
        elif entry["event"] == "postpone":
            self.postponed[str(entry["unit"])] = None
        elif entry["event"] == "keep":
            self.kept[str(entry["unit"])] = card
        elif entry["event"] == "seat":
            self.seats.add(card)


class Ledger:
    """The ledger as seen by one GPU's worker or its supervisor."""

    def __init__(self, path: Path, card: int) -> None:
        self.path, self.card = path, card
        self.inherited = False  # whether another GPU had started the unit that was claimed last
        self._state, self._offset = _State(), 0

    def next(
        self, units: Sequence[str], home: Mapping[str, int], beat: Callable[[], None], wait: bool = True, but: str | None = None
    ) -> str | None:
        """Claim the next of `units`, in order, starting with what this seat has begun already, `but` one. Return None if all are done.

        If none is free, but other workers on this card are working on some that may come free, `wait`, and call `beat` once a minute. What
        another card has is not waited for: this card can be given back meanwhile, and `share` starts again if that one is lost.
        """
        beaten = time.monotonic()
        while True:
            with self._turn() as write:
                state = self._state
                mine = [unit for unit in units if unit not in state.done and state.holder.get(unit) == self.card and unit != but]
                free = [unit for unit in units if self._is_free(unit, home)]
                if claimed := next(iter(mine or free), None):
                    self.inherited = state.holder.get(claimed, self.card) != self.card
                    if not mine:
                        write("claim", unit=claimed)
                    return claimed
                if not wait or not any(self._is_beside(unit) for unit in units):
                    return None
            beaten = _pause(beaten, beat)

    def wait_until_alone(self, beat: Callable[[], None]) -> None:
        """Wait until no other worker is on this seat's card."""
        beaten = time.monotonic()
        while self.neighbours():
            beaten = _pause(beaten, beat)

    def finish(self, unit: str) -> None:
        """Mark a unit as done."""
        self._note("done", unit=unit)

    def sit(self) -> None:
        """Announce this seat, before any worker starts."""
        self._note("seat")

    def neighbours(self) -> set[int]:
        """Return the other seats of this card whose workers have not all ended."""
        with self._turn():
            return {seat for seat in self._state.seats - self._state.gone - {self.card} if card_of(seat) == card_of(self.card)}

    def postpone(self, case: str) -> None:
        """Have a case run again, when no other worker is on the card."""
        self._note("postpone", unit=case)

    def postponed(self) -> list[str]:
        """Return the cases that are to run again alone, in the order in which they were postponed."""
        with self._turn():
            return list(self._state.postponed)

    def keep(self, case: str) -> None:
        """Note that this seat's worker keeps a case of a unit that it finishes for its end."""
        self._note("keep", unit=case)

    def kept_here(self) -> list[str]:
        """Return the cases that workers of this card kept, or of a seat that is given up."""
        with self._turn():
            kept, gone = self._state.kept, self._state.gone
            return [case for case, seat in kept.items() if card_of(seat) == card_of(self.card) or seat in gone]

    def leave(self, during: str = "") -> None:
        """Give up this seat: others may take its unfinished units. `during` is the case in which its GPU was lost, if it was."""
        self._note("gone", during=during)

    def lost_during(self, case: str) -> tuple[int, ...]:
        """Return the GPUs that were lost during this case if there are at least two: no other GPU should try it."""
        found = self._state.lost_during.get(case, set())
        return tuple(sorted(found)) if len(found) >= _MOST_LOST else ()

    def _is_free(self, unit: str, home: Mapping[str, int]) -> bool:
        state = self._state
        holder = state.holder.get(unit)
        if unit in state.done or (holder is not None and holder not in state.gone):
            return False
        return home.get(unit, self.card) in {self.card} | state.gone

    def _is_beside(self, unit: str) -> bool:
        holder = self._state.holder.get(unit)
        return unit not in self._state.done and holder is not None and card_of(holder) == card_of(self.card)

    def _note(self, event: str, **fields: str) -> None:
        with self._turn() as write:
            write(event, **fields)

    @contextmanager
    def _turn(self) -> Iterator[Callable[..., None]]:
        """Hold the lock, with the state updated from what others have written."""
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._catch_up(handle)

            def write(event: str, **fields: object) -> None:
                torn = os.fstat(handle).st_size > self._offset  # a partial line left by a kill must not swallow this one
                line = "\n" * torn + json.dumps({"event": event, "card": self.card, "at": time.time(), **fields}, ensure_ascii=False) + "\n"
                os.write(handle, line.encode("utf-8", "replace"))
                self._catch_up(handle)

            yield write
        finally:
            os.close(handle)

    def _catch_up(self, handle: int) -> None:
        data = os.pread(handle, os.fstat(handle).st_size - self._offset, self._offset)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                self._state.take(json.loads(line))
            except (ValueError, KeyError):
                continue


def _pause(beaten: float, beat: Callable[[], None]) -> float:
    """Sleep for a moment, and call `beat` if the last time, `beaten`, was a minute ago. Return when it was called last."""
    if time.monotonic() - beaten > _HEARTBEAT_S:
        beat()
        beaten = time.monotonic()
    time.sleep(_POLL_S)
    return beaten
