"""Programs of one launch that wait for others."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_of_parts_kernel(parts, flags, out, n, BLOCK: tl.constexpr):
    """As in a stream-K product: the first program adds up what the later ones leave, and waits for each."""
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    if pid == 0:
        total = tl.load(parts + at)
        for other in range(1, n):
            while tl.atomic_cas(flags + other, 1, 1) != 1:
                pass
            total += tl.load(parts + other * BLOCK + at, cache_modifier=".cg")
        tl.store(out + at, total)
    else:
        part = parts + pid * BLOCK + at
        tl.store(part, tl.load(part) * 2)
        tl.debug_barrier()
        tl.atomic_xchg(flags + pid, 1)


def test_a_program_waits_for_later_ones():
    parts, flags, out = torch.ones(6, 32, device="cuda"), torch.zeros(6, dtype=torch.int32, device="cuda"), torch.zeros(32, device="cuda")
    sum_of_parts_kernel[(6,)](parts, flags, out, 6, BLOCK=32)
    assert (out == 11).all()


@triton.jit
def barrier(counter, programs, phase):
    tl.debug_barrier()
    tl.atomic_add(counter, 1)
    while tl.atomic_add(counter, 0) < programs * phase:
        pass
    tl.debug_barrier()


@triton.jit
def rotated_kernel(x, y, counter, ROUNDS: tl.constexpr):
    """Each round, a program takes its neighbour's number; nobody may go on before all have."""
    pid, programs = tl.program_id(0), tl.num_programs(0)
    for turn in range(ROUNDS):
        tl.store(y + pid, tl.load(x + (pid + 1) % programs, volatile=True))
        barrier(counter, programs, 2 * turn + 1)
        tl.store(x + pid, tl.load(y + pid, volatile=True))
        barrier(counter, programs, 2 * turn + 2)


def test_barriers_of_a_grid():
    x = torch.arange(8, device="cuda", dtype=torch.int32)
    y, counter = torch.zeros_like(x), torch.zeros(1, device="cuda", dtype=torch.int32)
    rotated_kernel[(8,)](x, y, counter, ROUNDS=3)
    assert x.tolist() == [3, 4, 5, 6, 7, 0, 1, 2]


@triton.jit
def told_kernel(flag, out):
    if tl.program_id(0) == 0:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.store(out, 5)
    else:
        tl.atomic_xchg(flag, 1)


def test_a_program_looks_for_what_a_later_one_writes():
    flag, out = torch.zeros(1, device="cuda", dtype=torch.int32), torch.zeros(1, device="cuda", dtype=torch.int32)
    told_kernel[(2,)](flag, out)
    assert out.item() == 5


@triton.jit
def largest_kernel(x, out, n):
    """It only looks like waiting: the answer is the same for long, and the loop ends."""
    for _ in range(n):
        tl.atomic_max(out, tl.load(x))


def test_equal_answers_of_a_loop():
    x, out = torch.full((1,), 3, device="cuda", dtype=torch.int32), torch.zeros(1, device="cuda", dtype=torch.int32)
    largest_kernel[(5,)](x, out, 1000)
    assert out.item() == 3
