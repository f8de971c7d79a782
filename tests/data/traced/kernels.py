"""Kernels whose programs differ: in what they decide, and in what only one of them does wrong."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def decide_kernel(x, out, n, B: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.max_contiguous(tl.multiple_of(pid * B, B) + tl.arange(0, B), B)
    row = tl.load(x + i, mask=i < n, other=0.0)
    if pid % 3 == 1:
        row = -row
    for _ in range(pid // 12):
        row = libdevice.tanh(row) + 1
    largest, at = tl.max(row, 0, return_indices=True)
    row = tl.cumsum(row, 0) + largest + at + tl.reduce(row, 0, larger)
    if tl.sum(row, 0) > 40:
        return
    tl.store(out + i, row, mask=i < n)


@triton.jit
def product_kernel(a, b, out, K, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inner = tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        left = tl.load(a + at[:, None] * K + k + inner[None, :])
        right = tl.load(b + at[:, None] * K + k + inner[None, :])
        total += tl.dot(left, right.T, input_precision="ieee")
    low, high = tl.split(tl.reshape(total, (B, B // 2, 2)))
    tl.store(out + at[:, None] * (B // 2) + tl.arange(0, B // 2)[None, :], low * high)


@triton.jit
def described_kernel(x, out, rows, columns, B: tl.constexpr):
    pid = tl.program_id(0)
    given = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [B, B])
    made = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [B, B])
    made.store([pid * B, 0], given.load([pid * B, 0]) * 2)


@triton.jit
def counted_kernel(count, seen, last, n):
    pid = tl.program_id(0)
    before = tl.atomic_add(count, 1)
    tl.store(seen + pid, before)
    if before == n - 1:
        tl.store(last, pid)


@triton.jit
def assembly_kernel(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    twice = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, twice)


@triton.jit
def relay_kernel(flags, out, n):
    pid = tl.program_id(0)
    if pid < n - 1:
        while tl.atomic_add(flags + pid + 1, 0) == 0:
            pass
    tl.store(out + pid, pid)
    tl.atomic_xchg(flags + pid, 1)


@triton.jit
def beyond_kernel(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + i)
    tl.store(out + i, row)


@triton.jit
def one_place_kernel(out, B: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.where(pid > 2, 0, pid * B) + tl.arange(0, B)
    tl.store(out + i, tl.full((B,), 1.0, tl.float32) * pid)


@triton.jit
def promise_kernel(x, out, step, B: tl.constexpr):
    i = tl.multiple_of(tl.program_id(0) * step, 16) + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def print_kernel(x):
    tl.static_print(tl.load(x + tl.program_id(0)))
