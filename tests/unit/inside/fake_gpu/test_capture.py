"""What a card refuses while a graph is captured: whatever makes the host wait for the card."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

from warpwave.inside.fake_gpu.redirect import Redirect
from warpwave.inside.fake_gpu.streams import DEFAULT, Event, Graph, Stream, capture, graphed, seeding, wait
from warpwave.inside.fake_gpu.torch_device import CardGenerator
from warpwave.records import Stage


@pytest.fixture(autouse=True)
def card():
    with Redirect(torch.device("cpu"), ["cuda"], torch.device("cuda", 0)):
        yield


def recorded():
    event = Event()
    event.record()
    return event


WAITS = {
    "item": lambda x, host: x.sum().item(),
    "cpu": lambda x, host: x.cpu(),
    "to": lambda x, host: x.to("cpu"),
    "tolist": lambda x, host: x.tolist(),
    "bool": lambda x, host: bool(x[0] > 0),
    "float": lambda x, host: float(x[0]),
    "nonzero": lambda x, host: x.nonzero(),
    "where": lambda x, host: torch.where(x > 0),
    "mask": lambda x, host: x[x > 0],
    "equal": lambda x, host: torch.equal(x, x + 1),
    "allclose": lambda x, host: torch.allclose(x, x + 1),
    "repeat": lambda x, host: torch.repeat_interleave(x, x.long()),
    "bincount": lambda x, host: torch.bincount(x.long()),
    "inverse": lambda x, host: torch.linalg.inv(x.diag()),
    "print": lambda x, host: str(x),
    "from pageable memory": lambda x, host: host.cuda(),
    "copy from the host": lambda x, host: x.copy_(host),
    "copy to the host": lambda x, host: host.copy_(x),
    "from a list": lambda x, host: torch.tensor([1.0], device="cuda"),
    "the device": lambda x, host: wait(),
    "the stream": lambda x, host: Stream.current().synchronize(),
    "an event of the capture": lambda x, host: recorded().synchronize(),
    "the time between two": lambda x, host: recorded().elapsed_time(recorded()),
}
RIGHT = {
    "copy on the card": lambda x, host: x.clone().copy_(x),
    "repeat, whose size is known": lambda x, host: torch.repeat_interleave(x, x.long(), output_size=4),
    "index": lambda x, host: x[torch.arange(2, device="cuda")],
    "masked_fill": lambda x, host: x.masked_fill(x > 0, 0.0),
    "the host's numbers": lambda x, host: (host.sum().item(), host[host > 0], host.tolist(), bool(host[0] > 0)),
    "from pinned memory": lambda x, host: x.copy_(host.pin_memory(), non_blocking=True),
    "zeros": lambda x, host: torch.zeros(3, device="cuda") + 1.0,
    "detached": lambda x, host: x.detach().to(torch.float16).to("cuda"),
}


@pytest.mark.parametrize("name", WAITS)
def test_refuses_to_wait_for_the_card_in_a_capture_only(name):
    x, host = torch.ones(4, device="cuda"), torch.ones(4)
    WAITS[name](x, host)
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"), capture(Graph()):
        WAITS[name](x, host)
    WAITS[name](x, host)


@pytest.mark.parametrize("name", RIGHT)
def test_captures_what_the_card_does_alone(name):
    x, host = torch.ones(4, device="cuda"), torch.ones(4)
    with capture(Graph()):
        RIGHT[name](x, host)


@pytest.mark.parametrize("begin", [lambda graph: capture(graph).__enter__(), Graph.capture_begin], ids=["with", "begin"])
def test_no_capture_begins_within_another(begin):
    """The outer capture fails, too. After that, its graph may be captured again."""
    x, outer = torch.ones(4, device="cuda"), Graph()
    with capture(outer), pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        begin(Graph())
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        outer.replay()
    with capture(outer):
        y = x + 1
    outer.replay()

    assert y.tolist() == [2.0] * 4


def test_a_capture_needs_a_stream_of_its_own_and_a_beginning():
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        Graph().capture_begin()
    with pytest.raises(RuntimeError, match="Capture must end on the same stream"):
        Graph().capture_end()
    x, graph = torch.ones(4, device="cuda"), Graph()
    with Stream():
        graph.capture_begin()
        y = x + 1
        graph.capture_end()
    graph.replay()

    assert y.tolist() == [2.0] * 4


def test_a_graph_is_captured_once_before_it_is_replayed():
    x, graph = torch.ones(4, device="cuda"), Graph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with capture(graph):
        y = x + 1
    graph.replay()
    with pytest.raises(RuntimeError, match="already owns a captured graph"), capture(graph):
        pass
    graph.replay()
    assert y.tolist() == [2.0] * 4
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with capture(graph):
        y -= 1


def recorded_on(stream):
    event = Event()
    event.record(stream)
    return event


# What a side stream does in a capture on `main`: all as on an H200 (2026-11-30, torch 2.11).
SIDE = {
    "apart": ((lambda main, side: 0, lambda main, side: 0), "it uses a stream that waits for none of the capture"),
    "joined, not forked": ((lambda main, side: main.wait_stream(side), lambda main, side: 0), "it waits for what is not captured"),
    "an event of before": ((lambda main, side: main.wait_event(BEFORE), lambda main, side: 0), "it waits for what is not captured"),
    "never joined": ((lambda main, side: side.wait_stream(main), lambda main, side: 0), "capturing stream has unjoined work"),
    "joined too early": (
        (lambda main, side: (side.wait_stream(main), main.wait_stream(side)), lambda main, side: 0),
        "capturing stream has unjoined work",
    ),
    "the default stream": ((lambda main, side: DEFAULT.wait_stream(main), lambda main, side: 0), "the default stream waits"),
    "asked": ((lambda main, side: side.query(), lambda main, side: 0), "operation not permitted when stream is capturing"),
    "forked and joined": ((lambda main, side: side.wait_stream(main), lambda main, side: main.wait_stream(side)), ""),
    "by events": (
        (lambda main, side: side.wait_event(main.record_event()), lambda main, side: recorded_on(side).wait(main)),
        "",
    ),
}
BEFORE = recorded_on(Stream())


@pytest.mark.parametrize("name", SIDE)
def test_a_side_stream_waits_for_the_capture_and_is_waited_for(name):
    (fork, join), words = SIDE[name]
    x, side, graph, main = torch.ones(4, device="cuda"), Stream(), Graph(), Stream()

    def captured():
        with capture(graph, stream=main):
            fork(main, side)
            with side:
                y = x + 1
            join(main, side)
            return y

    if words:
        with pytest.raises(RuntimeError, match=words):
            captured()
        assert Graph.capturing == []
        return
    y = captured()
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [6.0] * 4


def test_streams_that_join_each_other_are_joined():
    x, first, second, main = torch.ones(4, device="cuda"), Stream(), Stream(), Stream()
    with capture(Graph(), stream=main):
        first.wait_stream(main)
        second.wait_stream(main)  # and does nothing
        with first:
            y = x + 1
        second.wait_stream(first)
        main.wait_stream(second)
    graph = Graph()
    with main:
        graph.capture_begin()
        first.wait_stream(main)
        with first:
            y + 1
        second.wait_stream(first)
        with pytest.raises(RuntimeError, match="unjoined work"):
            graph.capture_end()


def test_the_default_stream_works_at_once_in_a_capture():
    x, graph = torch.ones(4, device="cuda"), Graph()
    with capture(graph), DEFAULT:
        y = x + 1
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [2.0] * 4


def test_a_generator_gets_no_other_seed_in_a_capture():
    generator = CardGenerator(torch.device("cuda", 0))
    seeding(CardGenerator.manual_seed, generator, 3)
    with capture(Graph()):
        seeding(CardGenerator.manual_seed, generator, 3)
        for new in ([4], []):
            with pytest.raises(RuntimeError, match="only when no stream is capturing"):
                seeding(CardGenerator.manual_seed, generator, *new)
    assert generator.initial_seed() == 3


@pytest.mark.parametrize("is_module", [False, True])
def test_a_graphed_callable_returns_the_same_memory_each_time(is_module):
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x * 2, {"sum": x.sum()}

    x = torch.ones(4, device="cuda", requires_grad=True)
    double = graphed(Twice() if is_module else Twice().forward, (x,))
    first, _ = double(x)
    second, more = double(x + 1)

    assert first.data_ptr() == second.data_ptr()
    assert (first.tolist(), more["sum"].item()) == ([4.0] * 4, 8.0)
    second.sum().backward()
    assert x.grad.tolist() == [2.0] * 4
    with pytest.raises(RuntimeError, match="must match"):
        double(torch.ones(3, device="cuda"))
    if is_module:
        double.eval()
        assert double(x)[0].data_ptr() != first.data_ptr()


@pytest.mark.parametrize("is_backward", [False, True])
def test_a_graphed_callable_is_captured(is_backward):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 0.5 if is_backward else x * x.max().item()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * gradient.max().item()

    x = torch.ones(4, device="cuda", requires_grad=True)
    graphed(lambda x: x * 2, (x,))
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        graphed(Halved.apply, (x,))


TESTS = """
import pytest, torch, triton, triton.language as tl
@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
def doubled(x):
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y := torch.empty_like(x), x.numel())
    return y
@pytest.mark.parametrize("before, within", [([70], 70), ([], 71), ([72], 73)])
def test_tuned(before, within):
    for size in before:
        doubled(torch.ones(size, device="cuda"))
    x = torch.ones(within, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        doubled(x)
def test_graphed():
    torch.cuda.make_graphed_callables(doubled, (torch.ones(74, device="cuda"),))
def test_timed():
    x = torch.ones(8, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        triton.testing.do_bench(lambda: x + 1)
"""


def test_what_is_timed_in_a_capture_is_refused(run_inside, tmp_path):
    """An autotuner times a kernel at its first call with a key. `make_graphed_callables` makes each call before it captures it."""
    (tmp_path / "test_a.py").write_text(TESTS)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = [json.loads(line) for line in (output / "test" / "journal.jsonl").read_text().splitlines()]
    found = {each["id"].partition("::test_")[2]: each["outcome"] for each in events if each["event"] == "finish"}

    assert found == {
        **{"tuned[before0-70]": "passed", "tuned[before1-71]": "failed", "tuned[before2-73]": "failed"},
        **{"graphed": "passed", "timed": "failed"},
    }
