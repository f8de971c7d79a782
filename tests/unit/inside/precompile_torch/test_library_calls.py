"""What a sweep calls of torch's operators is noted on tensors without data, and called in another process while the card records."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="the inside needs torch and triton; `nox -s tests` installs them")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from harness.inside.precompile_torch import plans
from harness.inside.precompile_torch.library_calls import LibraryCalls, calls


def noted(function, *shapes, device="cuda"):
    """Return the lines that `function` leaves on tensors without data."""
    with FakeTensorMode(), LibraryCalls() as found:
        function(*(torch.empty(*shape, device=device, dtype=torch.bfloat16) for shape in shapes))
    return list(found.lines)


def test_a_call_is_made_again_with_the_same_shapes_strides_and_types():
    lines = noted(lambda a, b: (torch.mm(a, b.t()), torch.mm(a, b.t())), (3, 8), (5, 8))
    assert len(lines) == 1
    made = []

    def make(size, stride, dtype, device):
        made.append((size, stride, dtype, device))
        return torch.ones(size, dtype=dtype).as_strided(size, stride) if size == [3, 8] else torch.ones(5, 8, dtype=dtype).t()

    (call,) = calls([*lines, *lines], make)
    assert torch.equal(call(), torch.full((3, 5), 8.0, dtype=torch.bfloat16))
    assert made == [([3, 8], [8, 1], torch.bfloat16, "cuda"), ([8, 5], [1, 8], torch.bfloat16, "cuda")]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: x + 1, [(4, 4)]),  # an element-wise loop
        (lambda x: x.view(16), [(4, 4)]),
        (lambda x: torch.cat([x, x]), [(1 << 15, 1 << 14)]),  # returns two GiB
    ],
)
def test_what_waits_for_no_library_or_takes_much_memory_is_not_noted(function, shapes):
    assert noted(function, *shapes) == []


def test_what_the_host_computes_is_not_noted():
    assert noted(torch.mm, (4, 4), (4, 4), device="cpu") == []


def test_options_come_back_as_they_were():
    (line,) = noted(lambda x: torch.sum(x, 1, dtype=torch.float32), (4, 8))
    (call,) = calls([line], lambda size, stride, dtype, device: torch.ones(size, dtype=dtype))
    assert call().dtype is torch.float32


@pytest.mark.parametrize(
    "change",
    [{"op": "mine::launch"}, {"op": "aten::no_such_operator"}, {"overload": "none"}, {"args": None, "op": 3}],
)
def test_a_line_of_no_operator_of_torch_is_left_out(change):
    (line,) = noted(torch.mm, (4, 4), (4, 4))
    assert list(calls([json.dumps(json.loads(line) | change), "no json"], torch.empty)) == []


class Card:
    """torch's module for a device that records graphs, as `plans` uses it. It computes on the host, and notes what happens."""

    def __init__(self):
        self.seen = []
        self.CUDAGraph = lambda: self
        self.Stream = lambda: "stream"
        self.stream = lambda stream: __import__("contextlib").nullcontext()
        self.tunable = SimpleNamespace(is_enabled=lambda: False)

    def synchronize(self):
        self.seen.append("synchronize")

    def empty_cache(self):
        self.seen.append("empty_cache")

    def capture_begin(self, capture_error_mode):
        self.seen.append(f"begin {capture_error_mode}")

    def capture_end(self):
        self.seen.append("end")


@pytest.fixture
def card(monkeypatch):
    found = Card()
    monkeypatch.setattr(plans, "accelerator", lambda: ("cpu", found))
    monkeypatch.setattr(plans._Memory, "tensor", lambda self, size, stride, dtype, device: torch.ones(size, dtype=dtype))
    return found


def test_nothing_is_called_unless_the_card_records(card, monkeypatch):
    """Also if the call fails, in which case the next one is planned all the same."""
    lines = [*noted(torch.mm, (4, 4), (4, 4)), *noted(lambda x: torch.softmax(x, -1), (4, 4))]
    within = []
    monkeypatch.setattr(plans.Call, "__call__", lambda self: within.append(card.seen[-1]) or 1 / (len(within) - 1))
    assert plans.plan(lines) == 1
    assert within == ["begin relaxed"] * 2
    assert card.seen.count("end") == 2
    assert card.seen[-2:] == ["synchronize", "empty_cache"]


def test_a_call_of_a_backward_pass_is_made_in_one(card):
    """A plan is kept by the thread that made it."""
    line = json.loads(noted(torch.mm, (4, 4), (4, 4))[0])
    seen = []
    for in_backward in (False, True):
        (call,) = calls([json.dumps(line | {"in_backward": in_backward})], torch.ones)
        call._op = lambda *args: seen.append(torch._C._current_graph_task_id() != -1)
        call._args = []
        plans._record(call, card, "stream", plans._Memory(torch.empty(1)))
    assert seen == [False, True]


def test_libraries_that_choose_by_time_are_left_alone(card, monkeypatch):
    """Their candidates would be timed while nothing runs, and the wrong one be kept."""
    lines = noted(torch.mm, (4, 4), (4, 4))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert plans.plan(lines) == 0
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    card.tunable.is_enabled = lambda: True
    assert plans.plan(lines) == 0
    assert card.seen == []
