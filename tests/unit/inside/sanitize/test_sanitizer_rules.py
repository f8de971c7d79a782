"""The rules behind the sanitizer's findings: what conflicts, what orders, what counts as written, and where an index is."""

import dataclasses
import json

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")


import os
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import command
import numpy as np
import torch

from warpwave.collect import collect
from warpwave.inside.fake_gpu.emulated_findings import Given, at, finding
from warpwave.inside.sanitize import on_card, races
from warpwave.inside.sanitize.memory import Block, Lanes, Memory, Shadows
from warpwave.inside.sanitize.races import NOTHING, Access, Log, Order, is_before
from warpwave.records import Defect, Stage, Verdict

MEMORY = Memory(4096, 4096)
CODE = compile("", "kernel.py", "exec")


def access(program, offsets, *, writes=False, atomic=False, changed=None, size=4, segment=None, seen=NOTHING):
    """What a program does to some bytes of one storage; by default in its own order, and with other values than were there."""
    block = Block((CODE, 1), "", None, (len(offsets),), size)
    lanes = Lanes(block, MEMORY, np.array(offsets, np.uint64), min(offsets), max(offsets) + size - 1)
    changes = None if changed is None else np.array(changed)
    segment = program if segment is None else segment
    return Access(program, (program, 0, 0), segment, seen, lanes, writes, atomic, changes)


def conflicts(*accesses):
    log = Log()
    found = [conflict for each in accesses for conflict in log.add(each)]
    return [(each.first.program, each.second.program) for each in (*found, *log.close())]


RIGHT = {
    "both read": [access(0, [0]), access(1, [0])],
    "apart": [access(0, [0, 4], writes=True), access(1, [8], writes=True)],
    "interleaved": [access(0, [0, 8], writes=True), access(1, [4, 12], writes=True)],
    "one program": [access(0, [0], writes=True), access(0, [0]), access(0, [0], writes=True)],
    "the same value": [access(0, [0], writes=True), access(1, [0], writes=True, changed=[False])],
    "its own copy of the same value": [access(0, [0], writes=True), access(1, [0], writes=True, changed=[False]), access(1, [0])],
    "both atomic": [access(0, [0], writes=True, atomic=True), access(1, [0], writes=True, atomic=True)],
    "ordered": [access(0, [0], writes=True, segment=3), access(1, [0], segment=5, seen={0: 3})],
}
WRONG = {
    "write and read": [access(0, [0], writes=True), access(1, [0])],
    "read and write": [access(0, [0]), access(1, [0], writes=True)],
    "two writes": [access(0, [0], writes=True), access(1, [0], writes=True, changed=[True])],
    "a part of it": [access(0, [0], writes=True, size=8), access(1, [4])],
    "a plain one and an atomic": [access(0, [0], writes=True), access(1, [0], writes=True, atomic=True)],
    "an atomic and a plain one": [access(0, [0], writes=True, atomic=True), access(1, [0])],
    "ordered too early": [access(0, [0], writes=True, segment=3), access(1, [0], segment=5, seen={0: 2})],
    "a copy of one of two": [access(0, [0, 4], writes=True), access(1, [0], writes=True, changed=[False]), access(1, [0, 4])],
    "a second reader": [access(0, [0]), access(1, [0]), access(1, [0], writes=True)],
}


