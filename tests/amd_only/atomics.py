"""Atomics that some releases of Triton get wrong on AMD only."""

import triton
import triton.language as tl


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
    """Add to the first `count`."""
    at = tl.arange(0, N)
    tl.atomic_add(x + at, tl.load(y + at), mask=at < count)


@triton.jit
def count(x, out):
    """Count the programs that came: the default order, which releases and acquires."""
    tl.store(out + tl.program_id(0), tl.atomic_add(x, 1))


def _of(kind, *names):
    return dict.fromkeys(names, f"*{kind}")


KERNELS = {
    "exchange-i32": (exchange, _of("i32", "x", "out"), {"N": 32}, {}),
    "exchange-all-i32": (exchange_all, _of("i32", "x", "out"), {"N": 1024}, {}),
    "exchange-one-fp32": (exchange_one, _of("fp32", "x", "out"), {}, {}),
    "add-and-use-i32": (add_and_use, _of("i32", "x", "y", "out"), {"N": 32, "COLUMNS": 32}, {}),
    "add-some-fp16": (add_some, {**_of("fp16", "x", "y"), "count": "i32"}, {"N": 256}, {"num_warps": 1}),
    "add-some-bf16": (add_some, {**_of("bf16", "x", "y"), "count": "i32"}, {"N": 256}, {"num_warps": 1}),
    "count": (count, _of("i32", "x", "out"), {}, {}),
}
