"""Providers of one case take turns, so that whatever drifts hits them alike: on a clock of the test's own, without a GPU."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from benching import point

from warpwave.inside.bench import stage
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.supervise import supervise
from warpwave.inside.process.workers import spawned
from warpwave.records import Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


REPOSITORY = Path(__file__).parents[4]


def in_turns(timer, monkeypatch, tmp_path, *functions):
    """Points of one case, measured together; returns their samples by provider and the journal's events."""
    journal = Journal(tmp_path / "journal.jsonl")
    together = [dataclasses.replace(point(function), provider=name) for name, function in functions]
    monkeypatch.setattr(stage, "is_usable", lambda: True)
    watch = SimpleNamespace(look=lambda: None, weakness=lambda *looks: "")
    stage._measure_in_turns(together, timer, watch, SimpleNamespace(), journal)
    events = journal.read()
    found = {event["id"].partition("[")[2][:-1]: json.loads(event["sample"]) for event in events if event["event"] == "finish"}
    return found, events


def author(timer, work, log=None):
    """An author's function that computes GB/s from the median."""

    def function(N, provider):
        if log is not None:
            log.append(1)
        return 1.0 / timer.do_bench(work, return_mode="median")

    return function


def test_providers_take_turns_so_that_a_drift_hits_them_alike(device, timer, tmp_path, monkeypatch):
    """A card that slows down by half while it is measured: the second provider is not twice as slow for that."""

    def work():
        device.work(0.5 * (1 + device.now / 400))

    found, events = in_turns(timer, monkeypatch, tmp_path, ("one", author(timer, work)), ("two", author(timer, work)))
    turns = [event["id"].partition("[")[2][:-1] for event in events if event["event"] in ("start", "turn")]

    assert turns[:6] == ["one", "two"] * 3
    assert found["two"]["median_ms"] == pytest.approx(found["one"]["median_ms"], rel=0.05)
    assert found["two"]["times_ms"][-1] > 1.2 * found["one"]["times_ms"][0]


def test_the_authors_number_is_of_all_rounds(device, timer, tmp_path, monkeypatch):
    """Called once a round, the function makes its number of all that was measured so far."""
    calls = []
    draw = random.Random(2)
    found, _ = in_turns(timer, monkeypatch, tmp_path, ("one", author(timer, lambda: device.work(draw.uniform(0.1, 0.9)), calls)))

    assert len(calls) == len(found["one"]["rounds"]) + bool(found["one"]["discarded"])
    assert found["one"]["value"] == pytest.approx(1 / statistics.median(found["one"]["times_ms"]))


def test_a_function_that_times_twice_has_two_numbers(device, timer, tmp_path, monkeypatch):
    """Forward and backward, each from its own place; the sample has the timings of the last."""

    def both(N, provider):
        forward = timer.do_bench(lambda: device.work(0.25), return_mode="median")
        return forward + timer.do_bench(lambda: device.work(0.5), return_mode="median")

    found, _ = in_turns(timer, monkeypatch, tmp_path, ("one", both))
    assert (found["one"]["value"], set(found["one"]["times_ms"])) == (0.75, {0.5})


def test_who_takes_long_to_set_up_is_called_twice(device, timer, tmp_path, monkeypatch):
    """Then it measures on by itself, and others have their turns without it."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("warpwave.inside.bench.timing.time.perf_counter", lambda: clock.now)
    calls = []

    def slow(N, provider):
        calls.append(1)
        clock.now += 5.0
        return timer.do_bench(lambda: device.work(0.25), return_mode="median")

    found, _ = in_turns(timer, monkeypatch, tmp_path, ("slow", slow), ("one", author(timer, lambda: device.work(0.25))))
    assert (len(calls), sum(found["slow"]["rounds"]) >= 50, len(found["one"]["rounds"])) == (2, True, 5)


def test_whose_turn_it_was_is_the_culprit(tmp_path):
    """Two points are under way; the worker dies in a later turn of the first, not in the one that was started last."""
    program = (
        "from warpwave.inside.process.journal import Journal; import os; journal = Journal.from_environment(); done = journal.done()\n"
        "for event, name in [('start', 'one'), ('start', 'two'), ('turn', 'one')]:\n"
        "    'one' in done or journal.write(event, id=name)\n"
        "'one' in done or os._exit(9)\n"
        "journal.write('start', id='two'); journal.write('finish', id='two'); journal.write('end')\n"
    )
    start = spawned([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY / 'harness')!r})\n{program}"])
    deaths = supervise(start, Journal(tmp_path / "journal.jsonl"), 60.0, tmp_path / "log.txt", lambda event: None)

    assert [(death.case, death.verdict) for death in deaths] == [("one", Verdict.CRASHED)]


def test_one_that_raises_leaves_the_others_their_turns(device, timer, tmp_path, monkeypatch):
    """Its row says why; it is not called again. A function that measures for itself is called once."""
    calls = []

    def broken(N, provider):
        calls.append("broken")
        raise RuntimeError("no kernel image")

    def own(N, provider):
        calls.append("own")
        return 5.0

    found, _ = in_turns(timer, monkeypatch, tmp_path, ("broken", broken), ("own", own), ("one", author(timer, lambda: device.work(0.25))))
    assert [found[name]["verdict"] for name in ("broken", "own", "one")] == ["error", "passed", "passed"]
    assert (calls, found["own"]["value"], found["own"]["times_ms"]) == (["broken", "own"], 5.0, [])


def test_tuning_inside_of_what_is_timed_is_not_the_points_timing(device, timer, tmp_path, monkeypatch):
    """An autotuner calls `do_bench` from within the first launch."""
    tuned, calls = [], []

    def candidate():
        calls.append(1)
        device.work(3.0)

    def work():
        if not tuned:
            tuned.append(timer.do_bench(candidate, quantiles=(0.5, 0.2, 0.8)))
        device.work(0.25)

    found, _ = in_turns(timer, monkeypatch, tmp_path, ("one", author(timer, work)))
    assert (tuned, set(found["one"]["times_ms"])) == ([[3.0, 3.0, 3.0]], {0.25})
    assert len(calls) == 10  # compiled, looked at three times, warmed up, and one round of five


def test_tuning_in_the_middle_of_a_round_leaves_its_timings_alone(device, timer, tmp_path, monkeypatch):
    """Another shape, and the autotuner measures again, while the events of the point's own timings wait to be read."""
    calls = itertools.count()

    def work():
        if next(calls) == 30:
            timer.do_bench(lambda: device.work(3.0))
        device.work(0.25)

    found, _ = in_turns(timer, monkeypatch, tmp_path, ("one", author(timer, work)))
    assert sum(time != 0.25 for time in found["one"]["times_ms"]) == 1
