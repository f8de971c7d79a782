"""Waves and workgroups in random orders: what depends on them is reported, what may not depend on them comes out the same."""

import os

import pytest

from warpwave.inside.fake_gpu.orders import unequal

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

import re
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from warpwave.emulator import Check, Launch, execute, load
from warpwave.inside.fake_gpu.emulated import pack
from warpwave.inside.fake_gpu.emulated_findings import Collected, Given
from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.fake_gpu.orders import Orders
from warpwave.records import Defect

sys.path.insert(0, str(Path(__file__).parents[2] / "emulator"))
import machine_code
from machine_code import WAVES, compiled, linked

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set
CARDS = {"gfx942": 64, "gfx1201": 32}
TYPES = {torch.float32: "*fp32", torch.int32: "*i32"}
PROGRAMS = 12


@triton.jit
def first_come(x, counter, out, BLOCK: tl.constexpr):
    """The first program writes its number. An atomic counter orders the programs: there is no race, and the result depends on the order."""
    me = tl.program_id(0)
    if tl.atomic_add(counter, 1) == 0:
        tl.store(out, me)


@triton.jit
def added_up(x, counter, out, BLOCK: tl.constexpr):
    """The order of the programs rounds differently, which is no fault."""
    lane = tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + lane)))


@triton.jit
def last_adds_up(x, counter, out, BLOCK: tl.constexpr):
    """Which program is the last one depends on the order; what it adds up does not."""
    lane, me = tl.arange(0, BLOCK), tl.program_id(0)
    tl.store(out + 1 + me, tl.sum(tl.load(x + me * BLOCK + lane)))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        parts = tl.load(out + 1 + tl.arange(0, 16), mask=tl.arange(0, 16) < tl.num_programs(0), other=0)
        tl.store(out, tl.sum(parts))


@triton.jit
def next_free(x, counter, out, BLOCK: tl.constexpr):
    tl.store(out + tl.atomic_add(counter, 1), tl.program_id(0))


@triton.jit
def last_starts(x, counter, out, BLOCK: tl.constexpr):
    """The last program begins with its own part: which one that is rounds differently."""
    lane, me = tl.arange(0, BLOCK), tl.program_id(0)
    total = tl.sum(tl.load(x + me * BLOCK + lane)) / (me + 0.3)
    tl.store(out + 1 + me, total)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        for n in range(tl.num_programs(0)):
            if n != me:
                total += tl.load(out + 1 + n)
        tl.store(out, total)


@triton.jit
def next_first(x, counter, out, BLOCK: tl.constexpr):
    me = tl.program_id(0)
    if me < tl.num_programs(0) - 1:
        while tl.atomic_add(counter + me + 1, 0) == 0:
            pass
    tl.store(out + me, me)
    tl.debug_barrier()
    tl.atomic_xchg(counter + me, 1)


@triton.jit
def same_stored(x, counter, out, BLOCK: tl.constexpr):
    """Each program reads what it stored, which is what all store."""
    tl.store(out, 7)
    tl.debug_barrier()
    tl.store(out + 1 + tl.program_id(0), tl.load(out))


@triton.jit
def own_stored(x, counter, out, BLOCK: tl.constexpr):
    tl.store(out, tl.program_id(0) + 1)
    tl.debug_barrier()
    tl.store(out + 1 + tl.program_id(0), tl.load(out))


@triton.jit
def read_first(x, counter, out, BLOCK: tl.constexpr):
    """Each program reads before it stores what all store."""
    seen = tl.load(out)
    tl.debug_barrier()
    tl.store(out, 7)
    tl.store(out + 1 + tl.program_id(0), seen)


def launched(function, arch: str, out: torch.Tensor, block: int = 256):
    """Return the kernel, its launch, and the tensors, which live as long as the launch is used."""
    tensors = {"x": torch.rand(PROGRAMS * 256), "counter": torch.zeros(16, dtype=torch.int32), "out": out}
    signature = {name: TYPES[tensor.dtype] for name, tensor in tensors.items()} | {"BLOCK": "constexpr"}
    made = triton.compile(ASTSource(function, signature, {(3,): block}, {}), target=GPUTarget("hip", arch, WAVES[arch]))
    kernel, threads = load(made.asm["hsaco"]), made.metadata.num_warps * WAVES[arch]
    values = [*((signature[name], tensor) for name, tensor in tensors.items()), ("*i8", None), ("*i8", None)]
    packed = pack(kernel.arguments, kernel.kernarg_bytes, values, (PROGRAMS, 1, 1), threads)
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors.values()]
    return kernel, Launch((PROGRAMS, 1, 1), threads, packed, made.metadata.shared, buffers), tensors


