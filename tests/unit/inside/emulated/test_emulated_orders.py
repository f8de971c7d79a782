"""Waves and workgroups in random orders: what depends on them is reported, what may not depend on them comes out the same."""

import os

import pytest

pytest.importorskip("triton", reason="the inside needs torch and triton; `nox -s tests` installs them")
for needed in ("elftools", "msgpack", "tinygrad"):
    pytest.importorskip(needed, reason="the emulator's extra; `nox -s tests` installs it")

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from warpwave.emulator import (
    Check,
    Launch,
    execute,
    load,
)
from warpwave.inside.fake_gpu.emulated import pack
from warpwave.inside.fake_gpu.emulated_findings import Collected, Given
from warpwave.inside.fake_gpu.launches import Launched
from warpwave.inside.fake_gpu.orders import Orders
from warpwave.records import Defect

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


def launched(function, arch: str, out: torch.Tensor):
    """Return the kernel, its launch, and the tensors, which live as long as the launch is used."""
    tensors = {"x": torch.rand(PROGRAMS * 256), "counter": torch.zeros(16, dtype=torch.int32), "out": out}
    signature = {name: TYPES[tensor.dtype] for name, tensor in tensors.items()} | {"BLOCK": "constexpr"}
    made = triton.compile(ASTSource(function, signature, {(3,): 256}, {}), target=GPUTarget("hip", arch, CARDS[arch]))
    kernel, threads = load(made.asm["hsaco"]), made.metadata.num_warps * CARDS[arch]
    values = [*((signature[name], tensor) for name, tensor in tensors.items()), ("*i8", None), ("*i8", None)]
    packed = pack(kernel.arguments, kernel.kernarg_bytes, values, (PROGRAMS, 1, 1), threads)
    buffers = [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors.values()]
    return kernel, Launch((PROGRAMS, 1, 1), threads, packed, made.metadata.shared, buffers), tensors


def compared(function, arch: str, out: torch.Tensor, times: int = 1):
    kernel, launch, tensors = launched(function, arch, out)
    orders = Orders(launch, CARDS[arch])
    execution = execute(kernel, launch, limit_instructions=10_000_000, findings=[])
    given = [Given(name, tensor) for name, tensor in tensors.items()]

    def again(order: int):
        return execute(kernel, launch, limit_instructions=10_000_000, order=order)

    return kernel, orders.compare(again, execution, given, Launched(kernel.name, times))


@pytest.mark.parametrize("arch", CARDS)
def test_a_result_that_depends_on_the_order_is_a_finding(arch):
    out = torch.full((4,), -1, dtype=torch.int32)
    kernel, found = compared(first_come, arch, out)
    checks = Collected()
    checks.reordered(kernel, found, [])
    (row,) = checks.take()

    assert (row.defect, row.tensor, row.index, row.function) == (Defect.ORDER, "out", 0, "first_come")
    assert row.place.startswith("test_emulated_orders.py:")
    assert out.tolist() == [0, -1, -1, -1]  # memory keeps the result in order


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize("function", [added_up, last_adds_up, last_starts, next_first])
def test_what_is_right_in_every_order_is_none(function, arch):
    assert compared(function, arch, torch.zeros(16))[1] == []


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


@pytest.mark.parametrize("arch", CARDS)
def test_later_launches_keep_the_bits_of_another_order(arch):
    sums = []
    for times in range(1, 7):
        torch.manual_seed(0)
        out = torch.zeros(16)
        assert compared(added_up, arch, out, times)[1] == []
        sums.append(out[0].item())

    assert len(set(sums)) > 1
    torch.testing.assert_close(torch.tensor(sums), torch.full((6,), sums[0]))
