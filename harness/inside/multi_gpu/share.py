"""Share a stage's work between several seats: one supervised worker on each, and one place that joins the results.

Each seat has its own folder `<stage>/<number>/` with its journal and log. `<stage>/` holds the same files as with a single worker, written
as results arrive. A worker that dies is replaced on its seat. The others finish the work of a seat that is lost. With several GPUs,
`<stage>/cards.jsonl` records this, one line per GPU.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Union

from harness.inside.multi_gpu.cards import card_of, own_seat
from harness.inside.multi_gpu.ledger import LEDGER_VARIABLE, Ledger
from harness.inside.multi_gpu.seats import ROUND, Seat, next_round
from harness.inside.process import sealing
from harness.inside.process.audit import Event
from harness.inside.process.journal import Journal
from harness.inside.process.lease import Lease
from harness.inside.process.supervise import Death, supervise
from harness.inside.process.workers import spawned
from harness.records import CardShare, Job, Stage, Verdict, to_json, worst

# Takes a worker's event and the index of its GPU, None if there is only one. Calls never overlap.
OnCardEvent = Callable[[Event, Union[int, None]], None]
# Takes the index of a GPU whose last worker has ended.
OnCardDone = Callable[[int], None]
_OWN = ("finish", "death")
SEAT = "seat"  # what an event has beside its worker's own fields: the number of the worker's seat
_LOG_BYTES = 1 << 20  # of each worker's log in the joined one


def share(
    job: Job, stage: Stage, seats: Sequence[Seat], command: list[str], journal: str, on_event: OnCardEvent, lease: Lease, keep: bool = False
) -> list[Death]:
    """Run `command` as the worker of each seat until everything is done. Raises what `supervise` raises.

    A card whose last worker has ended is given back to the `lease`, unless the stage needs it again (`keep`). If a card is lost, the others
    are taken once more for what it left.

    Return the deaths of the workers. The last one is that of a seat only if no seat was left to finish the work.
    """
    ledger = Path(job.output) / stage.value / f"ledger-{journal}"
    ledger.unlink(missing_ok=True)  # from an interrupted run: the journals hold what was done, and who claimed it does not matter
    shares: list[CardShare] = []
    deaths: dict[int, list[Death]] = {}
    todo = list(seats)
    while todo:
        ended = _round(job, stage, todo, command, journal, _Hub(on_event, todo, (lambda card: None) if keep else lease.give_back_card))
        shares += [share for share, _ in ended]
        for seat, (_, own) in zip(todo, ended, strict=True):
            deaths[seat.number % ROUND] = deaths.get(seat.number % ROUND, []) + own
        left = [next_round(seat) for seat, (share, _) in zip(todo, ended, strict=True) if not share.lost]
        todo = left if len({seat.card for seat in seats}) > 1 and len(left) < len(todo) else []
        if todo and not keep:
            lease.renew()
    by_card = _by_card(shares)
    if len(by_card) > 1:
        sealing.replace(Path(job.output) / stage.value / "cards.jsonl", "".join(to_json(share) + "\n" for share in by_card))
    return _deaths(list(deaths.values()))


def _round(
    job: Job, stage: Stage, seats: Sequence[Seat], command: list[str], journal: str, hub: _Hub
) -> list[tuple[CardShare, list[Death]]]:
    """Run a worker on each seat until it has nothing left to do."""
    folder = Path(job.output) / stage.value
    ledger, stop = folder / f"ledger-{journal}", threading.Event()
    for seat in seats:
        Ledger(ledger, seat.number).sit()

    def run(seat: Seat) -> tuple[CardShare, list[Death]]:
        own = folder / str(seat.number)
        own.mkdir(exist_ok=True)
        start = spawned(command, {**seat.variables, LEDGER_VARIABLE: str(ledger)})
        listener, began, book = hub.listener(seat), time.monotonic(), Ledger(ledger, seat.number)

        def runs_again(death: Death) -> bool:
            """Postpone a case whose process a neighbour may have ended."""
            if death.case is None or not death.by_others or not book.neighbours() or death.case in book.postponed():
                return False
            book.postpone(death.case)
            return True

        limit, log = job.test_limit_s, own / "log.txt"
        deaths = supervise(start, Journal(own / journal), limit, log, listener.take, stop, job.device_faults, runs_again)
        lost = deaths[-1].reason if deaths and deaths[-1].case is None else ""
        book.leave(during=listener.lost_during)
        hub.leave(seat)
        return CardShare(stage, card_of(seat.number), len(listener.cases), round(time.monotonic() - began, 3), lost), deaths

    with ThreadPoolExecutor(len(seats)) as pool:
        futures = [pool.submit(run, seat) for seat in seats]
        try:
            return [future.result() for future in futures]
        except BaseException:
            # Leaving the `with` block waits for the threads, which receive no signal.
            stop.set()
            raise
        finally:
            _join_logs(folder, seats)


def _by_card(shares: Sequence[CardShare]) -> list[CardShare]:
    """Return one share for each card: that of all its seats. A card is lost if every seat was."""
    found = []
    for card in dict.fromkeys(share.device for share in shares):
        own = [share for share in shares if share.device == card]
        lost = own[0].lost if all(share.lost for share in own) else ""
        seconds = max(share.seconds for share in own)
        found.append(CardShare(own[0].stage, card, sum(share.cases for share in own), seconds, lost))
    return found


def _join_logs(folder: Path, seats: Sequence[Seat]) -> None:
    """Write the ends of the workers' logs, one after the other, where the log of a single worker would be."""
    with open(folder / "log.txt", "ab") as all_logs:
        for seat in seats:
            with suppress(OSError), open(folder / str(seat.number) / "log.txt", "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
                all_logs.write(f"\n--- {folder.name}/{seat.number}/log.txt\n".encode() + log.read())


class _Hub:
    """Receives the events of all seats, one at a time."""

    def __init__(self, on_event: OnCardEvent, seats: Sequence[Seat], on_card_done: OnCardDone) -> None:
        self.on_event, self.lock, self.on_card_done = on_event, threading.Lock(), on_card_done
        self.taken = Counter(seat.card for seat in seats)

    def leave(self, seat: Seat) -> None:
        """Count a seat out, and with the last one of a card the card."""
        with self.lock:
            self.taken[seat.card] -= 1
            if seat.card is not None and self.taken[seat.card] == 0:
                self.on_card_done(seat.card)

    def listener(self, seat: Seat) -> _Listener:
        """Return what listens to one seat."""
        return _Listener(self, seat)


class _Listener:
    """What one seat has reported: the ids of its cases, and the case during which it was lost."""

    def __init__(self, hub: _Hub, seat: Seat) -> None:
        self.hub, self.seat = hub, seat
        self.cases: set[str] = set()
        self.lost_during = ""

    def take(self, event: Event) -> None:
        """Take one event of the seat's worker."""
        if event["event"] in _OWN and event.get("id") and "ceiling" not in event:
            self.cases.add(event["id"])
        if event["event"] == "lost":
            self.lost_during = event.get("id", "")
        with self.hub.lock:
            self.hub.on_event({**event, SEAT: self.seat.number}, self.seat.card)


def _deaths(by_card: Sequence[list[Death]]) -> list[Death]:
    """Return all deaths. If any seat survived, the deaths of lost seats are left out: others did their work."""
    last = [deaths[-1] for deaths in by_card if deaths and deaths[-1].case is None]
    named = [death for deaths in by_card for death in deaths if death.case is not None]
    if len(last) < len(by_card):
        return named
    gravest = worst([death.verdict for death in last], Verdict.CRASHED)
    return [*named, next(death for death in last if death.verdict is gravest)]


def ledger_here() -> Ledger:
    """In a worker: return the ledger that its supervisor named."""
    return Ledger(Path(os.environ[LEDGER_VARIABLE]), own_seat())


def done_by_all(journal: Path) -> set[str]:
    """In a worker: return the ids that need not run again, whichever seat they ran on."""
    return set().union(*(Journal(path).done() for path in journal.parent.parent.glob(f"*/{journal.name}")))
