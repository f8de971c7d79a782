"""The places at which workers share a stage: one for each card, or several on one card for tests, which nobody times.

A seat's number is its card's index, plus a thousand for each seat before it on that card. It names the seat's folder, `<stage>/<number>/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.inside.environment.container_limits import free_memory
from harness.inside.multi_gpu.cards import SEAT_STEP, SEAT_VARIABLE, Card
from harness.inside.process.journal import Journal
from harness.records import Job

ROUND = SEAT_STEP * 1000  # between the numbers of two seats of one place, if a stage starts again
SHARE_VARIABLE = "WARPWAVE_MEMORY_SHARE"
_MOST = 16  # with more, workers that import torch slow each other down
# A worker of one stage takes about this much: torch, its context on the card, and tensors of a usual test.
_HOST_BYTES, _CARD_BYTES = 2 << 30, 6 << 30
# No worker may take more of a card than this, or its own share if that is more. A test that needs more runs again, alone.
_LARGEST_SHARE = 0.25
# pytest's options that end a run after a failure, or that start processes of their own: there, one worker runs everything.
_ONE_ONLY = ("-x", "--exitfirst", "--maxfail", "--sw", "--stepwise", "-n", "--numprocesses", "--dist", "--pdb", "--collect-only", "--co")


@dataclass(frozen=True)
class Seat:
    """A place for one worker after the other. `card` is the index of its GPU if several GPUs share the work."""

    number: int
    card: int | None = None
    variables: dict[str, str] = field(default_factory=dict)


def regroup(folder: Path, journal: str, seats: Sequence[Seat]) -> None:
    """Before a stage starts, give the journals of an earlier attempt with other seats to seats of this one, on the same card.

    What they hold is then done and reported once. Without `seats`, one worker does everything, and its journal is in `folder` itself.
    """
    kept = {folder / str(seat.number) / journal for seat in seats} or {folder / journal}
    for source in [folder / journal, *sorted(folder.glob(f"*/{journal}"))]:
        if source in kept or not source.is_file():
            continue
        card = int(source.parent.name) % SEAT_STEP if source.parent.name.isdecimal() else 0
        heir = next((seat for seat in seats if seat.card in (None, card)), seats[0] if seats else None)
        target = folder / str(heir.number) / journal if heir else folder / journal
        target.parent.mkdir(exist_ok=True)
        data = source.read_bytes()
        Journal(target).repair()
        with open(target, "ab") as file:
            file.write(data[: data.rfind(b"\n") + 1])  # without a partial last line
        source.unlink()


def next_round(seat: Seat) -> Seat:
    """Return a new seat on the same card: what an earlier one left in its folder is done."""
    number = seat.number + ROUND
    return replace(seat, number=number, variables={**seat.variables, SEAT_VARIABLE: str(number)})


def seats_of(cards: Sequence[Card]) -> list[Seat]:
    """Return one seat for each card: what is measured has its card for itself."""
    return [Seat(card.index, card.index, {**card.variables, SEAT_VARIABLE: str(card.index)}) for card in cards]


def seats_for_tests(job: Job, cards: Sequence[Card], files: int) -> list[Seat]:
    """Return the seats for tests in so many `files`; empty if one worker is to run all of them."""
    workers = workers_of(job, max(1, len(cards)), files)
    if workers == 1:
        return seats_of(cards)
    threads = str(max(1, _cores() // (workers * max(1, len(cards)))))
    found = []
    for lane in range(workers):
        for card in cards or (None,):
            number = (card.index if card else 0) + SEAT_STEP * lane
            variables = {**(card.variables if card else {}), SEAT_VARIABLE: str(number)}
            if "OMP_NUM_THREADS" not in os.environ:
                variables["OMP_NUM_THREADS"] = threads
            if job.needs_card:
                variables[SHARE_VARIABLE] = str(max(1 / workers, _LARGEST_SHARE))
            found.append(Seat(number, card.index if card else None, variables))
    return found


def workers_of(job: Job, cards: int, files: int) -> int:
    """Return how many test workers each card gets, or this machine if there is none: what was asked for, or as many as fit.

    A file's tests stay together, so more workers than files would have nothing to do.
    """
    if any(word.partition("=")[0] in _ONE_ONLY or word.startswith("-n") for word in (*job.pytest_args, *job.pytest.addopts)):
        return 1
    if job.test_workers:
        return min(job.test_workers, max(1, files))
    fitting = [_MOST // cards, files, _cores() // cards, free_memory() // _HOST_BYTES // cards]
    if job.needs_card:
        fitting += [(_cores() - 1) // cards, _card_bytes(job) // _CARD_BYTES]
    return max(1, min(fitting))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _card_bytes(job: Job) -> int:
    """Return the memory of the smallest card that the facts stage found; 0 if it found none."""
    try:
        devices = json.loads((Path(job.output) / "facts.json").read_text(encoding="utf-8"))["devices"]
        return min(int(device["memory_bytes"]) for device in devices)
    except (OSError, ValueError, KeyError):
        return 0
