"""In the process that measures: let torch's compiler and libraries do what needs no card, before this run has it.

If that ends the process, the next one does without. So it is, too, if a point then fails: a package that keeps a tensor between its points
may have kept one without data.
"""

from __future__ import annotations

import os

from harness.inside.bench.do_bench import Timer
from harness.inside.benchmarks import Point
from harness.inside.environment.triton_cache import compiled_kernels
from harness.inside.precompile_torch import generated
from harness.inside.process.journal import Journal
from harness.inside.process.lease import launching_nothing
from harness.records import Job, Sample, Verdict

_ID = "(before the card)"


def prepare(job: Job, todo: list[Point], timer: Timer, journal: Journal) -> None:
    """Trace what torch compiled for these points, and plan what they call of its libraries."""
    wanted, calls = generated.traced_points(job), generated.called(job)
    points = [point for point in todo if point.id in wanted]
    if not (points or calls) or _was_tried(journal):
        return
    compiled = compiled_kernels()
    journal.write("postponed", id=_ID, reason="")  # if this process dies now, another one continues
    with launching_nothing():
        traced = _trace(points, timer) if points else 0
        planned = _plan(calls)
    text = f"before the card was held: {traced} of {len(points)} points traced, {planned} of {len(calls)} library calls planned"
    journal.write("note", text=text, compiled=compiled_kernels() - compiled)


def _trace(points: list[Point], timer: Timer) -> int:
    from harness.inside.precompile_torch.traced import trace
    from harness.inside.precompile_torch.without_card import at_what_is_timed

    return trace(points, [(timer, "instead", at_what_is_timed)])


def _plan(calls: list[str]) -> int:
    """Plan the calls.

    A device that does not answer afterwards ends this process.
    """
    from harness.inside.precompile_torch.plans import plan

    try:
        return plan(calls)
    except RuntimeError:
        os._exit(1)


def start_over(sample: Sample, point: Point, journal: Journal) -> None:
    """If a point failed in a process that prepared, end it: the next one measures this point and the rest without."""
    if sample.verdict in (Verdict.ERROR, Verdict.INVALID) and prepared_here(journal):
        journal.write("postponed", id=point.id, reason=f"it failed after what was done before the card was held: {sample.reason}")
        os._exit(1)


def prepared_here(journal: Journal) -> bool:
    """Return whether this worker is the one that prepared."""
    events = [event["event"] for event in journal.read() if event["event"] == "worker" or event.get("id") == _ID]
    return events[-1:] == ["postponed"]


def _was_tried(journal: Journal) -> bool:
    return any(event["event"] == "postponed" and event["id"] == _ID for event in journal.read())
