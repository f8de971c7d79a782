"""Kernels that read what nobody wrote. `FAULT` plants the fault; without it each is right."""

import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def add_to(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(out + i, mask=i < n) + tl.load(x + i, mask=i < n)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def add_atomically(x, out, n, BLOCK: tl.constexpr, MAXIMUM: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    if MAXIMUM:
        tl.atomic_max(out, tl.max(value))
    else:
        tl.atomic_add(out, tl.sum(value))


@triton.jit
def through_scratch(x, scratch, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    limit = n // 2 if FAULT else n
    tl.store(scratch + i, tl.load(x + i, mask=i < n), mask=i < limit)
    tl.store(out + i, tl.load(scratch + i, mask=i < n), mask=i < n)


@triton.jit
def by_row(x, out, columns, stride, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * stride + i, mask=(i < stride) if FAULT else (i < columns), other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(value))


@triton.jit
def partial(x, scratch, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    program = tl.program_id(0)
    value = tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK)))
    tl.store(scratch + program + (1 if FAULT else 0), value)


@triton.jit
def total(scratch, out, n: tl.constexpr):
    tl.store(out, tl.sum(tl.load(scratch + tl.arange(0, n))))


@triton.jit
def described(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    target.store([0, 0], source.load([0, 0]) + target.load([0, 0]))


@triton.jit
def once(lock, out):
    if tl.atomic_cas(lock, 0, 1) == 0:
        tl.store(out, 1.0)


@triton.jit
def largest(x, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """The largest of the first numbers: a mask of the block, not of the numbers, makes `other` useless."""
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.max(tl.load(x + i, mask=i < (BLOCK if FAULT else n), other=float("-inf"))))
