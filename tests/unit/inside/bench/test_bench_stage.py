"""The bench stage, without a GPU: what a sweep keeps of each point, and what makes a point weak, skipped or wrong."""

import dataclasses
import itertools
import json
import os
import random
import statistics
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_requests import make_job

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import command
from benching import FakeDevice, point

from warpwave.config.targets import load_targets
from warpwave.inside.bench import ceilings, results, stage
from warpwave.inside.bench.ceilings import Watch
from warpwave.inside.bench.results import Sink
from warpwave.inside.bench.timing import Burst, Gathered, Rule, Timer, unsettled
from warpwave.inside.benchmarks import Point
from warpwave.inside.process.journal import Journal
from warpwave.inside.process.supervise import supervise
from warpwave.inside.process.workers import spawned
from warpwave.records import Stage, Verdict, to_json
from warpwave.stats import ratio_of_medians

REPOSITORY = Path(__file__).parents[4]
# What the JIT says of a pointer on 16 bytes, to less than 2 GiB, on AMD.
WIDE_POINTER = "tt.divisibility=16,tt.pointer_range=32"


def test_the_job_knows_the_caches_that_no_driver_tells():
    """By the card's name; None where it does not know the card."""
    cards = load_targets()["rocm"].architectures
    job = make_job("run-1", "rocm", (Stage.BENCH,), "", "", architectures=cards)
    found = [stage.hidden_cache(job, SimpleNamespace(name=name)) for name in ("gfx942", "gfx90a", "gfx1250")]

    assert found == [256 << 20, 0, None]


class Card(FakeDevice):
    """With a clock and a memory that a test can move."""

    mhz, free = 2000.0, 100 << 30

    def _sleep(self, cycles):
        self.now += cycles / self.mhz / 1e3

    def mem_get_info(self):
        return self.free, 140 << 30

    def memory_reserved(self):
        return 30 << 30


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"mhz": 1520.0}, ""),
        ({"mhz": 1480.0}, "the clock was at 1480 MHz, 74% of the fastest in this run"),
        ({"free": 99 << 30}, ""),
        ({"free": 96 << 30}, "another process took 4.0 GiB of the card"),
    ],
    ids=["quiet", "slow", "too-slow", "libraries", "neighbour"],
)
def test_a_card_that_was_not_left_alone_makes_a_point_weak(changes, words, device):
    """Seen before or after. A card without a clock and a memory to look at makes nothing weak."""
    card = Card()
    watch = Watch(card)
    first = watch.look()
    for name, value in changes.items():
        setattr(card, name, value)
    second = watch.look()

    assert (watch.weakness(first, second), watch.weakness(first)) == (words, "")
    silent = Watch(device)
    assert silent.weakness(silent.look(), silent.look()) == ""


def test_a_sample_carries_the_authors_number_and_the_raw_timings(device, timer):
    """Bytes follow from the author's GB/s and the time it was computed from: 96 bytes in 0.25 ms."""

    def author(N, provider):
        ms, low, high = timer.do_bench(lambda: device.work(0.25), quantiles=[0.5, 0.2, 0.8])
        return tuple(12 * N / t * 1e-6 for t in (ms, high, low))

    sample = stage._measure(point(author), timer)

    assert (sample.verdict, sample.bytes_moved, sample.median_ms) == (Verdict.PASSED, 96, 0.25)
    assert sample.value == pytest.approx(96 / 0.25 * 1e-6)
    assert sample.flush_bytes == 1 << 20
    assert len(sample.times_ms) > 5


def mismatched():
    raise RuntimeError("shape mismatch\nmore")


@pytest.mark.parametrize(
    ("author", "verdict", "words"),
    [
        *((lambda value=value: value, Verdict.INVALID, str(value)) for value in (float("nan"), float("inf"), None)),
        (mismatched, Verdict.ERROR, "RuntimeError: shape mismatch"),
    ],
)
def test_what_is_no_number_is_invalid(timer, author, verdict, words):
    """Never 0.0, never a gap."""
    sample = stage._measure(point(lambda N, provider: author()), timer)

    assert (sample.verdict, words in sample.reason, sample.value) == (verdict, True, None)
    assert "\n" not in sample.reason