def compared(function, arch: str, out: torch.Tensor, once: Launched | None = None, block: int = 256):
    kernel, launch, tensors = launched(function, arch, out, block)
    orders = Orders(launch, CARDS[arch])
    execution = execute(kernel, launch, limit_instructions=10_000_000, findings=[])
    given = [Given(name, tensor) for name, tensor in tensors.items()]

    def again(**how):
        return execute(kernel, launch, limit_instructions=10_000_000, **how)

    return kernel, orders.compare(again, execution, given, once or Launched(kernel.name, 1))


@pytest.mark.parametrize("arch", CARDS)
def test_where_atomics_order_all_the_test_judges_another_order(arch):
    out = torch.full((4,), -1, dtype=torch.int32)
    launch = Launched("first_come", 1)
    _, found = compared(first_come, arch, out, launch)

    assert found == []
    assert launch.is_unordered
    assert not launch.is_moved  # it stores which program came first
    assert 0 < out[0] < PROGRAMS  # another program came first


@pytest.mark.parametrize("arch", CARDS)
def test_values_that_only_take_other_places_are_moved(arch):
    launch = Launched("next_free", 1)
    assert compared(next_free, arch, torch.full((16,), -1, dtype=torch.int32), launch)[1] == []

    assert (launch.is_unordered, launch.is_moved) == (True, True)


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize("function", [added_up, last_adds_up, last_starts, next_first])
def test_what_is_right_in_every_order_is_none(function, arch):
    assert compared(function, arch, torch.zeros(16))[1] == []


@triton.jit
def risen(x, counter, out, BLOCK: tl.constexpr):
    """How often the maximum rises depends on the order. Some cards load it, and compare and swap in a loop."""
    me = tl.program_id(0)
    tl.store(out + me, (tl.atomic_max(counter, me + 1) <= me).to(tl.int32))


@triton.jit
def raised(x, counter, out, BLOCK: tl.constexpr):
    me = tl.program_id(0)
    old = tl.load(counter)
    if old <= me:
        tl.store(counter, me + 1)
    tl.store(out + me, (old <= me).to(tl.int32))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize(("function", "races"), [(risen, False), (raised, True)])
def test_what_a_swap_compares_with_is_no_access_of_its_own(function, races, arch):
    kernel, launch, _ = launched(function, arch, torch.zeros(PROGRAMS, dtype=torch.int32))

    assert bool(execute(kernel, launch, findings=[]).pairs) is races


@pytest.mark.parametrize("arch", CARDS)
def test_every_order_ends_and_the_same_seed_is_the_same_order(arch):
    winners = []
    for seed in (*range(1, 21), *range(1, 21)):
        kernel, launch, tensors = launched(first_come, arch, torch.full((4,), -1, dtype=torch.int32))
        execute(kernel, launch, limit_instructions=1_000_000, order=seed)
        winners.append(int(tensors["out"][0]))
        assert int(tensors["counter"][0]) == PROGRAMS

    assert winners[:20] == winners[20:]
    assert len(set(winners)) > 4


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize(("function", "races"), [(same_stored, False), (own_stored, True), (read_first, True)])
def test_a_program_that_reads_its_own_store_of_what_all_store_does_not_race(function, races, arch):
    kernel, launch, _ = launched(function, arch, torch.zeros(16, dtype=torch.int32))
    found = []
    execute(kernel, launch, limit_instructions=10_000_000, findings=found)

    assert any(one.check is Check.GLOBAL_RACE for one in found) == races


@triton.jit
def first_resets(x, counter, out, BLOCK: tl.constexpr):
    """A program may count before the first one has reset the counter."""
    if tl.program_id(0) == 0:
        tl.store(counter, 0)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(out, 1)


@pytest.mark.parametrize("arch", CARDS)
def test_an_atomic_that_races_has_its_own_line_and_is_not_blamed_for_its_order(arch):
    """LLVM gives the atomic the line of the store, as both have one lane on."""
    kernel, launch, _ = launched(first_resets, arch, torch.zeros(16, dtype=torch.int32))
    pairs = execute(kernel, launch, limit_instructions=10_000_000, findings=[]).pairs
    first = first_resets.fn.__code__.co_firstlineno

    assert pairs
    assert {(one.found.other.line, one.found.place.line) for one in pairs} == {
        (f"{Path(__file__).name}:{first + 4}", f"{Path(__file__).name}:{first + 6}")
    }
    assert not any(one.found.in_flight for one in pairs)


@pytest.mark.parametrize("arch", CARDS)
def test_later_launches_keep_the_bits_of_another_order(arch):
    sums = []
    for times in range(1, 7):
        torch.manual_seed(0)
        out = torch.zeros(16)
        assert compared(added_up, arch, out, Launched("added_up", times))[1] == []
        sums.append(out[0].item())

    assert len(set(sums)) > 1
    torch.testing.assert_close(torch.tensor(sums), torch.full((6,), sums[0]))