@pytest.mark.parametrize("name", RIGHT)
def test_no_conflict(name):
    assert conflicts(*RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_conflict_is_found_once(name):
    assert conflicts(*WRONG[name]) == [(0, 1)]


def test_what_a_relaxed_atomic_saw_is_ordered_by_a_later_one_that_acquires_there():
    order = Order(2)
    order.release(["flag"], 0)
    order.begin()
    order.hear(["flag"], order.published(["flag"]))
    order.acquire_heard(["other"])
    assert not is_before(order.seen, 0, 0)

    order.acquire_heard(["flag"])
    assert is_before(order.seen, 0, 0)

    order.begin()
    order.acquire_heard(["flag"])
    assert not is_before(order.seen, 0, 0)


@pytest.mark.parametrize(("confirmed", "wrong"), [([0, 4], False), ([0], True)])
def test_a_swap_confirms_what_its_program_has_read(confirmed, wrong):
    """`atomic_cas` compares with it, and tries again if another program was faster; where it does not, the read is one as any."""
    log, found = Log(), []
    for program in (0, 1):
        found += log.add(access(program, [0, 4]))
        log.confirm(program, np.array(confirmed, np.uint64))
        found += log.add(access(program, [0, 4], writes=True, atomic=True))

    assert bool([*found, *log.close()]) == wrong


@pytest.mark.parametrize(("line", "wrong"), [(1, False), (2, True)])
def test_a_read_where_others_swap_may_see_that_there_is_nothing_to_swap(line, wrong):
    log = Log()
    found = [*log.add(access(0, [0]))]
    log.confirm(0, np.array([0], np.uint64))
    found += log.add(access(0, [0], writes=True, atomic=True))
    read = access(1, [0])
    block = dataclasses.replace(read.lanes.block, place=(CODE, line))
    found += log.add(dataclasses.replace(read, lanes=dataclasses.replace(read.lanes, block=block)))

    assert bool([*found, *log.close()]) == wrong


@pytest.mark.parametrize("name", [*RIGHT, *WRONG])
def test_a_log_that_is_full_finds_the_same(name, monkeypatch):
    """Its accesses are decided at once, and who touched what is kept."""
    accesses = (RIGHT | WRONG)[name]
    expected = conflicts(*accesses)
    monkeypatch.setattr(races, "_MOST_BYTES", 0)

    assert conflicts(*accesses) == expected


def test_a_release_orders_only_who_acquires_at_the_same_address():
    """And what the one that released had acquired itself."""
    order = Order(3)
    order.begin()
    first = order.segment
    order.release([8], 0)
    order.begin()
    order.acquire(order.published([8]))
    second = order.segment
    order.release([16], 1)
    order.begin()

    assert order.published([8]) == {0: first}
    assert order.published([16]) == {0: first, 1: second}
    assert order.published([24]) == {}
    assert order.seen == {}


def shadow_after(*calls):
    """The marks of a tensor of four elements after some calls of torch, as `Redirect` reports them; None if all count as written."""
    shadows, tensor = Shadows(), torch.empty(4)
    shadows.called(torch.empty, (4,), {}, tensor)
    for call in calls:
        call(shadows, tensor)
    shadow = shadows.of(tensor.untyped_storage())
    return None if shadow is None else shadow.marks.tolist()


def called(function, *more, view=lambda tensor: tensor):
    return lambda shadows, tensor: shadows.called(function, (view(tensor), *more), {}, None)


def test_what_counts_as_written():
    """A fill writes its view, harmless calls nothing, and any other call all that it is given."""
    assert shadow_after() == [False] * 4
    assert shadow_after(called(torch.Tensor.view, -1), called(torch.Tensor.size)) == [False] * 4
    assert shadow_after(called(torch.Tensor.fill_, 1.0, view=lambda tensor: tensor[1:3])) == [False, True, True, False]
    assert shadow_after(called(torch.Tensor.data_ptr)) is None
    assert shadow_after(called(torch.Tensor.__setitem__, 0, 1.0)) == [True, False, False, False]
    assert shadow_after(called(torch.Tensor.copy_, torch.ones(2), view=lambda tensor: tensor[::2])) == [True, False, True, False]
    assert shadow_after(called(torch.Tensor.scatter_, 0, 1, 1.0)) is None
    assert shadow_after(lambda shadows, tensor: shadows.called(torch.nn.init.normal_, (), {"tensor": tensor}, tensor)) is None
    assert shadow_after(lambda shadows, tensor: shadows.called(torch.add, (torch.ones(4), 1), {"out": tensor}, tensor)) == [True] * 4
    half = shadow_after(lambda shadows, tensor: shadows.called(torch.add, (torch.ones(2), 1), {"out": tensor[:2]}, tensor))
    assert half == [True, True, False, False]


def test_the_next_owner_of_an_address_is_not_blamed():
    """A shadow belongs to its storage, not to the address."""
    shadows, tensor = Shadows(), torch.empty(1 << 20)
    shadows.called(torch.empty, (1 << 20,), {}, tensor)
    address = tensor.data_ptr()
    del tensor
    others = [torch.zeros(1 << 20) for _ in range(3)]

    assert all(shadows.of(other.untyped_storage()) is None for other in others), address


@pytest.mark.parametrize(
    ("shape", "strides", "element", "flat", "indices"),
    [
        ((1000,), (1,), 1000, 1000, (1000,)),
        ((4, 100), (100, 1), 400, 400, (4, 0)),
        ((4, 100), (100, 1), -1, -1, (-1, 99)),
        ((100, 4), (1, 100), 205, 22, (5, 2)),
        ((4, 50), (100, 2), 102, 51, (1, 1)),
        ((), (), 1, 1, (1,)),
        ((1, 8), (8, 1), 9, 9, (0, 9)),
    ],
)
def test_an_index_is_that_of_the_tensor_as_it_is_stepped_through(shape, strides, element, flat, indices):
    """Beyond its end, the dimension with the largest stride runs on."""
    tensor = torch.empty(1000).as_strided(shape, strides)
    assert Given("x", tensor).index(tensor.data_ptr() + 4 * element) == (flat, indices)


@pytest.mark.parametrize(
    ("shape", "strides", "nbytes", "address", "size", "where", "words"),
    [
        ((97,), (1,), 388, 384, 8, "load past the end of x, of shape [97]", "bytes 4 to 7 of its 8 are outside"),
        ((64,), (0,), 4, 4, 4, "load past the end of x, of shape [64]", "the tensor has strides [0] and 4 bytes"),
        ((97,), (1,), 388, 388, 4, "load of x[97], of shape [97]", ""),
    ],
)
def test_an_access_outside_says_what_its_index_does_not(shape, strides, nbytes, address, size, where, words):
    """No element that exists is said to be outside."""
    tensor = torch.empty(nbytes // 4).as_strided(shape, strides)
    owner, place = Given("x", tensor), tensor.data_ptr() + address
    known = {"function": "kernel", "defect": Defect.OUT_OF_BOUNDS, "access": "load", "file": "kernel.py", "line": 1, "program": (0, 0, 0)}
    found = finding(**known, **at(owner, place), other=owner.beyond(place, size))

    assert found.other == words
    assert words in found.sentence
    assert found.example.startswith(f"{where}: ")


# A value that nobody wrote is a fault where a kernel uses it, and none where it is dropped.


@pytest.fixture
def blamed(monkeypatch):
    """A function that loads four values, of which nobody wrote the last two, and the builder; the positions that were reported."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    from warpwave.inside.sanitize.memory import patches, suspected

    found = []
    for owner, name, replacement in list(patches(interpreter.InterpreterBuilder)):
        monkeypatch.setattr(owner, name, replacement)
    value = interpreter.TensorHandle(np.arange(4, dtype=np.float32), tl.float32)
    loaded = suspected(value, [(np.array([2, 3]), lambda positions: found.extend(positions.tolist()), False)])

    def choice(*kept):
        return interpreter.TensorHandle(np.array([position in kept for position in range(4)]), tl.int1)

    return loaded, value, choice, interpreter.InterpreterBuilder(), found


@pytest.mark.parametrize(("kept", "reported"), [((0, 1), []), ((0, 3), [3]), ((0, 1, 2, 3), [2, 3]), ((), [])])
def test_what_a_choice_keeps_is_reported_once_it_is_used(blamed, kept, reported):
    """On either side of the choice, and after a conversion."""
    import triton.language as tl

    loaded, other, choice, builder, found = blamed
    converted = builder.create_fp_trunc(loaded, tl.float16)
    chosen = builder.create_select(choice(*kept), converted, builder.create_fp_trunc(other, tl.float16))

    assert found == []
    assert chosen.data.tolist() == [0, 1, 2, 3]
    assert found == reported
    found.clear()
    builder.create_select(choice(*(set(range(4)) - set(kept))), other, loaded).data.sum()
    assert found == reported


def test_any_other_use_reports_all_at_once(blamed):
    """And only the first."""
    loaded, other, choice, builder, found = blamed
    negative = builder.create_fsub(other, loaded)
    builder.create_select(choice(0, 1), negative, other).data.sum()
    assert found == []
    builder.create_exp(loaded)
    builder.create_exp(loaded)

    assert found == [2, 3]


def test_a_load_beyond_the_end_is_reported_at_any_use(blamed):
    """Not even a choice that drops it helps: a card loads it. A conversion alone is no use."""
    import numpy as np
    import triton.language as tl

    from warpwave.inside.sanitize.memory import suspected

    _, other, choice, builder, found = blamed
    beyond = suspected(other, [(np.array([1]), lambda positions: found.extend(positions.tolist()), True)])
    converted = builder.create_fp_trunc(beyond, tl.float16)
    assert found == []
    builder.create_select(choice(0), converted, builder.create_fp_trunc(other, tl.float16))
    builder.create_fadd(converted, converted)

    assert found == [1]


# What torch reads of memory that nobody wrote is reported; what copies it, chooses from it or uses a part of it is not.

TESTS = """
import pytest, torch, triton, triton.language as tl
import torch.nn.functional as F
import unittest

@triton.jit
def ones(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 1.0, mask=i < n)

@triton.jit
def into_two(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(tl.where(i < n, x + i, y + (i - n)), 1.0, mask=i < 2 * n)

def made(how="empty"):
    card = torch.zeros(1, device="cuda")
    x = {
        "empty": lambda: torch.empty(17, device="cuda"),
        "empty_like": lambda: torch.empty_like(torch.ones(17, device="cuda")),
        "new_empty": lambda: card.new_empty(17),
        "new": lambda: card.new(17),
        "empty_strided": lambda: torch.empty_strided((17,), (2,), device="cuda"),
        "resize_": lambda: torch.empty(0, device="cuda").resize_(17),
        "FloatTensor": lambda: torch.cuda.FloatTensor(17),
        "int32": lambda: torch.empty(17, device="cuda", dtype=torch.int32),
    }[how]()
    ones[(1,)](x, 16 * x.stride(0), BLOCK=32)
    return x

class Partial(torch.autograd.Function):  # its gradient has 16 elements
    @staticmethod
    def forward(ctx, x): return x * 2

    @staticmethod
    def backward(ctx, gradient): return made()

class Kept(Partial):
    @staticmethod
    def backward(ctx, gradient):
        ctx.kept = made()  # so it is copied where it is accumulated
        return ctx.kept

def grad(use, times=1):
    x = torch.ones(17, device="cuda").requires_grad_()
    for _ in range(times):
        use(x).sum().backward()
    return x.grad

WRITTEN = torch.arange(17, device="cuda") < 16
ROWS = torch.ones(17, 2, device="cuda")
PLACES = torch.tensor([3, 15], device="cuda")

@pytest.mark.parametrize("how", ["empty", "empty_like", "new_empty", "new", "empty_strided", "resize_", "FloatTensor", "int32"])
def test_wrong_made(how): partial = made(how); partial.sum()

@pytest.mark.parametrize("read", WRONG_ONES)
def test_wrong(read): eval(read, globals(), {"x": made()})

@pytest.mark.parametrize("use", RIGHT_ONES)
def test_right(use): eval(use, globals(), {"x": made()})

@pytest.mark.parametrize("read", ["not torch.isinf(x).any()", "x.sum()"])
def test_wrong_on_the_default_device(read):
    torch.set_default_device("cuda")
    try:
        assert eval(read, {"torch": torch, "x": made()})
    finally:
        torch.set_default_device(None)

class Wrong(unittest.TestCase):
    def test_wrong_in_unittest(self):
        torch.testing.assert_close(made(), torch.ones(17, device="cuda"))

def test_right_capture_that_reads_what_it_has_written():
    x, y = torch.ones(17, device="cuda"), torch.empty(17, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y[:16].copy_(x[:16])
        y[16:].zero_()
        total = y.sum()
    graph.replay()
    assert total.item() == 16

def test_right_kernel_that_chooses_between_tensors():
    x, y = torch.empty(16, device="cuda"), torch.empty(16, device="cuda")
    into_two[(1,)](x, y, 16, BLOCK=32)
    assert x.sum() + y.sum() == 32
"""
WRONG_TORCH_READS = """
x.sum()
[y := torch.empty(17, device="cuda"), ones[(1,)](y, 16, BLOCK=32).name, y.sum()]
torch.max(x)
1 + x
x * 2.0
x @ x
x.add_(1)
x == 3
x < 0
torch.softmax(x, 0)
F.relu(x)
torch.isclose(x, x)
torch.testing.assert_close(x, x, equal_nan=True)
torch.allclose(x, x)
x[16].item()
x.tolist()
bool((x > 0).all())
(x > 5).any()
100 // made("int32")
x.count_nonzero()
x.requires_grad_().sum().backward()
x.clone().sum()
x.cpu().sum()
x.half().mean()
torch.cat([x, x]).sum()
x.flip(0).cumsum(0)
F.pad(x, (0, 3)).sum()
x[None].expand(3, -1).reshape(-1).sum()
torch.zeros(17, device="cuda").copy_(x).sum()
[y := torch.zeros(20, device="cuda"), y.__setitem__(slice(0, 17), x), y.sum()]
torch.where(~WRITTEN, x, 0.0).sum()
(x * WRITTEN).sum()
(x * 2)[15:].sum()
x.split(16)[1].sum()
torch.sum(x, 0, out=torch.empty((), device="cuda"))
[y := torch.empty(2, 17, device="cuda"), torch.add(ROWS[:, 0], 1, out=y[0]), y.sum()]
[x.index_copy_(0, PLACES, ROWS[:2, 0]), x.sum()]
[x.index_fill_(0, PLACES, 3.0), x.sum()]
[x.index_put_((PLACES,), ROWS[:2, 0]), x.sum()]
[x.index_put_((PLACES + 1,), ROWS[:2, 0], accumulate=True), x.sum()]
[x.scatter_(0, PLACES, 1.0), x.sum()]
[x.scatter_(0, PLACES, ROWS[:, 0]), x.sum()]
[x.scatter_add_(0, PLACES + 1, ROWS[:, 0]), x.sum()]
[x.masked_fill_(WRITTEN, 2.0), x.sum()]
[x.masked_scatter_(WRITTEN, ROWS[:, 0]), x.sum()]
[x.put_(PLACES, ROWS[:2, 0]), x.sum()]
[y := torch.empty(3, 3, device="cuda"), y.fill_diagonal_(1.0), y.sum()]
[y := torch.empty(3, 17, device="cuda"), y.index_copy_(0, PLACES[1:] - 15, ROWS[:, 0][None]), y[:2].sum()]
[y := torch.empty(17, device="cuda"), y.index_copy_(0, torch.arange(17, device="cuda"), x), y.sum()]
torch.index_copy(x, 0, PLACES, ROWS[:2, 0]).sum()
x.masked_scatter(WRITTEN, ROWS[:, 0]).sum()
[y := torch.zeros(17, device="cuda"), y.__iadd__(x), y.sum()]
[y := torch.ones(17, device="cuda"), y.lerp_(x, 0.5), y.sum()]
[y := torch.ones(17, device="cuda"), y.index_add_(0, torch.arange(17, device="cuda"), x), y.sum()]
[y := torch.empty(68, device="cuda", dtype=torch.uint8), y.view(torch.float32).index_copy_(0, PLACES, ROWS[:2, 0]), y.sum()]
[y := torch.empty(68, device="cuda", dtype=torch.uint8), y.view(torch.float32)[:16].fill_(1), y.sum()]
[y := torch.empty(17, device="cuda"), y.view(torch.uint8)[:8].zero_(), y.sum()]
[y := torch.empty(17, device="cuda"), y.view(torch.uint8)[:8].zero_(), y.view(torch.int16)[:5].sum()]
[y := torch.empty(68, device="cuda", dtype=torch.uint8), ones[(1,)](y.view(torch.float32), 16, BLOCK=32), y.sum()]
[y := torch.empty(17, device="cuda"), ones[(1,)](y.view(torch.int16), 31, BLOCK=32), y[15].item()]
[y := torch.ones(3, device="cuda"), y.fill_(x[16]), y.sum()]
[y := torch.ones(17, device="cuda"), torch._foreach_add_([y, y], [y, x]), y.sum()]
[y := torch.ones(17, device="cuda"), torch._foreach_mul([y, x], 2.0)[1].sum()]
[y := torch.ones(17, device="cuda"), torch._foreach_copy_([y], [x]), y.sum()]
[y := torch.ones(17, device="cuda"), y.resize_(18), y.sum()]
[x[16:].fill_(0), x.resize_(18), x.sum()]
torch.empty(17, device="cuda").mul_(0)
x.mul_(WRITTEN)
grad(Partial.apply).sum()
grad(Partial.apply, times=2).sum()
grad(Kept.apply).sum()
grad(lambda x: Partial.apply(x) + x).sum()
grad(lambda x: Partial.apply(x.exp())).sum()
grad(lambda x: Partial.apply(x[None].expand(3, -1)[0])).sum()
""".strip().splitlines()
RIGHT_TORCH_READS = """
x[:16].sum()
x[:16].view(4, 4).sum(1)
x.clone()[:16].sum()
(x * 2)[:16].sum()
torch.where(WRITTEN, x, 0.0).sum()
x.masked_fill(~WRITTEN, 0).sum()
x[WRITTEN].sum()
[x[16:].fill_(0), x.sum()]
[x.__setitem__(16, 3.0), x.sum()]
[x.copy_(torch.ones(17, device="cuda")), x.sum()]
[x[16:].view(torch.uint8).zero_(), x.sum()]
[y := torch.empty(68, device="cuda", dtype=torch.uint8), y.view(torch.float32)[:16].fill_(1), y[:64].sum()]
[y := torch.empty(68, device="cuda", dtype=torch.uint8), ones[(1,)](y.view(torch.float32), 16, BLOCK=32), y[:64].sum()]
[y := torch.empty(17, device="cuda"), ones[(1,)](y.view(torch.int16), 32, BLOCK=32), y[:16].view(torch.uint8).sum()]
[y := torch.ones(3, device="cuda"), y.fill_(x[15]), y.sum()]
[y := torch.ones(17, device="cuda"), torch._foreach_add_([y, y], [y, x]), y[:16].sum()]
[y := torch.ones(17, device="cuda"), torch._foreach_add_([y], [y]), y.sum()]
[y := torch.ones(17, device="cuda"), y.resize_(18), y[:17].sum()]
[y := torch.ones(17, device="cuda"), y.resize_(3), y.sum()]
grad(Partial.apply)
grad(Partial.apply, times=2)[:16].sum()
grad(Kept.apply)[:16].sum()
grad(lambda x: Partial.apply(x) + x)[:16].sum()
grad(lambda x: Partial.apply(x.exp()))[:16].sum()
grad(lambda x: Partial.apply(x)[:16])[:16].sum()
grad(lambda x: torch.where(WRITTEN, Partial.apply(x), 0.0))[:16].sum()
grad(lambda x: torch.where(WRITTEN, Partial.apply(torch.where(WRITTEN, x, 0.0)), 0.0)).sum()
[y := torch.empty(0, device="cuda").resize_(17), ones[(1,)](y, 17, BLOCK=32), y.sum()]
[x.zero_(), x.sum()]
[x.scatter_(0, torch.tensor([16], device="cuda"), 1.0), x.sum()]
[x.index_copy_(0, PLACES + 1, ROWS[:2, 0]), x.sum()]
[x.index_fill_(0, PLACES + 1, 3.0), x.sum()]
[x.index_put_((PLACES + 1,), ROWS[:2, 0]), x.sum()]
[x.index_put_((~WRITTEN,), ROWS[0, 0]), x.sum()]
[x.scatter_(0, PLACES + 1, ROWS[:, 0]), x.sum()]
[x.masked_fill_(~WRITTEN, 2.0), x.sum()]
[x.masked_scatter_(~WRITTEN, ROWS[:, 0]), x.sum()]
[x.put_(PLACES + 1, ROWS[:2, 0]), x.sum()]
[x.index_add_(0, PLACES, ROWS[:2, 0]), x[:16].sum()]
[x.scatter_reduce_(0, PLACES + 1, ROWS[:2, 0], "sum", include_self=False), x.sum()]
[x.index_copy_(0, PLACES, ROWS[:2, 0]), x[:16].sum()]
[y := torch.empty(17, device="cuda"), y.index_copy_(0, torch.arange(17, device="cuda"), ROWS[:, 0]), y.sum()]
[y := torch.zeros(17, device="cuda"), y.index_copy_(0, PLACES, x[PLACES]), y.sum()]
[y := torch.empty(2, 17, device="cuda"), y.index_fill_(0, PLACES // 14, 1.0), y.sum()]
[y := torch.zeros(17, device="cuda"), y.__iadd__(x), y[:16].sum()]
[y := torch.ones(16, device="cuda"), y.index_add_(0, torch.arange(16, device="cuda"), x[:16]), y.sum()]
x.clone()
[x.shape, x.dtype, x.data_ptr(), print(x)]
x.cpu().numpy()[:16].sum()
torch.testing.assert_close(x[:16], torch.ones(16, device="cuda"))
torch.addmm(x[None].expand(17, 17), ROWS, ROWS.t(), beta=0).sum()
torch.empty(0, device="cuda").sum()
torch.empty(5, device="cuda").normal_().sum()
torch.nn.init.xavier_uniform_(torch.empty(5, 5, device="cuda")).sum()
torch.nn.Linear(4, 4, device="cuda")(torch.ones(1, 4, device="cuda")).sum()
[y := torch.empty(17, device="cuda"), torch.add(ROWS[:, 0], 1, out=y), y.sum()]
[torch.ones_like(x).sum(), torch.rand_like(x).sum()]
torch.stack([x, ROWS[:, 0]]).sum(1)[1].item()
ones[(1,)](x * 2, 16, BLOCK=32)
""".strip().splitlines()


def test_what_torch_reads(run_inside, tmp_path):
    text = TESTS.replace("WRONG_ONES", repr(WRONG_TORCH_READS)).replace("RIGHT_ONES", repr(RIGHT_TORCH_READS))
    (tmp_path / "test_a.py").write_text(text)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = map(json.loads, (output / "test" / "journal.jsonl").read_text().splitlines())
    outcomes = {event["id"].partition("::test_")[2]: event for event in events if event["event"] == "finish"}
    silent = [name for name, event in outcomes.items() if name.startswith("wrong") and "uninitialised-read" not in event["message"]]
    alarms = {name: event["message"] for name, event in outcomes.items() if name.startswith("right") and event["outcome"] != "passed"}

    assert (silent, alarms) == ([], {})
    assert len(outcomes) == len(WRONG_TORCH_READS) + len(RIGHT_TORCH_READS) + 13
    expected = "uninitialised-read in torch.sum at test_a.py:55: reads partial[16], of shape [17], which nobody wrote; "
    assert f"{expected}ones wrote other elements of it: " in outcomes["wrong_made[empty]"]["message"]
    assert "ones wrote other elements of it" in outcomes["wrong[x.cpu().sum()]"]["message"]


TESTS_PERSISTENT = """
import torch, triton, triton.language as tl

@triton.jit
def numbered(x, tiles):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tl.store(x + tile % 8, tile)  # the tile eight later writes there, too

def test_numbered():
    x = torch.zeros(8, device="cuda")
    numbered[(torch.cuda.get_device_properties().multi_processor_count,)](x, 16)
"""


def test_programs_that_take_several_tiles_race_as_on_a_card(run_inside, tmp_path):
    """Of 132 programs, or of five, two write an element. Of four it would be the same one."""
    (tmp_path / "test_a.py").write_text(TESTS_PERSISTENT)
    output = run_inside(tmp_path, Stage.TEST, benches=())
    events = map(json.loads, (output / "test" / "journal.jsonl").read_text().splitlines())

    assert ["race in numbered" in event["message"] for event in events if event["event"] == "finish"] == [True]


# Five faults are planted in a package; the lane without a GPU finds each of them where it is, and nothing beside them.


# Launch → architecture → the words of the refusal. A launch without an entry passes.
FAULTS = {
    "spill": {"sm_90": "spills: "},
    "shared memory": {"gfx942": "bytes of shared memory, gfx942 has 65536"},
    "threads": {"gfx942": "32 warps of 64 are 2048 threads"},
    "unaligned": {"sm_90": "load_bits: ", "gfx942": "load_bits: "},
    "one vendor": {"gfx942": ""},
}
SOUND = ("sound", "aligned", "after")


@pytest.mark.slow
def test_five_planted_faults_are_found(data, tmp_path):
    """As rows with the reason, and as failed cases of junit.xml; the kernels beside and behind them pass on both."""
    (tmp_path / "two.yml").write_text("targets: {cpu: {architectures: [sm_90, gfx942]}}\n")
    options = ["--targets", tmp_path / "two.yml", "--out", tmp_path / "out", "--stage", "compile", "--gates", "strict", "--quiet"]
    done = command.warpwave("run", "cpu", "--kernels", data / "planted", *options)
    told = [json.loads(line) for line in (tmp_path / "out/raw/cpu/compile/kernels.jsonl").read_text().splitlines()]
    rows = {(row["origin"].split("[")[1].rstrip("]"), row["architecture"]): row for row in told}
    cases = ElementTree.parse(tmp_path / "out" / "junit.xml").iter("testcase")

    assert len(rows) == len(told) == 2 * (len(FAULTS) + len(SOUND)), done.stderr
    faults = {key: row["reason"] for key, row in rows.items() if row["verdict"] != "passed"}
    assert set(faults) == {(what, architecture) for what, found in FAULTS.items() for architecture in found}
    for what, found in FAULTS.items():
        for architecture, reason in found.items():
            assert reason in faults[what, architecture]
    assert len([case for case in cases if case.find("failure") is not None or case.find("error") is not None]) == len(faults)


# What ConSan prints on a card, as findings. The lines were printed by an H200 with Triton 3.6.


SOURCE = """import triton


@triton.jit
def other(x):
    pass


@triton.jit
def copy_kernel(x):
    value = smem.load(layout)
"""
BY_CARD = "block: [0,0,2], thread: [0,0,0] Assertion `"
PENDING = "Accessing buffer with pending access. Pending access type: async_copy_global_to_shared"


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "copies.py"
    path.write_text(SOURCE)
    return path


def test_each_line_with_an_access_that_is_not_ordered_is_a_race(kernel):
    """Each thread prints the assertion; its line, its function and its program are known."""
    line = f"{kernel}:11: unknown: {BY_CARD}{PENDING}` failed.\n"
    (row,) = on_card.findings(f"collected 2 items\n{line}{line}")

    assert (row.defect, row.function, row.line, row.program) == (Defect.RACE, "copy_kernel", 11, (0, 0, 2))
    assert row.text == "value = smem.load(layout)"
    assert row.sentence.startswith(f"race in copy_kernel at copies.py:11: shared memory: {PENDING}")


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("/gone.py:3: unknown: Device-side assertion `Buffer being accessed has outstanding reads' failed.", 1),
        (f"/gone.py:3: unknown: {BY_CARD}n must be even` failed.", 0),  # an assertion of the kernel's author
        ("AssertionError: pending access", 0),
    ],
)
def test_only_consans_assertions_count(text, several):
    """HIP prints them in another form."""
    assert len(on_card.findings(f"{text}\n")) == several


def test_a_test_is_given_what_was_printed_since_the_last_one(kernel, tmp_path, monkeypatch):
    """The card is asked to finish first: only then has it printed."""
    log = tmp_path / "log.txt"
    line = f"{kernel}:11: unknown: {BY_CARD}{PENDING}` failed.\n"
    log.write_text(line)
    asserted = on_card.Asserted(log)

    def synchronize():
        with open(log, "a") as file:
            file.write(line)
        raise RuntimeError("device-side assert")

    monkeypatch.setattr("torch.accelerator.synchronize", synchronize)
    assert [row.line for row in asserted.take()] == [11]
    monkeypatch.setattr("torch.accelerator.synchronize", lambda: None)
    assert asserted.take() == []


# Undefined lanes of kernels that tests launch: in the interpreter, and where machine code is executed, which cannot show them.


PACKAGE = """
    import pytest
    import torch
    import triton
    import triton.language as tl
    from triton.language import load as fetch  # by another name

    @triton.jit
    def first(p, i, n):
        return fetch(p + i, mask=i < n)


    @triton.jit
    def total(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(first(x, i, n)), mask=n > 0)


    @triton.jit
    def chosen(x, y, n, N: tl.constexpr):  # the compiler copies types that `tl.flip` names, though `total` has used one of them
        i = tl.arange(0, N)
        tl.store(y, tl.sum(tl.flip(tl.where(i < n, first(x, i, n), 0.0))))


    def of_python(v):
        return v


    @triton.jit
    def unreadable(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(tl.where(i < n, of_python(first(x, i, n)), 0.0)))


    @pytest.mark.parametrize("kernel", [total, chosen, unreadable][:KERNELS], ids=["total", "chosen", "unreadable"][:KERNELS])
    def test_sum(kernel):
        x, y = torch.ones(50, device="cuda"), torch.zeros(1, device="cuda")
        kernel[(1,)](x, y, 50, 64)
        assert y[0] == 50
"""


@pytest.mark.parametrize("target", ["cpu", pytest.param("gfx942-emulated", marks=pytest.mark.slow)])
def test_a_launched_kernel_is_followed_into_its_helpers(target, tmp_path):
    """The result is right all the same; of the kernel that drops the lanes there is no finding. One that cannot be followed is named."""
    if target != "cpu":
        pytest.importorskip("tinygrad", reason="the emulator reads its tables from tinygrad")
    kernels = 3 if target == "cpu" else 2  # the interpreter takes what the compiler refuses
    (tmp_path / "test_sums.py").write_text(textwrap.dedent(PACKAGE).replace("KERNELS", str(kernels)))
    words = ["run", target, "--engine", "local", "--stage", "test", "--kernels", tmp_path, "--out", tmp_path / "out", "--quiet"]
    done = command.warpwave(*words, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "harness")}, timeout=300)
    collected = collect(tmp_path / "out" / "raw" / target)
    (found,) = collected.findings
    unchecked = [case for case in collected.cases if "not-followed" in case.properties]

    assert done.returncode == 1
    assert (found.case, found.defect, found.function) == ("test_sums.py::test_sum[total]", Defect.UNDEFINED, "total")
    assert (found.place, found.other.rpartition(" at ")[2]) == ("test_sums.py:10", "test_sums.py:16")
    assert [case.id.partition("[")[2] for case in unchecked] == ["unreadable]"] * (kernels - 2)
    assert all(case.properties["not-followed"].startswith("unreadable could not be compiled here") for case in unchecked)


BY_LAUNCH = """
    import pytest
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def within(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y + i, tl.load(x + i, mask=i < 40), mask=i < n)


    @triton.jit
    def beyond(x, y, n, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y + i, tl.load(x + i, mask=i < 40), mask=i < n)


    @triton.jit
    def varying(x, y, lengths, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(y, tl.sum(tl.load(x + i, mask=i < tl.load(lengths))))


    @pytest.mark.parametrize("kernel, n", [(within, 33), (beyond, 33), (within, 39), (beyond, 41)])
    def test_limit(kernel, n):
        kernel[(1,)](torch.ones(64, device="cuda"), torch.ones(64, device="cuda"), n, 64)


    def test_varying():
        varying[(1,)](torch.ones(64, device="cuda"), torch.ones(1, device="cuda"), torch.full((1,), 64, device="cuda"), 64)
"""


def test_the_compile_stage_judges_a_kernel_by_all_its_launches(tmp_path):
    """One row a kernel. What depends on data, which that stage has none of, is advice."""
    (tmp_path / "test_limits.py").write_text(textwrap.dedent(BY_LAUNCH))
    words = ["run", "cpu", "--engine", "local", "--stage", "compile", "--architectures", "mi300x", "--kernels", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "harness")}
    done = command.warpwave(*words, "--out", tmp_path / "out", "--quiet", env=environment, timeout=300)
    compiled = collect(tmp_path / "out" / "raw" / "cpu").compiled
    rows = {row.function: row for row in compiled}

    assert done.returncode == 1
    assert len(compiled) == len(rows) == 3
    assert {name: (row.verdict, [*row.broken], [*row.advice]) for name, row in rows.items()} == {
        "within": (Verdict.PASSED, [], []),
        "beyond": (Verdict.FAILED, ["undefined_lanes"], []),
        "varying": (Verdict.PASSED, [], ["undefined_lanes"]),
    }
