"""What a card's worker does where several cards share the work: the cases of the sweeps, the files of the tests, as they are claimed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from harness.inside.marks import Point
from harness.inside.multi_gpu.cards import cards
from harness.inside.multi_gpu.ledger import Ledger
from harness.inside.multi_gpu.share import done_by_all, ledger_here
from harness.inside.process.journal import Journal
from harness.records import Job, Verdict


def homes(cases: Sequence[str], indices: Sequence[int]) -> dict[str, int]:
    """The card of each case. The cases of one sweep go round the cards in the author's order, so that each has as many large ones.

    It follows from the sweep alone: in a later run of it, also beside other kernels, a case is on the same card, and can be compared.
    """
    found: dict[str, int] = {}
    counted: dict[str, int] = {}
    for case in cases:
        sweep = case.rpartition("/")[0]
        place = counted.setdefault(sweep, int.from_bytes(hashlib.sha256(sweep.encode()).digest()[:4], "big"))
        counted[sweep] = place + 1
        found[case] = indices[place % len(indices)]
    return found


def claimed_cases(job: Job, journal: Journal, todo: Sequence[Point]) -> Iterator[list[Point]]:
    """The points of each case that this card is to measure, all providers together, until no card has anything left to do."""
    ledger, done = ledger_here(), done_by_all(journal.path)
    units: dict[str, list[Point]] = {}
    for point in todo:
        units.setdefault(point.case, []).append(point)
    home = homes(list(units), [card.index for card in cards(job)])
    while (case := ledger.next(list(units), home, lambda: journal.write("waiting"))) is not None:
        if ledger.inherited:
            done = done_by_all(journal.path)
        left = [point for point in units[case] if point.id not in done and not given_up(ledger, journal, point.id)]
        if left:
            yield left
        ledger.finish(case)


def given_up(ledger: Ledger, journal: Journal, case: str) -> bool:
    """Whether a case is put on record instead of being run: two cards were lost in it, and that is enough."""
    cost = " and ".join(map(str, ledger.lost_during(case)))
    if cost:
        journal.write("death", id=case, verdict=Verdict.CRASHED.value, reason=f"GPUs {cost} were lost during it")
    return bool(cost)
