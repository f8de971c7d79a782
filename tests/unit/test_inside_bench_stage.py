"""The bench stage, without a GPU: the timer on a clock of its own, and the sweep's book-keeping around it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

import pytest
from benching import FakeDevice, point

from harness.inside import measure
from harness.inside.bursts import Burst
from harness.inside.conditions import Watch
from harness.inside.rounds import Gathered, Rule, unsettled
from harness.inside.sink import Sink
from harness.inside.supervise import Journal
from harness.inside.timer import Timer, quantile
from harness.records import Job, Stage, Verdict, to_json
from harness.stats import ratio_of_medians
from harness.targets import load_targets

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


REPOSITORY = Path(__file__).parents[2]
# What the JIT says of a pointer on 16 bytes, to less than 2 GiB, on AMD.
WIDE_POINTER = "tt.divisibility=16,tt.pointer_range=32"


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def timer(device, monkeypatch):
    """Of a host that takes no time: it is ahead however busy this machine is."""
    monkeypatch.setattr("harness.inside.timer.time.perf_counter", lambda: 0.0)
    return Timer(device, device.flush, 1 << 20)


def test_only_the_function_is_timed(device, timer):
    """The flush before each repetition is outside of its timing."""
    assert timer.do_bench(lambda: device.work(0.25), return_mode="median") == 0.25
    assert set(timer.last.times_ms) == {0.25}


def test_every_repetition_is_flushed_the_warm_up_too(device, timer):
    """After the first call, work never follows work: the cache is cold each time."""
    timer.do_bench(lambda: device.work(1.0))

    assert device.log[0] == "work"
    assert device.log.count("work") > 5
    assert all(before == "flush" for before, step in zip(device.log, device.log[1:], strict=False) if step == "work")


class SlowHost(FakeDevice):
    """A device that cannot start what the host has not enqueued yet."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.host = 0.0
        monkeypatch.setattr("harness.inside.timer.time.perf_counter", lambda: self.host / 1e3)

        record = self.Event.record

        def not_before_the_host(event, stream=None):
            self.now = max(self.now, self.host)
            record(event)

        self.Event.record = not_before_the_host

    def synchronize(self):
        self.host = max(self.host, self.now)

    def flush(self):
        self.now = max(self.now, self.host)
        super().flush()

    def call(self, host_ms, device_ms):
        self.host += host_ms
        self.now = max(self.now, self.host)
        self.work(device_ms)


def test_the_device_does_not_wait_for_the_host(monkeypatch):
    """Two milliseconds of the host for a quarter of the device's: flushes of half a millisecond go on until the host is ahead."""
    device = SlowHost(monkeypatch)
    timer = Timer(device, device.flush, 1 << 20)

    assert timer.do_bench(lambda: device.call(2.0, 0.25), return_mode="median") == 0.25
    assert timer.last.host_ms == pytest.approx(2.0)


def test_a_flush_of_microseconds_is_repeated_until_the_host_is_ahead(monkeypatch):
    """The smaller the cache, the shorter its flush: a backward takes the host a hundred of them."""
    device = SlowHost(monkeypatch)

    def flush():
        device.now = max(device.now, device.host) + 0.03

    timer = Timer(device, flush, 1 << 20)
    timer.do_bench(lambda: device.call(2.0, 0.25))

    assert max(timer.last.times_ms) == pytest.approx(0.25)


def test_what_is_timed_keeps_the_device_busy_too(monkeypatch):
    """One millisecond of the host's for 1.5 of the device's: one flush is enough, and still none of its time is waiting."""
    device = SlowHost(monkeypatch)
    timer = Timer(device, device.flush, 1 << 20)

    assert timer.do_bench(lambda: device.call(1.0, 1.5), rep=200, return_mode="median") == 1.5
    assert set(timer.last.times_ms) == {1.5}
    rounds = "".join(step[0] for step in device.log).split("w")
    assert len(rounds[-2]) == 1


def test_what_had_the_device_wait_does_not_count(monkeypatch):
    """The host stops for 40 ms in the middle of a round: that timing is 40 ms, those after it may be behind, too, and none is kept."""
    device = SlowHost(monkeypatch)
    timer = Timer(device, device.flush, 1 << 20)
    calls = itertools.count()
    timer.do_bench(lambda: device.call(40.0 if next(calls) == 30 else 0.01, 0.25), warmup=0, rep=400)

    assert timer.last.times_ms == pytest.approx([0.25] * len(timer.last.times_ms))
    assert 0 < timer.last.late < 20
    assert len(timer.last.times_ms) + timer.last.late >= 50


