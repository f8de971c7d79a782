"""Accesses to global memory that nothing orders: a race if the other order gives other bits, and nothing if it does not."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")
sys.path.insert(0, str(Path(__file__).parents[2] / "emulator"))

import torch
import triton
import triton.language as tl
from machine_code import WAVES, compiled, linked, pack

from warpwave.emulator import Launch, execute, load
from warpwave.inside.fake_gpu.emulated_findings import Collected, Given
from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.fake_gpu.orders import Orders
from warpwave.records import Defect

CARDS = ("gfx942", "gfx1100")
SIZE = 1024


@triton.jit
def reverse(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads what another wave stores, behind a barrier or not."""
    i = tl.arange(0, N)
    tl.store(t + i, tl.load(x + i) * 1.01)
    if BARRIER:
        tl.debug_barrier()
    tl.store(y + i, tl.load(t + N - 1 - i))


@triton.jit
def next_one(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + (i + 64) % N)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + i, v)


@triton.jit
def last_one(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Several waves store to one element: other values, or the same."""
    i = tl.arange(0, N)
    if BARRIER:
        tl.store(y + i % 256, i % 256)
    else:
        tl.store(y + i % 256, tl.load(x + i))


@triton.jit
def read_sum(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Adds by an atomic that orders nothing, and loads the sum."""
    i = tl.arange(0, N)
    tl.atomic_add(t + i % 64, 1.0, sem="relaxed")
    if BARRIER:
        tl.debug_barrier()
    tl.store(y + i, tl.load(t + i % 64))


@triton.jit
def another_program(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads what the program before stores, or only its sign."""
    i, me = tl.arange(0, N), tl.program_id(0)
    tl.store(t + me * N + i, tl.load(x + i) * (me + 1))
    v = tl.load(t + (me ^ 1) * N + i)
    tl.store(y + me * N + i, tl.where(v >= 0, 1.0, 2.0) if BARRIER else v)


@triton.jit
def asked(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads what another wave stores, and its answer is the same before and after that."""
    i = tl.arange(0, N)
    tl.store(t + i, tl.load(x + i) * 2)
    tl.store(y + i, tl.where(tl.load(t + N - 1 - i) >= 0, i, -i))


@triton.jit
def index(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads an index that the first wave stores: before that, it leads out of the tensor."""
    i = tl.arange(0, N)
    tl.store(t + i, 0.0)
    tl.store(y + tl.load(t + i % 32).to(tl.int32) * 1000000 + i, 1.0)


def made(function, arch: str, barrier: bool):
    tensors = {"x": torch.arange(1.0, SIZE + 1), "t": torch.arange(1.0, 4 * SIZE + 1), "y": torch.zeros(4 * SIZE)}
    return compiled(function, arch, tensors, {"N": SIZE, "BARRIER": barrier}), tensors


def raced(binary: bytes, shared: int, tensors: dict, arch: str, programs: int = 1):
    """Return the races of a launch of 4 waves a program, the pairs that nothing orders, and the report's rows."""
    kernel, memory = load(binary), [*tensors.values()]
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in memory]
    launch = Launch((programs, 1, 1), 4 * WAVES[arch], pack(kernel, [*memory, 0, 0]), shared, buffers)
    orders = Orders(launch, WAVES[arch])
    execution = execute(kernel, launch, limit_instructions=10_000_000, findings=[])
    first = [tensor.clone() for tensor in memory]
    given = [Given(name, tensor) for name, tensor in tensors.items()]

    def again(reverse):
        return execute(kernel, launch, limit_instructions=10_000_000, reverse=reverse)

    races = orders.races(again, execution, given, Launched(kernel.name, 1))
    assert all(map(torch.equal, first, memory))  # memory keeps the first result
    checks = Collected()
    checks.raced(races, given)
    return races, execution.pairs, checks.take()


def lines(function, *offsets: int) -> set:
    return {f"{Path(__file__).name}:{function.fn.__code__.co_firstlineno + n}" for n in offsets}


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize(
    ("function", "offsets", "programs"),
    [(reverse, (4, 7), 1), (next_one, (4, 7), 1), (last_one, (7,), 1), (read_sum, (4, 7), 1), (another_program, (4, 5), 2)],
)
def test_a_race_names_both_lines_and_its_twin_is_silent(function, offsets, programs, arch):
    kernel, tensors = made(function, arch, False)
    races, _, rows = raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch, programs)

    assert {place.line for race in races for place in (race.pair.found.place, race.pair.found.other)} == lines(function, *offsets)
    assert {row.defect for row in rows} == {Defect.RACE}
    assert all("wave" in row.other and "in the other order" in row.other for row in rows)

    kernel, tensors = made(function, arch, True)
    assert raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch, programs)[0] == []


@pytest.mark.parametrize("arch", CARDS)
def test_accesses_whose_order_decides_no_bit_are_no_race(arch):
    kernel, tensors = made(asked, arch, False)
    races, pairs, _ = raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch)

    assert pairs
    assert races == []


def test_a_barrier_orders_no_store_in_flight_that_has_its_own_counter():
    kernel, tensors = made(reverse, "gfx1100", True)
    early, count = re.subn(r"\ts_waitcnt_vscnt .*\n", "", kernel.asm["amdgcn"])
    races, _, rows = raced(linked(early, "gfx1100"), kernel.metadata.shared, tensors, "gfx1100")

    assert count
    assert {race.pair.found.in_flight for race in races} == {True}
    assert "had not waited for that" in rows[0].other


@pytest.mark.parametrize("arch", CARDS)
def test_an_order_that_does_not_end_well_is_a_race(arch):
    kernel, tensors = made(index, arch, False)
    _, _, rows = raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch)

    assert {row.defect for row in rows} == {Defect.RACE}
    assert "does not end well" in rows[0].other


def test_what_depends_on_the_order_names_accesses_that_nothing_orders():
    kernel, tensors = made(reverse, "gfx942", False)
    races, pairs, _ = raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, "gfx942")
    checks = Collected()
    checks.reordered(load(kernel.asm["hsaco"]), [races[0].different], [pair.found for pair in pairs])
    (row,) = checks.take()

    assert len(pairs) > 1
    assert (row.defect, row.times) == (Defect.ORDER, races[0].different.count)
    assert re.search(r"y\[\d+\], of shape \[4096\], is [\d.]+ in order, [\d.]+ in a random order of waves", row.example)
    assert row.place in lines(reverse, 4, 7)
    assert lines(reverse, 4, 7) - {row.place} == {row.other.split()[-1]}


def test_two_waves_are_worth_it_and_one_is_not():
    launch = Launch((1, 1, 1), 64, b"")

    assert Orders(launch, 32).worth
    assert not Orders(launch, 64).worth
