"""What the process that measures does before it has the card: once, never at the price of a result."""

import json

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

from harness.inside.bench import before_card
from harness.inside.bench.do_bench import Timer
from harness.inside.bench.results import Sink
from harness.inside.benchmarks import Point
from harness.inside.precompile_torch import generated
from harness.inside.process.journal import Journal
from harness.inside.process.lease import LEASE_VARIABLE, _Launching
from harness.records import Job, Sample, Stage, Verdict

POINTS = [Point(f"norm/N={n}", "norm", "compile", "", {"N": n}, None, {}) for n in range(3)]


class Ended(BaseException):
    """The process would have ended."""


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A job, its journal with a worker, and what was traced and planned, with whether that waits for a lease."""
    monkeypatch.setenv(LEASE_VARIABLE, str(tmp_path / "lease"))
    monkeypatch.setattr(before_card.os, "_exit", lambda code: (_ for _ in ()).throw(Ended))
    job = Job("r", "t", (Stage.BENCH,), str(tmp_path), str(tmp_path))
    (tmp_path / "bench").mkdir()
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("worker")
    done = []

    def trace(points, more):
        done.append([point.id for point in points])
        assert _Launching.nothing
        return len(points)

    monkeypatch.setattr("harness.inside.precompile_torch.traced.trace", trace)
    monkeypatch.setattr("harness.inside.precompile_torch.plans.plan", lambda lines: done.append(list(lines)) or 1)
    return job, journal, done


def prepare(job, journal):
    before_card.prepare(job, POINTS, Timer.when_used(False, None, lambda: None), journal)


def failed(point, verdict=Verdict.ERROR):
    return Sample(point.case, point.kernel, point.provider, {}, 0, verdict, reason="it saw a tensor without data")


def test_only_what_was_noted_is_traced_and_planned(stage):
    job, journal, done = stage
    prepare(job, journal)
    assert done == []
    assert [event["event"] for event in journal.read()] == ["worker"]
    generated._note(job, generated._TRACED, 2, [json.dumps(POINTS[1].id), json.dumps("of another run")])
    generated._note(job, generated._CALLED, 0, ["{}"])
    generated._note(job, generated._CALLED, 1, ["{}", "{ }"])
    prepare(job, journal)
    assert done == [[POINTS[1].id], ["{}", "{ }"]]
    assert not _Launching.nothing


def test_it_is_tried_once_even_if_it_ends_the_process(stage, monkeypatch):
    """The last event is then `postponed`, after which a new worker takes over."""
    job, journal, done = stage
    generated._note(job, generated._CALLED, 0, ["{}"])

    def lost(lines):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr("harness.inside.precompile_torch.plans.plan", lost)
    with pytest.raises(Ended):
        prepare(job, journal)
    assert journal.read()[-1]["event"] == "postponed"
    journal.write("worker")
    prepare(job, journal)
    assert done == []


def test_a_point_that_fails_afterwards_is_measured_again_without(stage):
    job, journal, _ = stage
    generated._note(job, generated._TRACED, 0, [json.dumps(POINTS[0].id)])
    before_card.start_over(failed(POINTS[0]), POINTS[0], journal)  # nothing was done before: the failure is the point's own
    prepare(job, journal)
    for verdict in (Verdict.PASSED, Verdict.NOT_RUN, Verdict.OOM):
        before_card.start_over(failed(POINTS[0], verdict), POINTS[0], journal)
    with pytest.raises(Ended):
        before_card.start_over(failed(POINTS[0]), POINTS[0], journal)
    last = journal.read()[-1]
    assert (last["event"], last["id"]) == ("postponed", POINTS[0].id)
    journal.write("worker")
    before_card.start_over(failed(POINTS[0]), POINTS[0], journal)


def test_kernels_compiled_before_the_card_was_held_count_as_such(stage, tmp_path):
    sink = Sink(tmp_path / "bench", "samples.jsonl")
    sink.on_event({"event": "note", "text": "", "compiled": 29})
    assert sink.report([]).compiled_ahead == 29