def test_a_host_that_cannot_be_relied_on_has_late_timings_and_no_wrong_ones(monkeypatch):
    """Each third call takes it 4 ms, and its median says 0.1."""
    device = SlowHost(monkeypatch)
    timer = Timer(device, device.flush, 1 << 20)
    calls = itertools.count()
    timer.do_bench(lambda: device.call(0.1 if next(calls) % 3 else 4.0, 0.25), warmup=0, rep=600)

    assert timer.last.times_ms == pytest.approx([0.25] * len(timer.last.times_ms))
    assert 0 < timer.last.late < len(timer.last.times_ms)


def test_a_function_that_waits_for_the_device_is_not_waited_for_forever(monkeypatch):
    """A host that is never ahead costs ten milliseconds of flushes before a round and before each repetition, no more."""
    device = SlowHost(monkeypatch)

    def waits():
        device.call(100.0, 0.25)
        device.synchronize()

    Timer(device, device.flush, 1 << 20).do_bench(waits, rep=10)
    rounds = "".join(step[0] for step in device.log).split("w")
    assert len(rounds[-2]) == 40  # of half a millisecond, before a round of one


def test_a_quiet_point_ends_as_soon_as_that_is_known(device, timer):
    """Five rounds of ten timings at 1 ms a repetition, of an eightieth of 1600 ms where that is more."""
    timer.do_bench(lambda: device.work(0.5), warmup=25, rep=100)
    assert (timer.last.rounds, timer.last.quiet, timer.last.discarded) == ((10,) * 5, True, 0)

    timer.do_bench(lambda: device.work(0.1), warmup=25, rep=1600)
    assert (timer.last.rounds, timer.last.quiet, timer.last.discarded) == ((33,) * 5, True, 0)


def test_a_slow_point_has_five_rounds_and_no_more(device, timer):
    """At 10 ms a repetition the author's 100 ms are over before there are fifty timings, and nobody knows how quiet they are."""
    timer.do_bench(lambda: device.work(9.5), warmup=25, rep=100)
    assert (timer.last.rounds, timer.last.quiet) == ((2,) * 5, False)


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
def test_what_lies_far_from_the_last_half_is_not_settled(medians, discarded):
    """Hand-worked: the last four, or half, from 0.9 to 1.1, say; settled is what lies within 0.7 and 1.3."""
    assert unsettled(medians) == discarded


def test_scatter_alone_discards_next_to_nothing():
    """Of 2000 points of twenty rounds each: fewer than one round in a thousand."""
    draw = random.Random(3)

    assert sum(unsettled([draw.gauss(1, 0.1) for _ in range(20)]) for _ in range(2000)) < 40


def gathered(*medians):
    """Rounds of ten equal timings each, in ms."""
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"quantiles": [0.5, 0.2, 0.8]}, [3.0, 1.8, 4.2]),
        ({"quantiles": [0.5]}, 3.0),
        ({"return_mode": "mean"}, 3.0),
        ({"return_mode": "min"}, 1.0),
        ({"return_mode": "max"}, 5.0),
        ({"return_mode": "all"}, [3.0, 1.0, 5.0, 2.0, 4.0]),
    ],
)
def test_returns_what_do_bench_returns(device, timer, arguments, expected):
    """Five rounds of one repetition, of 1 to 5 ms, in every form that an author may ask for; hand-worked."""
    calls = iter([1.0] * 5 + [3.0, 1.0, 5.0, 2.0, 4.0])
    result = timer.do_bench(lambda: device.work(next(calls)), warmup=0, rep=0, **arguments)

    assert result == pytest.approx(expected)


# --- the flush, graphs, conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "known", "expected"),
    [
        (60 << 20, 0, (120 << 20, 60 << 20)),  # the driver tells the last level
        (4 << 20, 256 << 20, (512 << 20, 256 << 20)),  # there is one behind it
        (60 << 20, None, (512 << 20, None)),  # a card that targets.yml does not name
        (200 << 20, None, (800 << 20, None)),
    ],
)
def test_the_flush_is_twice_the_last_level_cache(monkeypatch, told, known, expected):
    """And on record beside it, so that the margin is."""
    import torch

    properties = SimpleNamespace(L2_cache_size=told)
    active = SimpleNamespace(
        get_device_interface=lambda: SimpleNamespace(get_device_properties=lambda index: properties),
        get_current_device=lambda: 0,
        get_active_torch_device=lambda: torch.device("meta"),
    )
    monkeypatch.setattr("triton.runtime.driver", SimpleNamespace(active=active))
    made = Timer.on_active_device(cache_bytes=known)

    assert (made.flush_bytes, made.cache_bytes) == expected


