"""Kernels whose programs race. `FAULT` plants the fault; without it each is right."""

import triton
import triton.language as tl


@triton.jit
def own_number(out, FAULT: tl.constexpr):
    program = tl.program_id(0)
    tl.store(out + (0 if FAULT else program), program)


@triton.jit
def blur(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + tl.load(x + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def overlapping(out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    i = program * (BLOCK // 2 if FAULT else BLOCK) + tl.arange(0, BLOCK)
    tl.store(out + i, program, mask=i < n)


@triton.jit
def two_to_a_row(x, out, columns, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + program * columns + i, mask=i < columns)
    tl.store(out + (program // 2 if FAULT else program) * columns + i, value, mask=i < columns)


@triton.jit
def accumulate(x, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    value = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    if FAULT:
        tl.store(out, tl.load(out) + value)
    else:
        tl.atomic_add(out, value)


@triton.jit
def zero_and_add(x, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    if FAULT and program == 0:
        tl.store(out, 0.0)
    tl.atomic_add(out, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))


@triton.jit
def add_and_read(x, out, seen, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    before = tl.atomic_add(out, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))
    tl.store(seen + program, tl.load(out) if FAULT else (before >= 0).to(tl.float32))


@triton.jit
def last_one_adds_up(
    x, scratch, count, out, programs: tl.constexpr, BLOCK: tl.constexpr, WHO: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr
):
    program = tl.program_id(0)
    tl.store(scratch + program, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))
    last = program == programs - 1
    if WHO == "the last program, which also counts":
        tl.atomic_add(count, 1)
    if WHO == "the last one to come":
        last = tl.atomic_add(count, 1, sem=SEM, scope=SCOPE) == programs - 1
    if last:
        tl.store(out, tl.sum(tl.load(scratch + tl.arange(0, programs))))


@triton.jit
def locked(x, lock, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    value = tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK)))
    own = lock + program if FAULT == "a lock each" else lock
    if FAULT == "read before the lock":
        before = tl.load(out)
        while tl.atomic_cas(own, 0, 1) == 1:
            pass
        tl.store(out, before + value)
        tl.atomic_xchg(own, 0)
    elif FAULT == "unlocked too early":
        while tl.atomic_cas(own, 0, 1) == 1:
            pass
        before = tl.load(out)
        tl.atomic_xchg(own, 0)
        tl.store(out, before + value)
    elif FAULT == "unlocked by a store":
        while tl.atomic_cas(own, 0, 1) == 1:
            pass
        tl.store(out, tl.load(out) + value)
        tl.store(own, 0)
    else:
        while tl.atomic_cas(own, 0, 1) == 1:
            pass
        tl.store(out, tl.load(out) + value)
        tl.debug_barrier()  # all waves have read the sum; as in Triton's tutorial on layer norm
        tl.atomic_xchg(own, 0)


@triton.jit
def transpose(x, out, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    r = row * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = column * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + c * n + r, tl.load(x + r * n + c))


@triton.jit
def running_total(x, out, flags, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    before = 0.0
    if program > 0:
        if not FAULT:
            while tl.atomic_add(flags + program - 1, 0) == 0:
                pass
        before = tl.load(out + program - 1)
    tl.store(out + program, before + tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))
    tl.atomic_xchg(flags + program, 1)


@triton.jit
def histogram(x, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = out + tl.load(x + i)
    if FAULT:
        tl.store(where, tl.load(where) + 1)
    else:
        tl.atomic_add(where, 1)


@triton.jit
def next_tile(counter, out, FAULT: tl.constexpr):
    if FAULT:
        tile = tl.load(counter)
        tl.store(counter, tile + 1)
    else:
        tile = tl.atomic_add(counter, 1)
    tl.store(out + tile, 1)


@triton.jit
def split_k(x, y, out, K, BM: tl.constexpr, BK: tl.constexpr, FAULT: tl.constexpr):
    m, k = tl.arange(0, BM), tl.program_id(0) * BK + tl.arange(0, BK)
    value = tl.dot(tl.load(x + m[:, None] * K + k[None, :]), tl.load(y + k[:, None] * BM + m[None, :]), input_precision="ieee")
    pointer = out + m[:, None] * BM + m[None, :]
    if FAULT:
        tl.store(pointer, tl.load(pointer) + value)
    else:
        tl.atomic_add(pointer, value)


@triton.jit
def shared_scratch(x, scratch, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    own = scratch + (0 if FAULT else program * BLOCK) + i
    tl.store(own, tl.load(x + program * BLOCK + i))
    tl.debug_barrier()
    tl.store(out + program * BLOCK + i, tl.load(own))


@triton.jit
def flagged(flag, out, FAULT: tl.constexpr):
    program = tl.program_id(0)
    tl.store(flag, program if FAULT else 1)
    tl.store(out + program, program)


@triton.jit
def described(out, M, N, BM: tl.constexpr, BN: tl.constexpr, FAULT: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    program = tl.program_id(0)
    target.store([program * (BM - 1 if FAULT else BM), 0], tl.full((BM, BN), 1.0, tl.float32) * program)


@triton.jit
def last_to_exchange(out, FAULT: tl.constexpr):
    """Leave the largest number of a program."""
    if FAULT:
        tl.atomic_xchg(out, tl.program_id(0))
    else:
        tl.atomic_max(out, tl.program_id(0))


@triton.jit
def kept_numbers(x, count, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """Write each program's sum, in the order of the programs."""
    program = tl.program_id(0)
    place = tl.atomic_add(count, 1) if FAULT else program
    tl.store(out + place, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))
