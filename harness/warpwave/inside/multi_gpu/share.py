"""Share a stage's work between several seats: one supervised worker on each, and one place that joins the results.

Each seat has its own folder `<stage>/<number>/` with its journal and log. `<stage>/` holds the same files as with a single worker, written
as results arrive. A worker that dies is replaced on its seat. The others finish the work of a seat that is lost. With several GPUs,
`<stage>/cards.jsonl` records this, one line per GPU.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, Union

from warpwave.inside.benchmarks import Point
from warpwave.inside.environment import devices_here, free_memory
from warpwave.inside.multi_gpu.ledger import LEDGER_VARIABLE, SEAT_STEP, SEAT_VARIABLE, Card, Ledger, card_of, cards, own_seat
from warpwave.inside.process import sealing
from warpwave.inside.process.journal import Event, Journal
from warpwave.inside.process.lease import Lease
from warpwave.inside.process.supervise import Death, faults_of, supervise
from warpwave.inside.process.workers import spawned
from warpwave.inside.scripts.script import Script
from warpwave.records import CardShare, Job, Stage, Verdict, to_json, worst

# The places at which workers share a stage: one for each card, or several on one card for tests, which are not timed.
#
# A seat's number is its card's index, plus a thousand for each seat before it on that card. It names the seat's folder:
# `<stage>/<number>/`.

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
    if any(word.partition("=")[0] in _ONE_ONLY or word.startswith("-n") for word in (*job.what.pytest_args, *job.declared.pytest.addopts)):
        return 1
    if job.limits.test_workers:
        return min(job.limits.test_workers, max(1, files))
    fitting = [_MOST // cards, files, _cores() // cards, free_memory() // _HOST_BYTES // cards]
    if job.needs_card:
        smallest = min((int(device.get("memory_bytes", 0)) for device in devices_here(job)), default=0)
        fitting += [(_cores() - 1) // cards, smallest // _CARD_BYTES]
    return max(1, min(fitting))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


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
        began, book = time.monotonic(), Ledger(ledger, seat.number)
        cases: set[str] = set()
        lost_during = ""

        def take(event: Event) -> None:
            nonlocal lost_during
            if event["event"] in _OWN and event.get("id") and "ceiling" not in event:
                cases.add(event["id"])
            if event["event"] == "lost":
                lost_during = event.get("id", "")
            hub.take(seat, event)

        def runs_again(death: Death) -> bool:
            """Postpone a case whose process a neighbour may have ended."""
            if death.case is None or not death.by_others or not book.neighbours() or death.case in book.postponed():
                return False
            book.postpone(death.case)
            return True

        limit, log = job.limits.test_s, own / "log.txt"
        deaths = supervise(start, Journal(own / journal), limit, log, take, stop, faults_of(job), runs_again)
        lost = deaths[-1].reason if deaths and deaths[-1].case is None else ""
        book.leave(during=lost_during)
        hub.leave(seat)
        return CardShare(stage, card_of(seat.number), len(cases), round(time.monotonic() - began, 3), lost), deaths

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
        self._on_event, self._lock, self._on_card_done = on_event, threading.Lock(), on_card_done
        self._taken = Counter(seat.card for seat in seats)

    def take(self, seat: Seat, event: Event) -> None:
        """Pass on an event of a seat's worker."""
        with self._lock:
            self._on_event({**event, SEAT: seat.number}, seat.card)

    def leave(self, seat: Seat) -> None:
        """Count a seat out, and with the last one of a card the card."""
        with self._lock:
            self._taken[seat.card] -= 1
            if seat.card is not None and self._taken[seat.card] == 0:
                self._on_card_done(seat.card)


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


# The work of one GPU's worker if several share a stage: sweep cases and test files, as it claims them.


def homes(cases: Sequence[str], indices: Sequence[int]) -> dict[str, int]:
    """Return the GPU of each case. The cases of a sweep go round the GPUs in the author's order, so that each gets as many large ones.

    The assignment depends on the sweep alone. So in a later run, even beside other kernels, a case runs on the same GPU and can be
    compared.
    """
    found: dict[str, int] = {}
    counted: Counter[str] = Counter()
    for case in cases:
        sweep = case.rpartition("/")[0]
        first = int.from_bytes(hashlib.sha256(sweep.encode()).digest()[:4], "big")
        found[case] = indices[(first + counted[sweep]) % len(indices)]
        counted[sweep] += 1
    return found


def claimed_cases(job: Job, journal: Journal, todo: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the points of each case that this GPU is to measure, all providers together, until all work is done."""
    units: dict[str, list[Point]] = {}
    for point in todo:
        units.setdefault(point.case, []).append(point)
    return _claimed(job, journal, units)


def claimed_scripts(job: Job, journal: Journal, scripts: Sequence[Script]) -> Iterator[Script]:
    """Yield the scripts that this GPU is to run, each as a whole, until all of them are done."""
    return (script for (script,) in _claimed(job, journal, {script.id: [script] for script in scripts}))


Work = TypeVar("Work", Point, Script)


def _claimed(job: Job, journal: Journal, units: Mapping[str, Sequence[Work]]) -> Iterator[list[Work]]:
    """Yield what is left to do of each unit that this GPU claims."""
    ledger, done = ledger_here(), done_by_all(journal.path)
    home = homes(list(units), [card.index for card in cards(job)])
    while (unit := ledger.next(list(units), home, lambda: journal.write("waiting"))) is not None:
        if ledger.inherited:
            done = done_by_all(journal.path)
        if left := [work for work in units[unit] if work.id not in done and not given_up(ledger, journal, work.id)]:
            yield left
        ledger.finish(unit)


def given_up(ledger: Ledger, journal: Journal, case: str) -> bool:
    """Record a case as crashed instead of running it, if two GPUs were lost during it. Return whether it was."""
    cost = list(dict.fromkeys(map(card_of, ledger.lost_during(case))))
    if cost:
        lost = f"GPUs {' and '.join(map(str, cost))} were" if len(cost) > 1 else f"GPU {cost[0]} was"
        journal.write("death", id=case, verdict=Verdict.CRASHED.value, reason=f"{lost} lost during it")
    return bool(cost)
