"""The rules behind the sanitizer's findings: what conflicts, what orders, what counts as written, and where an index is."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")

import numpy as np
import torch

from warpwave.inside.sanitize import races
from warpwave.inside.sanitize.memory import Block, Given, Lanes, Memory, Shadows
from warpwave.inside.sanitize.races import NOTHING, Access, Found, Log, Order
from warpwave.records import Defect

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
    """The pairs of programs that conflict."""
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
    "a copy of one of two": [
        access(0, [0, 4], writes=True),
        access(1, [0], writes=True, changed=[False]),
        access(1, [0, 4]),
    ],
    "a second reader": [access(0, [0]), access(1, [0]), access(1, [0], writes=True)],
}


@pytest.mark.parametrize("name", RIGHT)
def test_no_conflict(name):
    assert conflicts(*RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_conflict_is_found_once(name):
    assert conflicts(*WRONG[name]) == [(0, 1)]


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
    assert shadow_after(lambda shadows, tensor: shadows.called(torch.add, (torch.ones(4), 1), {"out": tensor}, tensor)) is None


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
    assert Given("x", MEMORY, 4096, 4, shape, strides).index(4096 + 4 * element) == (flat, indices)


@pytest.mark.parametrize(
    ("shape", "strides", "nbytes", "address", "size", "words"),
    [
        ((97,), (1,), 388, 384, 8, "bytes 4 to 7 of its 8 are outside"),
        ((64,), (0,), 4, 4, 4, "the tensor has strides [0] and 4 bytes"),
        ((97,), (1,), 388, 388, 4, ""),
    ],
)
def test_an_access_outside_says_what_its_index_does_not(shape, strides, nbytes, address, size, words):
    memory = Memory(4096, nbytes)
    owner, block = Given("x", memory, 4096, 4, shape, strides), Block((CODE, 1), "load", None, (1,), size)
    found = Found(Defect.OUT_OF_BOUNDS, "kernel", block, (0, 0, 0), owner, 4096 + address, 0, 1)

    assert found.finding().other == words
    assert words in found.finding().sentence
