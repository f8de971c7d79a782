"""The timer that stands in for `do_bench`, on a clock of its own: what is timed, after which flushes, and with the host ahead."""

import contextlib
import itertools
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
torch = pytest.importorskip("torch")

from benching import FakeDevice

from warpwave.inside.bench.timing import Bursts, Rounds, Timer, quantile, touched
from warpwave.inside.scripts.hooks import Launched


def test_only_the_function_is_timed_and_every_repetition_is_flushed(device, timer):
    """The flush is outside of the timing. After the first call, also in the warm-up, work never follows work: the cache is cold."""
    assert timer.do_bench(lambda: device.work(0.25), return_mode="median") == 0.25
    assert set(timer.last.times_ms) == {0.25}
    assert device.log[0] == "work"
    assert device.log.count("work") > 5
    assert all(before == "flush" for before, step in zip(device.log, device.log[1:], strict=False) if step == "work")


class SlowHost(FakeDevice):
    """A device that cannot start what the host has not enqueued yet."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.host = 0.0
        monkeypatch.setattr("warpwave.inside.bench.timing.time.perf_counter", lambda: self.host / 1e3)

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


@pytest.mark.parametrize(
    ("host_ms", "device_ms", "rep"),
    [
        (2.0, 0.25, 100),  # flushes of half a millisecond go on until the host is ahead
        (1.0, 1.5, 200),  # what is timed keeps the device busy, too: one flush is enough
    ],
)
def test_the_device_does_not_wait_for_the_host(monkeypatch, host_ms, device_ms, rep):
    device = SlowHost(monkeypatch)
    timer = Timer(device, device.flush, 1 << 20)

    assert timer.do_bench(lambda: device.call(host_ms, device_ms), rep=rep, return_mode="median") == device_ms
    assert timer.last.host_ms == pytest.approx(host_ms)
    if device_ms > host_ms:
        assert set(timer.last.times_ms) == {device_ms}
        assert len("".join(step[0] for step in device.log).split("w")[-2]) == 1


def test_a_flush_of_microseconds_is_repeated_until_the_host_is_ahead(monkeypatch):
    """The smaller the cache, the shorter its flush: a backward takes the host a hundred of them."""
    device = SlowHost(monkeypatch)

    def flush():
        device.now = max(device.now, device.host) + 0.03

    timer = Timer(device, flush, 1 << 20)
    timer.do_bench(lambda: device.call(2.0, 0.25))

    assert max(timer.last.times_ms) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("host_ms", "rep", "most"), [(lambda call: 40.0 if call == 30 else 0.01, 400, 20), (lambda call: 0.1 if call % 3 else 4.0, 600, None)]
)
def test_what_had_the_device_wait_does_not_count(monkeypatch, host_ms, rep, most):
    """The host stops for 40 ms in the middle of a round: that timing is 40 ms, those after it may be behind, too, and none is kept.

    Or each third call takes it 4 ms, and its median says 0.1.
    """
    device = SlowHost(monkeypatch)
    timer = Timer(device, device.flush, 1 << 20)
    calls = itertools.count()
    timer.do_bench(lambda: device.call(host_ms(next(calls)), 0.25), warmup=0, rep=rep)

    assert timer.last.times_ms == pytest.approx([0.25] * len(timer.last.times_ms))
    assert 0 < timer.last.late < (most or len(timer.last.times_ms))
    assert len(timer.last.times_ms) + timer.last.late >= 50


def test_a_function_that_waits_for_the_device_is_not_waited_for_forever(monkeypatch):
    """A host that is never ahead costs ten milliseconds of flushes before a round and before each repetition, no more."""
    device = SlowHost(monkeypatch)

    def waits():
        device.call(100.0, 0.25)
        device.synchronize()

    Timer(device, device.flush, 1 << 20).do_bench(waits, rep=10)
    rounds = "".join(step[0] for step in device.log).split("w")
    assert len(rounds[-2]) == 40  # of half a millisecond, before a round of one


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
    made = Timer.when_used(False, None, lambda: known)
    made.begin()

    assert (made.flush_bytes, made.cache_bytes) == expected


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


@pytest.mark.parametrize("rounds", [None, Rounds()], ids=["by itself", "in rounds"])
def test_gradients_are_dropped_before_every_call(device, timer, rounds):
    """Warm-up and every round: a gradient that is there would be added to, and that takes longer. Such a call is not put into a graph."""
    seen, weight = [], SimpleNamespace(grad=None)

    def backward():
        seen.append(weight.grad)
        weight.grad = "the last call's"
        device.work(0.015)

    device.CUDAGraph = lambda: SimpleNamespace(replay=lambda: device.work(0.1))
    device.graph = lambda graph: contextlib.nullcontext()
    for _ in range(3 if rounds else 1):
        if rounds:
            timer.turn(rounds)
        timer.do_bench(backward, grad_to_none=[weight])

    assert len(seen) > 20
    assert set(seen) == {None}
    assert timer.last.graph_ms is None


def test_a_round_begins_with_twice_the_hosts_time_ahead(device):
    """A flush takes 0.5 ms: a host that needs 1 ms a call is ahead by 2 flushes more than a repetition has, with a margin of a fifth."""
    bursts = Bursts(device, device.flush)

    assert (bursts.flushes(1.0), bursts.lead(1.0)) == (3, 5)


def test_quantiles_agree_with_triton():
    """The same interpolation as `triton.testing`, whose function is private."""
    from triton.testing import _quantile

    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    assert [quantile(values, q) for q in (0, 0.2, 0.5, 0.8, 1)] == pytest.approx(_quantile(values, [0, 0.2, 0.5, 0.8, 1]))


# What a call gives to kernels, and what autotuners choose for it; and the products that speeds are shared against.


@pytest.fixture
def launch(monkeypatch):
    """What Triton calls for each launch, without a card."""
    from triton.runtime.jit import JITFunction

    monkeypatch.setattr(JITFunction, "run", lambda self, *args, **kwargs: None)
    return lambda *args, **kwargs: JITFunction.run(None, *args, grid=(1,), warmup=False, **kwargs)


def test_each_tensor_counts_once_and_with_what_it_has_in_memory(launch):
    """Twice given is once moved; an expanded tensor has one element in memory; numbers have none. Without a launch nothing is touched."""
    from triton.runtime.jit import JITFunction

    before = JITFunction.run
    x, y = torch.zeros(1000), torch.zeros(10, dtype=torch.bfloat16)
    with touched() as found:
        launch(x, 1000, y=y)
        launch(x, torch.zeros(1).expand(100))
    with touched() as nothing:
        pass
    launch(torch.zeros(8))

    assert (found.nbytes, nothing.nbytes) == (4000 + 20 + 4, None)
    assert JITFunction.run is before


def test_what_is_launched_is_noted_by_name(monkeypatch):
    """By its JIT, or as a kernel that was compiled before; each once, and an inner note does not hide from an outer one.

    What an autotuner chose is noted by the name of its kernel.
    """
    from triton.compiler import CompiledKernel
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    monkeypatch.setattr(JITFunction, "run", lambda self, *args, **kwargs: None)
    monkeypatch.setattr(CompiledKernel, "__getitem__", lambda self, grid: lambda *args: None)
    monkeypatch.setattr(Autotuner, "run", lambda self, *args, **kwargs: None)
    outer = Launched()
    with outer.noted(), touched() as found:
        JITFunction.run(SimpleNamespace(__name__="add_kernel"))
        JITFunction.run(SimpleNamespace(__name__="add_kernel"))
        CompiledKernel.__getitem__(SimpleNamespace(name="softmax_kernel"), (1,))()
        Autotuner.run(SimpleNamespace(base_fn=SimpleNamespace(__name__="add_kernel"), best_config="BLOCK: 64, num_warps: 4", fn=None))

    assert list(found.functions) == list(outer.names) == ["add_kernel", "softmax_kernel"]
    assert found.tuned == {"add_kernel": "BLOCK: 64, num_warps: 4"}


@pytest.mark.parametrize(("units", "measured"), [({"GB/s", "ms"}, 0), ({"TFLOP/s"}, 4)])
def test_products_are_measured_only_where_a_unit_counts_operations(monkeypatch, tmp_path, units, measured):
    """One that the card, or its library, does not have is a row that says so, and stops nothing."""
    import triton

    from warpwave.inside.bench import ceilings
    from warpwave.inside.process.journal import Journal

    def refuse(*arguments):
        raise RuntimeError("no fp8 here")

    timing = SimpleNamespace(median_ms=1.0, quantile_ms=lambda q: 1.0)
    timer = SimpleNamespace(last=timing, do_bench=lambda fn, **more: fn(), busy_s=lambda: 0.0)
    active = SimpleNamespace(get_active_torch_device=lambda: "cpu")
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(ceilings, "_SIDE", 8)
    monkeypatch.setattr(ceilings, "_SIDE_FP32", 8)
    monkeypatch.setattr(ceilings, "_time_fp8", refuse)
    monkeypatch.setattr(ceilings, "accelerator", lambda: None)
    precision = torch.get_float32_matmul_precision()
    ceilings.product_ceilings(Journal(tmp_path / "journal.jsonl"), timer, units, set())
    text = (tmp_path / "journal.jsonl").read_text() if (tmp_path / "journal.jsonl").exists() else ""
    ended = [event for event in map(json.loads, text.splitlines()) if event["event"] == "finish"]
    found = [json.loads(event["ceiling"]) for event in ended if "ceiling" in event]

    assert len(found) == measured
    assert {entry["dtype"] for entry in found} == ({"bf16", "fp16", "tf32", "fp32"} if measured else set())
    assert all(entry["flops"] == 2 * 8**3 for entry in found)
    assert [event["reason"] for event in ended if "ceiling" not in event] == (["RuntimeError: no fp8 here"] if measured else [])
    assert torch.get_float32_matmul_precision() == precision
