"""Kernels that leave their tensors. `FAULT` plants the fault; without it each is right."""

import triton
import triton.language as tl


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr, READ: tl.constexpr, WRITE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if READ == "no mask":
        value = tl.load(x + i)
    elif READ == "one too many":
        value = tl.load(x + i, mask=i <= n)
    elif READ == "one too early":
        value = tl.load(x + i - 1, mask=i < n)
    else:
        value = tl.load(x + i, mask=i < n)
    if WRITE == "no mask":
        tl.store(out + i, value)
    elif WRITE == "one too many":
        tl.store(out + i, value, mask=i <= n)
    else:
        tl.store(out + i, value, mask=i < n)


@triton.jit
def far_apart(x, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    step = 2 * BLOCK if FAULT else BLOCK
    i = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def rows(x, out, columns, READ_STRIDE, WRITE_STRIDE, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * READ_STRIDE + i, mask=i < columns)
    tl.store(out + row * WRITE_STRIDE + i, value, mask=i < columns)


@triton.jit
def tile(x, out, M, N, stride_m, stride_n, BM: tl.constexpr, BN: tl.constexpr, FAULT: tl.constexpr):
    m, n = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    if FAULT == "rows only":
        inside = (m < M) & (n < BN)
    elif FAULT == "mixed up":
        inside = (m < N) & (n < M)
    else:
        inside = (m < M) & (n < N)
    tl.store(out + m * N + n, tl.load(x + m * stride_m + n * stride_n, mask=inside), mask=(m < M) & (n < N))


@triton.jit
def gather(x, index, out, n, limit, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    where = tl.load(index + i, mask=i < n, other=0)
    inside = i < n if FAULT else (i < n) & (where < limit)
    tl.store(out + i, tl.load(x + where, mask=inside, other=0.0), mask=i < n)


@triton.jit
def scatter(x, index, out, n, limit, BLOCK: tl.constexpr, FAULT: tl.constexpr, ATOMIC: tl.constexpr):
    i = tl.arange(0, BLOCK)
    where = tl.load(index + i, mask=i < n, other=0)
    inside = i < n if FAULT else (i < n) & (where < limit)
    value = tl.load(x + i, mask=i < n)
    if ATOMIC:
        tl.atomic_add(out + where, value, mask=inside)
    else:
        tl.store(out + where, value, mask=inside)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    kept = tl.zeros((BLOCK,), tl.float32)
    end = n + BLOCK if FAULT else n
    for start in range(0, end, BLOCK):
        kept += tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(kept))


@triton.jit
def wide(x, out, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    pointer = x.to(tl.pointer_type(tl.int64))
    count: tl.constexpr = BLOCK if FAULT else BLOCK // 2
    i = tl.arange(0, count)
    tl.store(out + i, tl.load(pointer + i))


@triton.jit
def into_another(x, out, offset, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + offset + i))


@triton.jit
def one_of_two(x, y, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointer = tl.where(i % 2 == 0, x + i, y + i)
    value = tl.load(pointer, mask=i < BLOCK) if FAULT else tl.load(pointer, mask=i < n)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def from_a_table(table, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointer = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    value = tl.load(pointer + i) if FAULT else tl.load(pointer + i, mask=i < n)
    tl.store(out + tl.program_id(0) * n + i, value, mask=i < n)


@triton.jit
def described(x, out, M, N, READ_ROWS, WRITE_ROWS, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [READ_ROWS, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [WRITE_ROWS, N], [N, 1], [BM, BN])
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def given_descriptor(source, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    tl.store(out + m * N + n, source.load([0, 0]), mask=(m < M) & (n < N))


@triton.jit
def first(x, out, n, FAULT: tl.constexpr):
    tl.store(out, tl.load(x) if FAULT else tl.load(x, mask=n > 0, other=0.0))


@triton.jit
def helper(pointer, i):
    return tl.load(pointer + i)


@triton.jit
def with_a_helper(x, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    i = tl.arange(0, BLOCK)
    where = i + 1 if FAULT else i
    tl.store(out + i, helper(x, where))


@triton.jit
def store_beside(x, first, n, BLOCK: tl.constexpr, OFFSET):
    """Store a row; with an offset, in another tensor than the pointer's."""
    i = tl.arange(0, BLOCK)
    tl.store(first + OFFSET + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def described_columns(x, out, M, N, COLUMNS, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, COLUMNS], [N, 1], [BM, BN])
    m, n = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    tl.store(out + m * N + n, source.load([0, 0]), mask=(m < M) & (n < N))


@triton.jit
def count_down(x, out, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    """Add up from the end; an unsigned index that passes 0 is a large one."""
    total, i = 0.0, (n - 1).to(tl.uint32)
    for _ in range(0, n + 1 if FAULT else n):
        total += tl.load(x + i)
        i -= 1
    tl.store(out, total)
