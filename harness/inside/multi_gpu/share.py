"""Share a stage's work between several GPUs: one supervised worker per GPU, and one place that joins the results.

Each GPU's worker has its own folder `<stage>/<index>/` with its journal and log. `<stage>/` holds the same files as on a single GPU,
written as results arrive. A worker that dies is replaced on its GPU. The other GPUs finish the work of a GPU that is lost.
`<stage>/cards.jsonl` records this, one line per GPU.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.inside.multi_gpu.cards import Card, own_index
from harness.inside.multi_gpu.ledger import LEDGER_VARIABLE, Ledger
from harness.inside.process import sealing
from harness.inside.process.audit import Event
from harness.inside.process.journal import Journal
from harness.inside.process.supervise import Death, supervise
from harness.inside.process.workers import spawned
from harness.records import CardShare, Job, Stage, Verdict, to_json, worst

# Takes a worker's event and the index of its GPU. Calls never overlap.
OnCardEvent = Callable[[Event, int], None]
_OWN = ("finish", "death")


def share(job: Job, stage: Stage, found: Sequence[Card], command: list[str], journal: str, on_event: OnCardEvent) -> list[Death]:
    """Run `command` as the worker of each GPU until everything is done. Raises what `supervise` raises.

    Return the deaths of the workers. The last one is that of a GPU only if no GPU was left to finish the work.
    """
    folder = Path(job.output) / stage.value
    ledger = folder / f"ledger-{journal}"
    ledger.unlink(missing_ok=True)  # from an interrupted run: the journals hold what was done, and who claimed it does not matter
    hub = _Hub(on_event)
    stop = threading.Event()

    def run(card: Card) -> tuple[CardShare, list[Death]]:
        own = folder / str(card.index)
        own.mkdir(exist_ok=True)
        start = spawned(command, {**card.variables, LEDGER_VARIABLE: str(ledger)})
        seat, began = hub.seat(card.index), time.monotonic()
        deaths = supervise(start, Journal(own / journal), job.test_limit_s, own / "log.txt", seat.take, stop, job.device_faults)
        lost = deaths[-1].reason if deaths and deaths[-1].case is None else ""
        Ledger(ledger, card.index).leave(during=seat.lost_during)
        return CardShare(stage, card.index, len(seat.cases), round(time.monotonic() - began, 3), lost), deaths

    with ThreadPoolExecutor(len(found)) as pool:
        futures = [pool.submit(run, card) for card in found]
        try:
            ended = [future.result() for future in futures]
        except BaseException:
            # Leaving the `with` block waits for the threads, which receive no signal.
            stop.set()
            raise
    sealing.replace(folder / "cards.jsonl", "".join(to_json(card) + "\n" for card, _ in ended))
    return _deaths([deaths for _, deaths in ended])


class _Hub:
    """Receives the events of all GPUs, one at a time."""

    def __init__(self, on_event: OnCardEvent) -> None:
        self.on_event, self.lock = on_event, threading.Lock()

    def seat(self, card: int) -> _Seat:
        """Return a GPU's seat."""
        return _Seat(self, card)


class _Seat:
    """What one GPU has reported: the ids of its cases, and the case during which it was lost."""

    def __init__(self, hub: _Hub, card: int) -> None:
        self.hub, self.card = hub, card
        self.cases: set[str] = set()
        self.lost_during = ""

    def take(self, event: Event) -> None:
        """Take one event of the GPU's worker."""
        if event["event"] in _OWN and event.get("id") and "ceiling" not in event:
            self.cases.add(event["id"])
        if event["event"] == "lost":
            self.lost_during = event.get("id", "")
        with self.hub.lock:
            self.hub.on_event(event, self.card)


def _deaths(by_card: Sequence[list[Death]]) -> list[Death]:
    """Return all deaths. If any GPU survived, the deaths of lost GPUs are left out: others did their work."""
    last = [deaths[-1] for deaths in by_card if deaths and deaths[-1].case is None]
    named = [death for deaths in by_card for death in deaths if death.case is not None]
    if len(last) < len(by_card):
        return named
    gravest = worst([death.verdict for death in last], Verdict.CRASHED)
    return [*named, next(death for death in last if death.verdict is gravest)]


def ledger_here() -> Ledger:
    """In a worker: return the ledger that its supervisor named."""
    return Ledger(Path(os.environ[LEDGER_VARIABLE]), own_index())


def done_by_all(journal: Path) -> set[str]:
    """In a worker: return the ids that need not run again, whichever GPU they ran on."""
    return set().union(*(Journal(path).done() for path in journal.parent.parent.glob(f"*/{journal.name}")))