# What a program decides by an atomic may not hold any more when it acts: others may come between. All accesses are atomic, or seem ordered.


@triton.jit
def two_maxima(x, counter, out, BLOCK: tl.constexpr):
    v = tl.program_id(0) + 1
    if BLOCK:
        tl.atomic_max(out, v * 256 + v)
    elif v > tl.atomic_max(counter, v):
        tl.atomic_xchg(out, v)


@triton.jit
def read_and_set(x, counter, out, BLOCK: tl.constexpr):
    if BLOCK:
        tl.atomic_add(out, 1)
    else:
        tl.atomic_xchg(out, tl.atomic_add(out, 0) + 1)


@triton.jit
def lock_of_two(x, counter, out, BLOCK: tl.constexpr):
    if BLOCK:
        while tl.atomic_cas(counter, 0, 1, sem="acquire") == 1:
            pass
    else:
        while tl.atomic_add(counter, 0, sem="acquire") == 1:
            pass
        tl.atomic_xchg(counter, 1, sem="acquire")
    tl.debug_barrier()
    tl.store(out, tl.load(out) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(counter, 0, sem="release")


@triton.jit
def not_awaited(x, counter, out, BLOCK: tl.constexpr):
    """Fills a place of a queue, and takes one that somebody fills."""
    at = tl.atomic_add(counter, 1)
    tl.store(out + 2 + at, 7)
    tl.debug_barrier()
    tl.atomic_xchg(counter + 2 + at, 1, sem="release")
    take = tl.atomic_add(counter + 1, 1)
    if BLOCK:
        while tl.atomic_add(counter + 2 + take, 0, sem="acquire") == 0:
            pass
        tl.debug_barrier()
    tl.atomic_add(out, tl.load(out + 2 + take))


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize(
    ("function", "named"),
    [(two_maxima, (5,)), (read_and_set, (5,)), (lock_of_two, (10,)), (not_awaited, (4, 12))],
)
def test_a_program_that_comes_between_is_named_and_the_twin_is_silent(function, named, arch, monkeypatch):
    out, once = torch.zeros(16, dtype=torch.int32), Launched(function.fn.__name__, 1)
    _, found = compared(function, arch, out, once, block=0)
    first = function.fn.__code__.co_firstlineno
    found_lines = {int(line) - first for line in re.findall(rf"{Path(__file__).name}:(\d+)", once.turns)}

    assert found == []
    assert out[0] != {two_maxima: PROGRAMS, not_awaited: 7 * PROGRAMS}.get(function, PROGRAMS)  # the test sees a wrong result
    assert re.match(r"in order \d of launch 1, another program ran right behind .*: out\[0\] is \d+, in that order \d+$", once.turns)
    assert {*named} <= found_lines
    monkeypatch.setattr(Launched, "kernels", {once.name: once})
    assert Launched.advice(True).startswith(f"Programs took turns: {once.name} in order")

    out, once = torch.zeros(16, dtype=torch.int32), Launched(function.fn.__name__, 1)
    assert compared(function, arch, out, once, block=1)[1] == []
    assert not once.is_unordered


def test_infinity_against_a_number_is_no_rounding():
    infinity, nan = float("inf"), float("nan")
    one = torch.tensor([infinity, infinity, 1.0, nan, 1.00, infinity])
    other = torch.tensor([infinity, 1.0, -infinity, nan, 1.01, -infinity])

    assert unequal(one, other, rounds=True).tolist() == [1, 2, 5]
    assert unequal(one, other, rounds=False).tolist() == [1, 2, 4, 5]


def test_a_short_type_rounds_more():
    large, other = torch.tensor([100.0, 0.5, 0.0]), torch.tensor([100.0, 0.0, 5.0])

    assert [unequal(large.to(kind), other.to(kind), rounds=True).tolist() for kind in (torch.float32, torch.float16)] == [[1, 2], [2]]


# Accesses to global memory that nothing orders: a race if the other order gives other bits, and nothing if it does not.

WAVE_CARDS = ("gfx942", "gfx1100")
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
    """Stores what another wave loads."""
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
def beside_a_sum(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads what another wave stores, beside a sum of floats: the order rounds the sum, and what is loaded of it."""
    i = tl.arange(0, N)
    tl.atomic_add(y + i % 64, tl.load(x + i) / 3, sem="relaxed")
    tl.store(t + i, tl.load(x + i) * 1.01)
    if BARRIER:
        tl.debug_barrier()
        tl.store(t + 3 * N + i, tl.load(y + i % 64))
    tl.store(t + 2 * N + i, tl.load(t + (i + 64) % N))


@triton.jit
def another_program(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads what the program before stores, or only its sign."""
    i, me = tl.arange(0, N), tl.program_id(0)
    tl.store(t + me * N + i, tl.load(x + i) * (me + 1))
    v = tl.load(t + (me ^ 1) * N + i)
    tl.store(y + me * N + i, tl.where(v >= 0, 1.0, 2.0) if BARRIER else v)


@triton.jit
def last_adds(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """The last program adds up what both stored, behind a counter that acquires, or that gives a number and no more."""
    i, me = tl.arange(0, N), tl.program_id(0)
    tl.store(y + me * N + i, tl.load(x + i))
    tl.debug_barrier()
    if tl.atomic_add(t, 1.0, sem="acq_rel" if BARRIER else "relaxed") == 2.0:
        tl.store(y + 2 * N + i, tl.load(y + i) + tl.load(y + N + i))


@triton.jit
def repeated(x, t, y, N: tl.constexpr, BARRIER: tl.constexpr):
    """Loads what another program stores. With fewer elements than lanes, most waves repeat the first one's work, and store nothing."""
    i, me = tl.arange(0, 32), tl.program_id(0)
    a, b = tl.load(t + i), tl.load(t + 32 + i)
    tl.store((y if BARRIER else t) + me * 32 + i, a + b)


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


def executed(binary: bytes, shared: int, tensors: dict, arch: str, programs: int = 1):
    """Execute a launch of 4 waves a program. Return that, its orders, what executes it again, and its tensors."""
    kernel, memory = load(binary), [*tensors.values()]
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in memory]
    launch = Launch((programs, 1, 1), 4 * WAVES[arch], machine_code.pack(kernel, [*memory, 0, 0]), shared, buffers)
    orders = Orders(launch, WAVES[arch])
    execution = execute(kernel, launch, limit_instructions=10_000_000, findings=[])

    def again(**how):
        return execute(kernel, launch, limit_instructions=10_000_000, **how)

    return execution, orders, again, [Given(name, tensor) for name, tensor in tensors.items()]


def raced(binary: bytes, shared: int, tensors: dict, arch: str, programs: int = 1):
    """Return the races of a launch, the pairs that nothing orders, and the report's rows."""
    execution, orders, again, given = executed(binary, shared, tensors, arch, programs)
    first = [tensor.clone() for tensor in tensors.values()]
    races = orders.races(again, execution, given, Launched("", 1))
    assert all(map(torch.equal, first, tensors.values()))  # memory keeps the first result
    checks = Collected()
    checks.raced(races, given)
    return races, execution.pairs, checks.take()


def lines(function, *offsets: int) -> set:
    return {f"{Path(__file__).name}:{function.fn.__code__.co_firstlineno + n}" for n in offsets}


@pytest.mark.parametrize("arch", WAVE_CARDS)
@pytest.mark.parametrize(
    ("function", "offsets", "programs"),
    [
        (reverse, (4, 7), 1),
        (next_one, (4, 7), 1),
        (last_one, (7,), 1),
        (read_sum, (4, 7), 1),
        (another_program, (4, 5), 2),
        (last_adds, (4, 7), 2),
        (repeated, (4, 5), 2),
    ],
)
def test_a_race_names_both_lines_and_its_twin_is_silent(function, offsets, programs, arch):
    kernel, tensors = made(function, arch, False)
    races, _, rows = raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch, programs)

    assert {place.line for race in races for place in (race.pair.found.place, race.pair.found.other)} == lines(function, *offsets)
    assert {row.defect for row in rows} == {Defect.RACE}
    assert all("wave" in row.other and "in the other order" in row.other for row in rows)

    kernel, tensors = made(function, arch, True)
    assert raced(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch, programs)[0] == []


@pytest.mark.parametrize("arch", WAVE_CARDS)
@pytest.mark.parametrize("barrier", [False, True])
def test_the_order_of_a_sum_rounds_the_sum_and_what_comes_of_it(barrier, arch):
    """Not so for fp16 and bf16 on RDNA 3: there a sum is an exchange in a loop, as a lock may be."""
    kernel, tensors = made(beside_a_sum, arch, barrier)
    execution, orders, again, given = executed(kernel.asm["hsaco"], kernel.metadata.shared, tensors, arch)
    races = orders.races(again, execution, given, Launched("beside_a_sum", 1))

    assert {place.line for race in races for place in (race.pair.found.place, race.pair.found.other)} == (
        set() if barrier else lines(beside_a_sum, 5, 9)
    )
    assert barrier is execution.rounds
    assert barrier is (orders.compare(again, execution, given, Launched("beside_a_sum", 1)) == [])


@pytest.mark.parametrize("arch", WAVE_CARDS)
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


@pytest.mark.parametrize("arch", WAVE_CARDS)
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