def test_a_worker_takes_up_where_another_died(tmp_path, monkeypatch, device):
    """Points that the journal has an outcome for are not measured again; the culprit is one of them."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "bench_op.py").write_text(
        "import triton\n"
        "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['N'], x_vals=[1, 2, 3], line_arg='provider',\n"
        "    line_vals=['triton'], line_names=['Triton'], plot_name='op', ylabel='GB/s', args={}))\n"
        "def benchmark(N, provider):\n"
        "    return 8.0 * N\n"
    )
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("finish", id="op/N=1 [triton]", verdict="passed", reason="")
    journal.write("death", id="op/N=2 [triton]", verdict="crashed", reason="SIGSEGV")
    monkeypatch.setenv("WARPWAVE_JOURNAL", str(journal.path))
    monkeypatch.setattr(stage.Timer, "when_used", lambda *told: Timer(device, device.flush, 1 << 20))
    monkeypatch.setattr(stage, "copy_ceiling", lambda *arguments: None)
    monkeypatch.setattr(stage, "card_here", lambda known: SimpleNamespace(name="sm_90"))
    monkeypatch.setattr(stage, "Recorder", lambda card, journal, root: SimpleNamespace())
    monkeypatch.setattr("triton.testing.do_bench", None)
    stage.work(make_job("run-1", "cuda", (Stage.BENCH,), str(package), str(tmp_path)))
    finished = [event for event in journal.read()[2:] if event["event"] == "finish"]

    assert [event["id"] for event in finished] == ["op/N=3 [triton]"]
    assert json.loads(finished[0]["sample"])["value"] == 24.0
    assert journal.read()[-1]["event"] == "end"


def test_what_the_jit_compiles_for_a_point_is_recorded(tmp_path, data):
    """A bench on a card, here a pretended one: rows with the point as their origin, and the card under the name of its architecture."""
    program = f"""
from pathlib import Path
from warpwave.inside.bench import results, stage
from warpwave.inside.fake_gpu.card import pretended_device
from warpwave.inside.fake_gpu.driver import call_once
from warpwave.inside.bench.timing import Timer, Timing
from warpwave.records import Job, Stage, What
from warpwave.config.targets import load_targets
class Once(Timer):
    def do_bench(self, fn, **options):
        self.last = Timing((1.0,), 0, 0, 1.0, 0.0)
        return call_once(fn, **options)
card = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
stage.Timer.when_used = classmethod(lambda cls, *told: Once(object(), None, 0))
stage.copy_ceiling, results.trouble = lambda *arguments: None, lambda: ""
with pretended_device(card, lambda binary: (32, 0, 1024)):
    stage.work(Job("run-1", "rocm", {str(data / "limits")!r}, {str(tmp_path)!r}, what=What(stages=(Stage.BENCH,))))
