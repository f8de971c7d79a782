"""The bench stage, without a GPU: the timer on a clock of its own, and the sweep's book-keeping around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.inside import measure
from harness.inside.benches import Point
from harness.inside.supervise import Journal
from harness.inside.timer import Timer, quantile
from harness.records import Job, Stage, Verdict

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


REPOSITORY = Path(__file__).parents[2]
# What the JIT says of a pointer on 16 bytes, to less than 2 GiB, on AMD.
WIDE_POINTER = "tt.divisibility=16,tt.pointer_range=32"


class FakeDevice:
    """Events on a clock that only work moves: what a GPU's timeline looks like to the timer."""

    def __init__(self):
        self.now = 0.0
        self.log = []
        device = self

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self):
                self.at = device.now

            def elapsed_time(self, end):
                return end.at - self.at

        self.Event = Event

    def synchronize(self):
        pass

    def flush(self):
        self.now += 0.5
        self.log.append("flush")

    def work(self, milliseconds):
        self.now += milliseconds
        self.log.append("work")


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def timer(device):
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

    def synchronize(self):
        self.host = max(self.host, self.now)

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


def test_a_function_that_waits_for_the_device_is_not_waited_for_forever(monkeypatch):
    """A host that is never ahead costs sixteen flushes a round, no more."""
    device = SlowHost(monkeypatch)

    def waits():
        device.call(100.0, 0.25)
        device.synchronize()

    Timer(device, device.flush, 1 << 20).do_bench(waits, rep=10)
    rounds = "".join(step[0] for step in device.log).split("w")
    assert len(rounds[-2]) == 16


def test_repetitions_fill_the_time_asked_for(device, timer):
    """`rep` milliseconds include the flush: 100 ms at 2 ms a round are 50 timings, after 25 ms of warm-up."""
    timer.do_bench(lambda: device.work(1.5), warmup=25, rep=100)

    assert (len(timer.last.times_ms), timer.last.warmup) == (50, 12)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"quantiles": [0.5, 0.2, 0.8]}, [3.0, 1.8, 4.2]),
        ({"quantiles": [0.5]}, 3.0),
        ({"return_mode": "mean"}, 3.0),
        ({"return_mode": "min"}, 1.0),
        ({"return_mode": "max"}, 5.0),
        ({"return_mode": "all"}, [1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_returns_what_do_bench_returns(device, timer, arguments, expected):
    """Five repetitions of 1, 2, 3, 4, 5 ms, in every form that an author may ask for; hand-worked."""
    calls = iter([1.0] * 4 + [1.0] + [1.0, 2.0, 3.0, 4.0, 5.0])
    result = timer.do_bench(lambda: device.work(next(calls)), warmup=0, rep=0, **arguments)

    assert result == pytest.approx(expected)


def test_quantiles_agree_with_triton():
    """The same interpolation as `triton.testing`, whose function is private."""
    from triton.testing import _quantile

    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    assert [quantile(values, q) for q in (0, 0.2, 0.5, 0.8, 1)] == pytest.approx(_quantile(values, [0, 0.2, 0.5, 0.8, 1]))


def point(function, unit="GB/s"):
    return Point("add/N=8", "add", "triton", unit, {"N": 8}, function, {"N": 8, "provider": "triton"})


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
    monkeypatch.setattr(measure.Timer, "on_active_device", lambda quick: Timer(device, device.flush, 1 << 20))
    monkeypatch.setattr(measure, "_ceiling", lambda *arguments: None)
    monkeypatch.setattr(measure, "card_here", lambda: None)
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
measure.Timer.on_active_device = classmethod(lambda cls, quick: Once(None, None, 0))
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

    def supervise(start, journal, limit, log, on_event):
        journals.append(journal.path.name)
        on_event({"event": "kernel", "row": {"pass": len(journals)}})
        on_event({"event": "finish", "id": "ceiling before", "verdict": "passed", "reason": "", "ceiling": "{}"})
        on_event({"event": "finish", "id": "op/N=1 [x]", "verdict": "passed", "reason": "", "sample": f'{{"pass": {len(journals)}}}'})
        return []

    monkeypatch.setattr(measure, "supervise", supervise)
    report = measure.measure(Job("run-1", "cuda", (Stage.BENCH,), str(tmp_path), str(tmp_path), again=True))
    written = {path.name: path.read_text().splitlines() for path in (tmp_path / "bench").iterdir()}

    assert (report.verdict, report.counts, len(set(journals))) == (Verdict.PASSED, {"passed": 1}, 2)
    assert (written["samples.jsonl"], written["again.jsonl"]) == (['{"pass": 1}'], ['{"pass": 2}'])
    assert (written["ceilings.jsonl"], written["kernels.jsonl"]) == (["{}"], ['{"pass": 1}'])
