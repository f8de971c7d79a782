"""The bench stage, without a GPU: what a sweep keeps of each point, and what makes a point weak, skipped or wrong."""

from __future__ import annotations

import json
import os
import unittest
from pathlib import Path
from types import SimpleNamespace

import command
import pytest
from benching import FakeDevice, point

from warpwave.config.targets import load_targets
from warpwave.inside.bench import ceilings, stage
from warpwave.inside.bench.ceilings import Watch
from warpwave.inside.bench.results import Sink
from warpwave.inside.bench.timing import Timer
from warpwave.inside.benchmarks import Point
from warpwave.inside.process.journal import Journal
from warpwave.records import Job, Stage, Verdict, to_json

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


REPOSITORY = Path(__file__).parents[4]
# What the JIT says of a pointer on 16 bytes, to less than 2 GiB, on AMD.
WIDE_POINTER = "tt.divisibility=16,tt.pointer_range=32"


def test_the_job_knows_the_caches_that_no_driver_tells():
    """By the card's name; None where it does not know the card."""
    cards = load_targets()["rocm"].architectures
    job = Job("run-1", "rocm", (Stage.BENCH,), "", "", architectures=cards)
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


@pytest.mark.parametrize(
    ("returned", "verdict", "words"),
    [(float("nan"), Verdict.INVALID, "nan"), (float("inf"), Verdict.INVALID, "inf"), (None, Verdict.INVALID, "None")],
)
def test_what_is_no_number_is_invalid(timer, returned, verdict, words):
    """Never 0.0, never a gap."""
    sample = stage._measure(point(lambda N, provider: returned), timer)

    assert (sample.verdict, words in sample.reason, sample.value) == (verdict, True, None)


def test_an_author_who_raises_is_a_row(timer):
    """The error's type and first line are the reason."""

    def author(N, provider):
        raise RuntimeError("shape mismatch\nmore")

    sample = stage._measure(point(author), timer)

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
    monkeypatch.setattr(stage.Timer, "when_used", lambda *told: Timer(device, device.flush, 1 << 20))
    monkeypatch.setattr(stage, "copy_ceiling", lambda *arguments: None)
    monkeypatch.setattr(stage, "card_here", lambda known: SimpleNamespace(name="sm_90"))
    monkeypatch.setattr(stage, "Recorder", lambda card, journal, root: SimpleNamespace())
    monkeypatch.setattr("triton.testing.do_bench", None)
    stage.work(Job("run-1", "cuda", (Stage.BENCH,), str(package), str(tmp_path)))
    finished = [event for event in journal.read()[2:] if event["event"] == "finish"]

    assert [event["id"] for event in finished] == ["op/N=3 [triton]"]
    assert json.loads(finished[0]["sample"])["value"] == 24.0
    assert journal.read()[-1]["event"] == "end"


def test_what_the_jit_compiles_for_a_point_is_recorded(tmp_path, data):
    """A bench on a card, here a pretended one: rows with the point as their origin, and the card under the name of its architecture."""
    program = f"""
from pathlib import Path
from warpwave.inside.bench import stage
from warpwave.inside.fake_gpu.card import call_once, pretended_device
from warpwave.inside.bench.timing import Timer, Timing
from warpwave.records import Job, Stage
from warpwave.config.targets import load_targets

class Once(Timer):
    def do_bench(self, fn, **options):
        self.last = Timing((1.0,), 0, 0, 1.0, 0.0)
        return call_once(fn, **options)

card = next(card for card in load_targets()["cpu"].architectures if card.name == "gfx942")
stage.Timer.when_used = classmethod(lambda cls, *told: Once(object(), None, 0))
stage.copy_ceiling, stage.is_usable = lambda *arguments: None, lambda: True
with pretended_device(card, lambda binary: (32, 0, 1024)):
    stage.work(Job("run-1", "rocm", (Stage.BENCH,), {str(data / "limits")!r}, {str(tmp_path)!r}))
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
    """4 GiB moved where there is room for it, less on a small card, and the size is on record."""
    import torch

    card = SimpleNamespace(mem_get_info=lambda: (1 << 20, 1 << 30), empty_cache=lambda: None)
    monkeypatch.setattr(ceilings, "accelerator", lambda: ("card", card))
    monkeypatch.setattr("triton.runtime.driver", SimpleNamespace(active=SimpleNamespace(get_active_torch_device=lambda: "cpu")))
    journal = Journal(tmp_path / "journal.jsonl")
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: device.work(2.0))
    ceilings.copy_ceiling(journal, timer, "before", set())
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

    monkeypatch.setattr(stage.sys, "argv", ["measure", "job.json"])
    monkeypatch.setattr(stage, "supervise", supervise)
    monkeypatch.setattr(stage.ahead, "start", lambda job: None)
    report = stage.measure(Job("run-1", "cuda", (Stage.BENCH,), str(tmp_path), str(tmp_path), again=True))
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