"""
    journal = tmp_path / "journal.jsonl"
    variables = {"WARPWAVE_JOURNAL": str(journal), "TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(REPOSITORY / "harness")}
    done = command.python("-c", program, env={**os.environ, **variables}, kind="compiler")
    assert done.returncode == 0, done.stderr
    rows = [event["row"] for event in Journal(journal).read() if event["event"] == "kernel"]

    assert {row["architecture"] for row in rows} == {"gfx942"}
    after = next(row for row in rows if row["origin"] == "limits/N=65536 [after]")
    assert (after["function"], after["verdict"], after["attributes"]["x_ptr"]) == ("copy_kernel", "passed", WIDE_POINTER)
    assert len(after["binary_hash"]) == 64


def test_what_a_point_tells_triton_is_over_with_it(monkeypatch):
    """torch.compile sets a cache and an assembler for the whole process; the next kernel is compiled as if it had not."""
    monkeypatch.setenv("TRITON_CACHE_DIR", "ours")
    monkeypatch.delenv("TRITON_ASSEMBLER", raising=False)

    def compiled():
        os.environ.update(TRITON_CACHE_DIR="torch's", TRITON_ASSEMBLER="torch's")
        return os.environ["TRITON_CACHE_DIR"]

    assert Point("case", "kernel", "compile", "GB/s", {}, compiled, {}).run() == "torch's"
    assert (os.environ["TRITON_CACHE_DIR"], os.environ.get("TRITON_ASSEMBLER")) == ("ours", None)


def test_the_ceiling_is_a_copy_well_past_the_caches(monkeypatch, tmp_path, device, timer):
    """4 GiB moved where there is room for it, less on a small card, and the size is on record.

    Smaller copies are measured once, before the points, each with an identity of its own, so that a worker that takes over goes on behind
    the last one.
    """
    import torch

    card = SimpleNamespace(mem_get_info=lambda: (64 << 20, 1 << 30), empty_cache=lambda: None)
    monkeypatch.setattr(ceilings, "accelerator", lambda: ("card", card))
    monkeypatch.setattr(ceilings, "_CURVE_BYTES", (1 << 10, 1 << 16, 1 << 30))
    monkeypatch.setattr("triton.runtime.driver", SimpleNamespace(active=SimpleNamespace(get_active_torch_device=lambda: "cpu")))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: device.work(2.0))
    journal = Journal(tmp_path / "journal.jsonl")
    ceilings.copy_ceiling(journal, timer, "before", {"ceiling before, 1024 bytes"})
    ceilings.copy_ceiling(journal, timer, "after", set())
    records = [json.loads(event["ceiling"]) for event in journal.read() if "ceiling" in event]

    assert [(record["bytes_moved"], record["when"]) for record in records] == [(1 << 16, "before"), (1 << 25, "before"), (1 << 25, "after")]
    assert {record["median_ms"] for record in records} == {2.0}


def test_an_aa_run_measures_twice_in_two_processes(tmp_path, monkeypatch):
    """The second pass has a journal and a file of its own; ceilings and kernels are those of the first."""
    (tmp_path / "bench_op.py").touch()
    (tmp_path / "bench").mkdir()
    journals = []

    def supervise(start, journal, limit, log, on_event, faults):
        journals.append(journal.path.name)
        on_event({"event": "kernel", "row": {"pass": len(journals)}})
        on_event({"event": "finish", "id": "ceiling before", "verdict": "passed", "reason": "", "ceiling": "{}"})
        on_event({"event": "finish", "id": "op/N=1 [x]", "verdict": "passed", "reason": "", "sample": f'{{"pass": {len(journals)}}}'})
        return []

    monkeypatch.setattr(stage.sys, "argv", ["measure", "job.json"])
    monkeypatch.setattr(stage, "supervise", supervise)
    monkeypatch.setattr(stage.ahead, "start", lambda job: None)
    report = stage.measure(make_job("run-1", "cuda", (Stage.BENCH,), str(tmp_path), str(tmp_path), again=True))
    written = {path.name: path.read_text().splitlines() for path in (tmp_path / "bench").iterdir()}

    assert (report.verdict, report.counts, len(set(journals))) == (Verdict.PASSED, {"passed": 1}, 2)
    assert (written["samples.jsonl"], written["again.jsonl"]) == (['{"pass": 1}'], ['{"pass": 2}'])
    assert (written["ceilings.jsonl"], written["kernels.jsonl"]) == (["{}"], ['{"pass": 1}'])


@pytest.mark.parametrize("skip", [unittest.SkipTest, pytest.skip], ids=["unittest", "pytest"])
def test_a_point_that_skips_itself_is_not_run_and_no_failure(skip, timer, tmp_path):
    """A peer that does not take this size: in the report with the reason, and the sweep is as good as what was measured."""

    def refuses(N, provider):
        raise skip("Other refuses it: N is too large")

    samples = [stage._measure(point(function), timer) for function in (refuses, lambda N, provider: 1.0)]
    assert (samples[0].verdict, samples[0].reason, samples[0].value) == (Verdict.NOT_RUN, "Other refuses it: N is too large", None)

    sink = Sink(tmp_path, "samples.jsonl")
    for number, sample in enumerate(samples):
        fields = {"verdict": sample.verdict.value, "reason": sample.reason, "sample": to_json(sample)}
        sink.on_event({"event": "finish", "id": str(number), **fields})
    report = sink.report([])
    assert (report.verdict, report.reason, report.counts) == (Verdict.PASSED, "", {"passed": 1, "not-run": 1})


# Providers of one case take turns, so that whatever drifts hits them alike: on a clock of the test's own, without a GPU.


def in_turns(timer, monkeypatch, tmp_path, *functions):
    """Points of one case, measured together; returns their samples by provider and the journal's events."""
    journal = Journal(tmp_path / "journal.jsonl")
    together = [dataclasses.replace(point(function), provider=name) for name, function in functions]
    monkeypatch.setattr(results, "trouble", lambda: "")
    watch = SimpleNamespace(look=lambda: None, weakness=lambda *looks: "")
    stage._measure_in_turns(together, timer, watch, SimpleNamespace(), journal)
    events = journal.read()
    found = {event["id"].partition("[")[2][:-1]: json.loads(event["sample"]) for event in events if event["event"] == "finish"}
    return found, events


