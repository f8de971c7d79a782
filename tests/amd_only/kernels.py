"""Kernels that some releases of Triton get wrong on AMD only."""

import pingpong
import triton
import triton.language as tl
from triton.language.extra.hip import libdevice


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


LOOPS_AND_MEMORY = {
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


# Kernels that choose between pointers, which some releases of Triton do not compile for AMD.


@triton.jit
def choose(a, b, c, out, which, N: tl.constexpr):
    """Load from the tensor that a chain of `if` and `elif` chooses."""
    at = tl.arange(0, N)
    chosen = a
    if which == 0:
        chosen = b
    elif which == 1:
        chosen = c
    tl.store(out + at, tl.load(chosen + at))


@triton.jit
def choose_by_row(a, b, out, N: tl.constexpr):
    """Load the second row from another tensor, as triton-lang/triton#10381 does."""
    row, at = tl.arange(0, 4), tl.arange(0, N)
    chosen = a + row * 0
    chosen = tl.where(row == 1, b, chosen)
    tl.store(out + row[:, None] * N + at[None, :], tl.load(chosen[:, None] + at[None, :]))


POINTERS = {
    "choose": (choose, {**dict.fromkeys(("a", "b", "c", "out"), "*fp32"), "which": "i32"}, {"N": 256}, {}),
    "choose-by-row": (choose_by_row, dict.fromkeys(("a", "b", "out"), "*fp32"), {"N": 64}, {}),
}


# Atomics that some releases of Triton get wrong on AMD only.


@triton.jit
def exchange(x, out, N: tl.constexpr):
    """Swap 1 for 2 in one place for each row."""
    row, one = tl.arange(0, N)[:, None], tl.full((N, 1), 1, x.dtype.element_ty)
    old = tl.atomic_cas(x + row, one, one + one)
    tl.store(out + row * 4 + tl.arange(0, 4)[None, :], old + tl.zeros((1, 4), x.dtype.element_ty))


@triton.jit
def exchange_all(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.atomic_cas(x + at, tl.full((N,), 1, x.dtype.element_ty), tl.full((N,), 2, x.dtype.element_ty)))


@triton.jit
def exchange_one(x, out):
    tl.store(out, tl.atomic_cas(x, tl.load(out), tl.load(out + 1)))


@triton.jit
def add_and_use(x, y, out, N: tl.constexpr, COLUMNS: tl.constexpr):
    """What was there before an addition, one place for each row."""
    row = tl.arange(0, N)[:, None]
    old = tl.atomic_add(x + row, tl.load(y + row))
    tl.store(out + row * COLUMNS + tl.arange(0, COLUMNS)[None, :], old + tl.zeros((1, COLUMNS), x.dtype.element_ty))


@triton.jit
def add_some(x, y, count, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.atomic_add(x + at, tl.load(y + at), mask=at < count)


@triton.jit
def count(x, out):
    """Count the programs that came: the default order, which releases and acquires."""
    tl.store(out + tl.program_id(0), tl.atomic_add(x, 1))


ATOMICS = {
    "exchange-i32": (exchange, _of("i32", "x", "out"), {"N": 32}, {}),
    "exchange-all-i32": (exchange_all, _of("i32", "x", "out"), {"N": 1024}, {}),
    "exchange-one-fp32": (exchange_one, _of("fp32", "x", "out"), {}, {}),
    "add-and-use-i32": (add_and_use, _of("i32", "x", "y", "out"), {"N": 32, "COLUMNS": 32}, {}),
    "add-some-fp16": (add_some, {**_of("fp16", "x", "y"), "count": "i32"}, {"N": 256}, {"num_warps": 1}),
    "add-some-bf16": (add_some, {**_of("bf16", "x", "y"), "count": "i32"}, {"N": 256}, {"num_warps": 1}),
    "count": (count, _of("i32", "x", "out"), {}, {}),
}


# Conversions, mathematics and products that some releases of Triton get wrong on AMD only.


@triton.jit
def cast(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@triton.jit
def multiply(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * tl.load(y + at))


@triton.jit
def product(a, b, out, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="tf32"))


@triton.jit
def plain_product(a, b, out, N: tl.constexpr, K: tl.constexpr):
    n, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.dot(tl.load(a + n[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.store(out + n[:, None] * N + n[None, :], total)


@triton.jit
def chained(q, k, v, out, count, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    left, total = tl.load(q + m[:, None] * D + d[None, :]), tl.zeros((M, D), tl.float32)
    for start in range(0, count, N):
        between = tl.dot(left, tl.load(k + d[:, None] + (start + n[None, :]) * D))
        total = tl.dot(between.to(tl.float16), tl.load(v + (start + n[:, None]) * D + d[None, :]), total)
    tl.store(out + m[:, None] * D + d[None, :], total)


@triton.jit
def tanh(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, libdevice.fast_tanhf(tl.load(x + at)))


@triton.jit
def logarithm(x, y, out, count, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    mask = at < count
    value = tl.load(x + (at % 640 + 896 * (at // 640)), mask).to(tl.float32)
    other = tl.load(y + at // 640, mask, eviction_policy="evict_last").to(tl.float32)
    tl.store(out + at, value * tl.log(other + 1.0), mask)


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, add))


CASTS = [
    *((eight, wide) for eight in ("fp8e4b8", "fp8e5b16") for wide in ("fp16", "bf16", "fp32")),
    *(("fp32", "fp8e4nv"), ("fp32", "fp8e5"), ("fp16", "fp8e4nv"), ("fp8e4nv", "bf16"), ("bf16", "fp8e4b8")),
]
# Function, types of its arguments, constants, options.
NUMBERS_AND_PRODUCTS = {
    **{f"{source}-{target}": (cast, {"x": f"*{source}", "out": f"*{target}"}, {"N": 256}, {}) for source, target in CASTS},
    "pingpong": (pingpong.matmul, pingpong.TYPES, pingpong.TILE, pingpong.OPTIONS),
    "bf16-product": (multiply, {"x": "*bf16", "y": "*bf16", "out": "*bf16"}, {"N": 4096}, {}),
    "tf32-nan": (product, {"a": "*fp32", "b": "*fp32", "out": "*fp32"}, {"N": 32}, {"num_warps": 1}),
    "chained": (chained, {**dict.fromkeys("qkv", "*fp16"), "out": "*fp32", "count": "i32"}, {"M": 64, "N": 64, "D": 64}, {"num_stages": 4}),
    "tanh": (tanh, {"x": "*fp32", "out": "*fp32"}, {"N": 1024}, {}),
    **{f"{a}-by-{b}": (plain_product, {"a": f"*{a}", "b": f"*{b}", "out": "*fp32"}, {"N": 32, "K": k}, {"num_warps": 1})
       for a, b, k in (("fp8e4b8", "fp8e5b16", 32), ("fp8e4nv", "fp8e5", 16), ("fp8e5", "fp8e4nv", 32))},
    "logarithm": (logarithm, {"x": "*bf16", "y": "*i64", "out": "*bf16", "count": "i32"}, {"N": 1024}, {}),
    "scan": (scan, {"x": "*fp32", "out": "*fp32"}, {"N": 4096}, {"num_warps": 8}),
}  # fmt: skip


KERNELS = {**NUMBERS_AND_PRODUCTS, **ATOMICS, **POINTERS, **LOOPS_AND_MEMORY}