def test_the_job_knows_the_caches_that_no_driver_tells():
    """By the card's name; None where it does not know the card."""
    cards = load_targets()["rocm"].architectures
    job = Job("run-1", "rocm", (Stage.BENCH,), "", "", architectures=cards)
    found = [measure.hidden_cache(job, SimpleNamespace(name=name)) for name in ("gfx942", "gfx90a", "gfx1250")]

    assert found == [256 << 20, 0, None]


def test_short_launches_are_replayed_from_a_graph(device, timer):
    """Twenty in one, without flush and host: 5 us each where a launch took 15. A longer one is not, nor what cannot be captured."""

    class Graph:
        def replay(self):
            device.work(20 * 0.005)

    device.CUDAGraph, device.graph = Graph, lambda graph: contextlib.nullcontext()
    timer.do_bench(lambda: device.work(0.015))
    short = timer.last
    timer.do_bench(lambda: device.work(0.03))
    long = timer.last
    device.graph = None
    timer.do_bench(lambda: device.work(0.015))

    assert (short.graph_ms, long.graph_ms, timer.last.graph_ms) == (pytest.approx(0.005), None, None)
    assert short.median_ms == pytest.approx(0.015)


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
def test_a_card_that_was_not_left_alone_makes_a_point_weak(changes, words):
    """Seen before or after."""
    card = Card()
    watch = Watch(card)
    first = watch.look()
    for name, value in changes.items():
        setattr(card, name, value)
    second = watch.look()

    assert (watch.weakness(first, second), watch.weakness(first)) == (words, "")


def test_a_card_that_tells_nothing_makes_nothing_weak(device):
    """No clock to wait for and no memory to look at."""
    watch = Watch(device)

    assert watch.weakness(watch.look(), watch.look()) == ""


def test_quantiles_agree_with_triton():
    """The same interpolation as `triton.testing`, whose function is private."""
    from triton.testing import _quantile

    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    assert [quantile(values, q) for q in (0, 0.2, 0.5, 0.8, 1)] == pytest.approx(_quantile(values, [0, 0.2, 0.5, 0.8, 1]))


def test_a_sample_carries_the_authors_number_and_the_raw_timings(device, timer):
    """Bytes follow from the author's GB/s and the time it was computed from: 96 bytes in 0.25 ms."""

    def author(N, provider):
        ms, low, high = timer.do_bench(lambda: device.work(0.25), quantiles=[0.5, 0.2, 0.8])
        return tuple(12 * N / t * 1e-6 for t in (ms, high, low))

    sample = measure._measure(point(author), timer)

    assert (sample.verdict, sample.bytes_moved, sample.median_ms) == (Verdict.PASSED, 96, 0.25)
    assert sample.value == pytest.approx(96 / 0.25 * 1e-6)
    assert sample.flush_bytes == 1 << 20
    assert len(sample.times_ms) > 5


@pytest.mark.parametrize(
    ("returned", "verdict", "words"),
    [(float("nan"), Verdict.INVALID, "nan"), (float("inf"), Verdict.INVALID, "inf"), (None, Verdict.INVALID, "None")],
)
def test_what_is_no_number_is_invalid(timer, returned, verdict, words):
    """Never 0.0, never a gap."""
    sample = measure._measure(point(lambda N, provider: returned), timer)

    assert (sample.verdict, words in sample.reason, sample.value) == (verdict, True, None)


def test_an_author_who_raises_is_a_row(timer):
    """The error's type and first line are the reason."""

    def author(N, provider):
        raise RuntimeError("shape mismatch\nmore")

    sample = measure._measure(point(author), timer)

    assert (sample.verdict, sample.reason) == (Verdict.ERROR, "RuntimeError: shape mismatch")


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
    monkeypatch.setattr(measure.Timer, "on_active_device", lambda *told: Timer(device, device.flush, 1 << 20))
    monkeypatch.setattr(measure, "_ceiling", lambda *arguments: None)
    monkeypatch.setattr(measure, "card_here", lambda: SimpleNamespace(name="sm_90"))
    monkeypatch.setattr(measure, "Recorder", lambda card, journal: SimpleNamespace())
    monkeypatch.setattr("triton.testing.do_bench", None)
    measure.work(Job("run-1", "cuda", (Stage.BENCH,), str(package), str(tmp_path)))
    finished = [event for event in journal.read()[2:] if event["event"] == "finish"]

    assert [event["id"] for event in finished] == ["op/N=3 [triton]"]
    assert json.loads(finished[0]["sample"])["value"] == 24.0
    assert journal.read()[-1]["event"] == "end"