def author(timer, work, log=None):
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
    """An autotuner calls `do_bench` from within the first launch, and for another shape while the point's own events wait to be read."""
    tuned, calls, launches = [], [], itertools.count()

    def candidate():
        calls.append(1)
        device.work(3.0)

    def work():
        number = next(launches)
        if number == 0:
            tuned.append(timer.do_bench(candidate, quantiles=(0.5, 0.2, 0.8)))
        if number == 30:
            timer.do_bench(lambda: device.work(3.0))
        device.work(0.25)

    found, _ = in_turns(timer, monkeypatch, tmp_path, ("one", author(timer, work)))
    assert (tuned, len(calls)) == ([[3.0, 3.0, 3.0]], 10)  # compiled, looked at three times, warmed up, and one round of five
    assert sum(time != 0.25 for time in found["one"]["times_ms"]) == 1


# Several `perf_report`s in one file: each is a benchmark of its own, and a line of dtypes is no provider.

BENCH = """
import torch
from triton.testing import Benchmark, perf_report
def plot(arg, values, name="relu"):
    return Benchmark(x_names=["N"], x_vals=[8, 16], line_arg=arg, line_vals=values, line_names=list(map(str, values)), plot_name=name,
                     ylabel="GB/s", args={})
@perf_report(plot("provider", ["mine", "torch"]))
def forward(N, provider):
    return 1.0
@perf_report(plot("kind", [torch.float32, torch.bfloat16]))
def by_dtype(N, kind):
    return 1.0
@perf_report(plot("provider", ["mine", "torch"]))
def backward(N, provider):
    return 1.0
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    from warpwave.inside.benchmarks import load_module, points

    folder = tmp_path_factory.mktemp("package")
    (folder / "bench_relu.py").write_text(BENCH)
    job = make_job("r", "t", (), str(folder), str(folder))
    return list(points(load_module(folder / "bench_relu.py", folder), folder / "bench_relu.py", job))


def test_a_line_of_dtypes_is_a_parameter_of_the_kernels_own_provider(found):
    """The function still gets what its author wrote. Benchmarks with the same plot name are several, and no point is there twice."""
    import torch

    typed = [point for point in found if point.function.__name__ == "by_dtype"]

    assert {point.provider for point in found} == {"mine", "torch"}
    assert {(point.case, point.provider, point.params["dtype"]) for point in typed} == {
        (f"relu/by_dtype/{dtype}/N={size}", "mine", dtype) for dtype in ("fp32", "bf16") for size in (8, 16)
    }
    assert {point.arguments["kind"] for point in typed} == {torch.float32, torch.bfloat16}
    assert len({(point.case, point.provider) for point in found}) == len(found) == 12
    assert {point.case for point in found if point.function.__name__ == "backward"} == {"relu/backward/N=8", "relu/backward/N=16"}


# When a point has been measured enough, and which of its rounds count.


@pytest.mark.parametrize(("ms", "rep", "timings", "quiet"), [(0.5, 100, 10, True), (0.1, 1600, 33, True), (9.5, 100, 2, False)])
def test_a_quiet_point_ends_as_soon_as_that_is_known(device, timer, ms, rep, timings, quiet):
    """Five rounds of ten timings at 1 ms a repetition, of an eightieth of 1600 ms where that is more.

    At 10 ms a repetition the author's 100 ms are over before there are fifty timings, and nobody knows how quiet they are.
    """
    timer.do_bench(lambda: device.work(ms), warmup=25, rep=rep)

    assert (timer.last.rounds, timer.last.quiet, timer.last.discarded) == ((timings,) * 5, quiet, 0)


def test_a_noisy_point_takes_its_time_and_says_so(device, timer):
    """Timings that are all over the place: 100 ms of them, then it ends, and it is not called quiet."""
    draw = random.Random(1)
    timer.do_bench(lambda: device.work(draw.uniform(0.1, 0.9)), warmup=25, rep=100)

    assert 90 < sum(timer.last.times_ms) + 0.5 * len(timer.last.times_ms) < 120
    assert (timer.last.quiet, len(timer.last.rounds)) == (False, 10)


def test_first_rounds_are_discarded_by_rule(device, timer):
    """A clock that takes 40 ms to come up: the rounds until then are on record as discarded, but for the one in which it came."""
    timer.do_bench(lambda: device.work(0.2 if device.now > 40 else 0.4), warmup=0, rep=100)
    slow = sum(time > 0.3 for time in timer.last.times_ms)

    assert (timer.last.median_ms, timer.last.quiet) == (pytest.approx(0.2), True)
    assert slow < timer.last.rounds[0] < timer.last.discarded


@pytest.mark.parametrize(
    ("medians", "discarded"),
    [
        ([], 0),
        ([9.0, 1.0, 1.0, 1.0], 0),
        ([9.0, 1.0, 1.0, 1.0, 1.0], 1),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 0),
        ([2.0, 1.5, 1.0, 1.1, 0.9, 1.0], 2),
        ([2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0], 3),
        ([1.3, 1.2, 1.0, 0.9, 1.1, 1.0], 0),
        ([1.0, 2.0, 1.0, 0.9, 1.1, 1.0], 0),
        ([8.0, 7.5, 4.0, 3.0, 2.0, 1.0], 2),
    ],
)
def test_what_is_far_from_the_last_half_is_not_settled(medians, discarded):
    """Hand-worked: the last four, or half, from 0.9 to 1.1, say; settled is what lies within 0.7 and 1.3.

    Scatter alone discards next to nothing: of 2000 points of twenty rounds each, fewer than one round in a thousand.
    """
    draw = random.Random(3)

    assert unsettled(medians) == discarded
    assert sum(unsettled([draw.gauss(1, 0.1) for _ in range(20)]) for _ in range(2000)) < 40


def gathered(*medians):
    found = Gathered(Rule(target=0.01), cap_ms=1e6)
    ends = []
    for median in medians:
        found.add(Burst([median] * 10, 0, 0.0, 0.0, median, 10 * median))
        ends.append(found.enough)
    return ends


def test_the_interval_is_looked_at_twice_and_not_after_each_round():
    """After five rounds, and after eleven, whatever it looks like in between; from the second look follows how many there will be."""
    steady, wild = [1.0] * 5, [1.0, 1.1, 0.9, 1.05, 0.95]
    assert gathered(*steady) == [False] * 4 + [True]
    assert gathered(*wild, *[1.0] * 7) == [False] * 10 + [True, True]
    ends = gathered(*wild, *[1.02, 0.98] * 30)
    assert 11 < ends.index(True) < 60
    assert all(ends[ends.index(True) :])


@pytest.mark.parametrize("scatter", [0.005, 0.02, 0.04])
def test_stopping_by_rule_leaves_intervals_what_they_are(scatter):
    """Two measurements of the same code, each ended by the rule: the interval of their ratio misses 1 less than once in ten."""
    draw = random.Random(scatter)

    def measured():
        found = Gathered(Rule(), cap_ms=20.0)
        while not found.enough:
            found.add(Burst([draw.lognormvariate(0, scatter) for _ in range(60)], 0, 0.0, 0.0, 1 / 60, 1.0))
        return found.times_ms, [len(times) for times in found.kept]

    missed = 0
    for _ in range(300):
        (base, base_rounds), (head, head_rounds) = measured(), measured()
        interval = ratio_of_medians(base, head, (base_rounds, head_rounds))
        missed += not interval.low <= 1 <= interval.high
    assert missed / 300 < 0.1
