"""The work of one GPU's worker if several share a stage: sweep cases and test files, as it claims them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from harness.inside.benchmarks import Point
from harness.inside.multi_gpu.cards import card_of, cards
from harness.inside.multi_gpu.ledger import Ledger
from harness.inside.multi_gpu.share import done_by_all, ledger_here
from harness.inside.process.journal import Journal
from harness.inside.scripts.script import Script
from harness.records import Job, Verdict


def homes(cases: Sequence[str], indices: Sequence[int]) -> dict[str, int]:
    """Return the GPU of each case. The cases of a sweep go round the GPUs in the author's order, so that each gets as many large ones.

    The assignment depends on the sweep alone. So in a later run, even beside other kernels, a case runs on the same GPU and can be
    compared.
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
    """Yield the points of each case that this GPU is to measure, all providers together, until all work is done."""
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


def claimed_scripts(job: Job, journal: Journal, scripts: Sequence[Script]) -> Iterator[Script]:
    """Yield the scripts that this GPU is to run, each as a whole, until all of them are done."""
    ledger = ledger_here()
    units = {script.id: script for script in scripts}
    home = homes(list(units), [card.index for card in cards(job)])
    while (unit := ledger.next(list(units), home, lambda: journal.write("waiting"))) is not None:
        if unit not in done_by_all(journal.path) and not given_up(ledger, journal, unit):
            yield units[unit]
        ledger.finish(unit)


def given_up(ledger: Ledger, journal: Journal, case: str) -> bool:
    """Record a case as crashed instead of running it, if two GPUs were lost during it. Return whether it was."""
    cost = list(dict.fromkeys(map(card_of, ledger.lost_during(case))))
    if cost:
        lost = f"GPUs {' and '.join(map(str, cost))} were" if len(cost) > 1 else f"GPU {cost[0]} was"
        journal.write("death", id=case, verdict=Verdict.CRASHED.value, reason=f"{lost} lost during it")
    return bool(cost)
