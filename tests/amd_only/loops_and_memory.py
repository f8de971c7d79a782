"""Kernels with loops, barriers and large offsets that some releases of Triton get wrong on AMD only."""

import triton
import triton.language as tl


@triton.jit
def pack(tokens, table, lengths, offsets, out, rows, N: tl.constexpr):
    """Write each row's symbols behind those of the row before: a loop whose count is known when it runs."""
    at, total = tl.arange(0, N), 0
    tl.store(offsets, 0)
    for row in range(0, rows):
        token = tl.load(tokens + row * N + at)
        size = tl.load(table + token, mask=token >= 0, other=0)
        count = tl.sum(size, 0)
        tl.store(lengths + row, count)
        tl.store(out + total + at, token, mask=at < count)
        total += count
        tl.store(offsets + row + 1, total)


@triton.jit
def take_all(queue, out, count):
    """Take numbers from a queue until it is empty."""
    taken = tl.atomic_add(queue, 1)
    while taken < count:
        tl.store(out + taken, taken + 1)
        taken = tl.atomic_add(queue, 1)


@triton.jit
def through_memory(x, scratch, out, N: tl.constexpr):
    """Turn a row around in memory: behind the barrier, each wave loads what another one stored."""
    at = tl.arange(0, N)
    tl.store(scratch + at, tl.load(x + at))
    tl.debug_barrier()
    tl.store(out + at, tl.load(scratch + (N - 1 - at)))


@triton.jit
def wait_for(flag, data, out, N: tl.constexpr):
    """Wait until somebody sets the flag, and read what he has stored before."""
    at = tl.arange(0, N)
    while tl.atomic_add(flag, 0, sem="acquire") == 0:
        pass
    tl.store(out + at, tl.load(data + at))


@triton.jit
def concatenate(a, b, out, start, BLOCKS: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr):
    """Put two tensors of BLOCKS rows each behind one another: in lanes of the other one, an offset is negative or too large."""
    at = start + tl.arange(0, N)
    row, column = at // WIDTH, at % WIDTH
    first = tl.load(a + column + WIDTH * row, row < BLOCKS, other=0.0)
    second = tl.load(b + column + WIDTH * (row - BLOCKS), row >= BLOCKS, other=0.0)
    tl.store(out + tl.arange(0, N), tl.where(row < BLOCKS, first, second))


@triton.jit
def checked_product(a, b, out, k, N: tl.constexpr):
    """Check each step of a pipelined loop."""
    row, column, sum = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.zeros((N, N), tl.float32)
    for step in range(0, tl.cdiv(k, N)):
        left = tl.load(a + row * k + step * N + column)
        tl.device_assert(step * N < k)
        sum += tl.dot(left, tl.load(b + (step * N + row) * N + column))
    tl.store(out + row * N + column, sum)


@triton.jit
def unrolled_row(x, y, out, N: tl.constexpr, STEP: tl.constexpr):
    """A product with one row whose loop is unrolled, so that each offset is a constant."""
    total = tl.zeros((1, 16), tl.float32)
    for step in tl.static_range(0, N, STEP):
        left = tl.load(x + step + tl.arange(0, STEP)[None, :] + tl.zeros((1, 1), tl.int32))
        right = tl.load(y + (step + tl.arange(0, STEP)[:, None]) * 16 + tl.arange(0, 16)[None, :])
        total += tl.sum(left[:, :, None] * right[None, :, :], 1)
    tl.store(out + tl.arange(0, 16)[None, :], total)


@triton.jit
def masked_product(a, b, mask, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product, where a mask of single bits allows."""
    row, column, inner = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    product = tl.dot(tl.load(a + row * K + inner[None, :]), tl.load(b + inner[:, None] * N + column))
    allowed = tl.load(mask + row * N + column) != 0
    tl.store(out + row * N + column, tl.where(allowed, product, 0.0))


@triton.jit
def attend(q, k, v, out, count, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Attention of M queries, with the precision of IEEE asked for."""
    row, column, key = tl.arange(0, M)[:, None], tl.arange(0, D)[None, :], tl.arange(0, N)
    query = tl.load(q + row * D + column)
    sum, total, top = tl.zeros((M, D), tl.float32), tl.zeros((M,), tl.float32), tl.full((M,), float("-inf"), tl.float32)
    for start in range(0, count, N):
        keys = tl.load(k + (start + key)[None, :] * D + tl.arange(0, D)[:, None])
        score = tl.dot(query, keys, input_precision="ieee")
        now = tl.maximum(top, tl.max(score, 1))
        weight, old = tl.exp2(score - now[:, None]), tl.exp2(top - now)
        total, sum, top = total * old + tl.sum(weight, 1), sum * old[:, None], now
        values = tl.load(v + (start + key)[:, None] * D + column)
        sum = tl.dot(weight.to(values.dtype), values, sum, input_precision="ieee")
    tl.store(out + row * D + column, sum / total[:, None])


@triton.jit
def transposed_product(a, b, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A long product of two matrices whose columns lie together."""
    row, column, inner, sum = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K), tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + (start + inner)[None, :] * M + row)
        sum += tl.dot(left, tl.load(b + (start + inner)[:, None] + column * k))
    tl.store(out + row * N + column, sum)


def _of(kind, *names):
    return dict.fromkeys(names, f"*{kind}")


KERNELS = {
    "pack": (pack, {**_of("i32", "tokens", "table", "lengths", "offsets", "out"), "rows": "i32"}, {"N": 64}, {"num_warps": 1}),
    "take-all": (take_all, {**_of("i32", "queue", "out"), "count": "i32"}, {}, {"num_warps": 4}),
    "through-memory": (through_memory, _of("fp32", "x", "scratch", "out"), {"N": 256}, {"num_warps": 4}),
    "wait-for": (wait_for, {**_of("i32", "flag"), **_of("fp32", "data", "out")}, {"N": 256}, {"num_warps": 4}),
    "concatenate": (
        concatenate,
        {**_of("bf16", "a", "b", "out"), "start": "i32"},
        {"BLOCKS": 4, "WIDTH": 1 << 26, "N": 1024},
        {"num_warps": 4},
    ),
    "checked-product": (
        checked_product,
        {**_of("fp16", "a", "b"), **_of("fp32", "out"), "k": "i32"},
        {"N": 32},
        {"num_warps": 4, "num_stages": 2, "debug": True},
    ),
    "unrolled-row": (unrolled_row, _of("fp32", "x", "y", "out"), {"N": 64, "STEP": 32}, {"num_warps": 4}),
    "masked-product": (
        masked_product,
        {**_of("fp16", "a", "b"), **_of("i8", "mask"), **_of("fp32", "out")},
        {"M": 32, "N": 16, "K": 16},
        {"num_warps": 2},
    ),
    "attend": (
        attend,
        {**_of("bf16", "q", "k", "v"), **_of("fp32", "out"), "count": "i32"},
        {"M": 64, "N": 32, "D": 64},
        {"num_warps": 2, "num_stages": 2},
    ),
    "transposed-product": (
        transposed_product,
        {**_of("bf16", "a", "b"), **_of("fp32", "out"), "k": "i32"},
        {"M": 16, "N": 16, "K": 256},
        {"num_warps": 8, "num_stages": 2},
    ),
}