def test_what_the_jit_compiles_for_a_point_is_recorded(tmp_path, data):
    """A bench on a card, here a pretended one: rows with the point as their origin, and the card under the name of its architecture."""
    program = f"""
from pathlib import Path
from harness.inside import measure
from harness.inside.pretend import call_once, pretended_device
from harness.inside.timer import Timer, Timing
from harness.records import Job, Stage
from harness.targets import load_targets

class Once(Timer):
    def do_bench(self, fn, **options):
        self.last = Timing((1.0,), 0, 0, 1.0, 0.0)
        return call_once(fn, **options)

card = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
measure.Timer.on_active_device = classmethod(lambda cls, *told: Once(None, None, 0))
measure._ceiling, measure.is_usable = lambda *arguments: None, lambda: True
with pretended_device(card, lambda binary: (32, 0, 1024)):
    measure.work(Job("run-1", "rocm", (Stage.BENCH,), {str(data / "limits")!r}, {str(tmp_path)!r}))
"""
    journal = tmp_path / "journal.jsonl"
    variables = {"WARPWAVE_JOURNAL": str(journal), "TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [event["row"] for event in Journal(journal).read() if event["event"] == "kernel"]

    assert {row["architecture"] for row in rows} == {"gfx942"}
    after = next(row for row in rows if row["origin"] == "limits/N=65536 [after]")
    assert (after["function"], after["verdict"], after["attributes"]["x_ptr"]) == ("copy_kernel", "passed", WIDE_POINTER)
    assert len(after["binary_hash"]) == 64


def test_the_ceiling_is_a_copy_well_past_the_caches(monkeypatch, tmp_path, device, timer):
    """4 GiB moved where there is room for it, less on a small card, and the size is on record."""
    import torch

    card = SimpleNamespace(mem_get_info=lambda: (1 << 20, 1 << 30), empty_cache=lambda: None)
    monkeypatch.setattr(measure, "accelerator", lambda: ("card", card))
    monkeypatch.setattr("triton.runtime.driver", SimpleNamespace(active=SimpleNamespace(get_active_torch_device=lambda: "cpu")))
    journal = Journal(tmp_path / "journal.jsonl")
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: device.work(2.0))
    measure._ceiling(journal, timer, "before", set())
    record = json.loads(journal.read()[-1]["ceiling"])

    assert (record["bytes_moved"], record["median_ms"], record["when"]) == (1 << 19, 2.0, "before")


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

    monkeypatch.setattr(measure.sys, "argv", ["measure", "job.json"])
    monkeypatch.setattr(measure, "supervise", supervise)
    monkeypatch.setattr(measure.ahead, "start", lambda job: None)
    report = measure.measure(Job("run-1", "cuda", (Stage.BENCH,), str(tmp_path), str(tmp_path), again=True))
    written = {path.name: path.read_text().splitlines() for path in (tmp_path / "bench").iterdir()}

    assert (report.verdict, report.counts, len(set(journals))) == (Verdict.PASSED, {"passed": 1}, 2)
    assert (written["samples.jsonl"], written["again.jsonl"]) == (['{"pass": 1}'], ['{"pass": 2}'])
    assert (written["ceilings.jsonl"], written["kernels.jsonl"]) == (["{}"], ['{"pass": 1}'])


@pytest.mark.parametrize("skip", [unittest.SkipTest, pytest.skip], ids=["unittest", "pytest"])
def test_a_point_that_skips_itself_is_not_run_and_no_failure(skip, timer, tmp_path):
    """A peer that does not take this size: in the report with the reason, and the sweep is as good as what was measured."""

    def refuses(N, provider):
        raise skip("Other refuses it: N is too large")

    samples = [measure._measure(point(function), timer) for function in (refuses, lambda N, provider: 1.0)]
    assert (samples[0].verdict, samples[0].reason, samples[0].value) == (Verdict.NOT_RUN, "Other refuses it: N is too large", None)

    sink = Sink(tmp_path, "samples.jsonl")
    for number, sample in enumerate(samples):
        fields = {"verdict": sample.verdict.value, "reason": sample.reason, "sample": to_json(sample)}
        sink.on_event({"event": "finish", "id": str(number), **fields})
    report = sink.report([])
    assert (report.verdict, report.reason, report.counts) == (Verdict.PASSED, "", {"passed": 1, "not-run": 1})
