"""Lanes that a masked load leaves undefined: each kernel here is compiled to Triton's first code, without a card.

A comment says which load is reported, and where its lanes arrive.
"""

import inspect

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from warpwave.inside.codegen.undefined import Followed, follow
from warpwave.inside.fake_gpu.interpreter import make_first_code

CARDS = [GPUTarget("hip", "gfx942", 64), GPUTarget("cuda", 90, 32)]
SIZES = {"M": 16, "N": 64}
GUILTY, INNOCENT = [], []


def guilty(function):
    GUILTY.append(triton.jit(function))


def innocent(function):
    INNOCENT.append(triton.jit(function))


def followed(kernel, card=CARDS[0], memory=True, unknown=(), **given):
    """Follow a launch of sixteen programs, whose tensors have ones if nothing else is given for them."""
    kinds = {"n": "i32", "m": "i32", "indices": "*i32", "lock": "*i32", **dict.fromkeys(SIZES, "constexpr")}
    signature = {name: kinds.get(name, "*fp32") for name in kernel.arg_names}
    constants = {name: size for name, size in SIZES.items() if name in signature}
    ttir = make_first_code(ASTSource(kernel, signature, constants), card, {"enable_fp_fusion": True})
    given = {"n": 10, "m": 7, **given}
    tensors = {name: np.ones(4096, "i4" if kinds.get(name) == "*i32" else "f4") for name, kind in signature.items() if kind.startswith("*")}
    for name in tensors.keys() & given.keys():
        tensors[name][: len(given[name])] = given[name]
    given |= {name: tensor.ctypes.data for name, tensor in tensors.items()}
    names = [name for name in signature if name not in SIZES]
    readable = [(tensor.ctypes.data, tensor.nbytes) for tensor in tensors.values()] if memory else []
    return follow(ttir, [given[name] for name in names], (16, 1, 1), readable, {names.index(name) for name in unknown})


@triton.jit
def masked_sum(v, m):
    return tl.sum(tl.where(m, v, 0.0))


@triton.jit
def mean(v, n):
    return tl.sum(v) / n  # a helper's sum


@triton.jit(noinline=True)
def twice(v):
    return v * 2


@triton.jit(noinline=True)
def put(y, v):
    tl.store(y, v)


@triton.jit
def weighted(a, of_a, b, of_b):
    total = of_a + of_b
    return a + (b - a) * tl.where(total == 0, 0.0, of_b / total), total


@triton.jit
def first_valid(a, is_a, b, is_b):
    return tl.where(is_a != 0, a, b), is_a | is_b


@guilty
def weighted_by_zero(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(y, tl.reduce((v, (i < n).to(tl.float32)), 0, weighted)[0])  # use


@guilty
def carried_sum(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for k in range(0, n, N):
        acc += tl.load(x + k + i, mask=k + i < n)  # load
    tl.store(y, tl.sum(acc, 0) + tl.sum(acc, 0))  # use


@guilty
def zero_rows(x, y, z, n, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + r[:, None] * n + c[None, :], mask=c[None, :] < n)  # load
    b = tl.where(c[:, None] < n, tl.load(y + c[:, None] * M + r[None, :]), 0.0)
    tl.store(z + r[:, None] * M + r[None, :], tl.dot(a, b))  # use


@guilty
def reverse_scan(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(y + i, tl.cumsum(v, 0, reverse=True), mask=i < n)  # use


@guilty
def atomic(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.atomic_add(y + i, v)  # use


@guilty
def address(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    j = tl.load(indices + i, mask=i < n)  # load
    v = tl.load(x + j)  # use
    tl.store(y + i, v, mask=i < n)


@guilty
def mask(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    on = tl.load(indices + i, mask=i < n) != 0  # load
    tl.store(y + i, 1.0, mask=on)  # use


@guilty
def choice_of_the_others(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(y, tl.sum(tl.where(i < n, 0.0, v)))  # use


@guilty
def what_one_of_some_addresses_holds(x, y, z, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(z + i, tl.load(y + tl.where(v > 0, i, 0)))  # use


@guilty
def condition_between_others(x, y, z, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    d = tl.load(y + i, mask=i < n, other=0.0)
    tl.store(z, tl.sum(tl.where(v > 0, d, -0.0)))  # use


@innocent
def condition_between_equals(x, y, z, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
    d = tl.load(y + i, mask=i < n, other=0.0)
    tl.store(z, tl.sum(tl.where(v > 0, d * 2.0, 0.0)))


@innocent
def bits_that_are_all_set(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(indices + i, mask=i < n)
    tl.store(y, tl.min((v & 0x7FFFFFFF) | tl.where(i < n, 0, 0x7FFFFFFF)))


@guilty
def bits_that_are_partly_set(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(indices + i, mask=i < n)  # load
    tl.store(y, tl.min((v & 0x7FFFFFFF) | tl.where(i < n, 0, 0x7FFFFF00)))  # use


@innocent
def bounds_that_meet(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(indices + i, mask=i < n)
    tl.store(y, tl.sum(tl.minimum(tl.maximum(v, 0), tl.where(i < n, 100, 0)) + ((v & 255) >> 8)))


@guilty
def a_rare_number(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(indices + i, mask=i < n)  # load
    tl.store(y, tl.sum((v == 12345).to(tl.int32) & 1))  # use


@guilty
def half_of_a_mask(x, y, n, m, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=(i < n) & (i >= m))  # load
    tl.store(y + i, v, mask=i < n)  # use


@guilty
def other_axis(x, y, n, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=r[:, None] < n)  # load
    tl.store(y + c, tl.sum(v, 0))  # use


@guilty
def called(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(y, mean(v, n))


@guilty
def not_inlined(x, y, n):
    p = tl.program_id(0)
    v = tl.load(x + p, mask=p < n)  # load
    put(y + p, twice(v))


@guilty
def branch(x, y, n):
    p = tl.program_id(0)
    v = tl.load(x + p, mask=p < n)  # load
    if v > 0:
        tl.store(y + p, 1.0)  # use


@guilty
def sorted_lanes(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(y + i, tl.sort(v), mask=i < n)  # use


@guilty
def gathered(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    tl.store(y + i, tl.gather(v, N - 1 - i, 0), mask=i < n)  # use


@guilty
def clamped_on_one_side(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    j = tl.load(indices + i, mask=i < n)  # load
    tl.store(y + i, tl.load(x + tl.minimum(j, 100)), mask=i < n)  # use


@guilty
def row_of_a_descriptor(indices, x, y, n, N: tl.constexpr):
    p, c = tl.program_id(0), tl.arange(0, N)
    rows = tl.make_tensor_descriptor(x, [60, N], [N, 1], [1, N])
    row = tl.load(indices + p, mask=p < n)  # load
    v = tl.reshape(rows.load([row, 0]), (N,))
    tl.store(y + p * N + c, v)  # use


@guilty
def old_values(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    old = tl.atomic_add(indices + i, 1, mask=i < n)  # load
    tl.store(y, tl.sum(old))  # use


@guilty
def whole_product(indices, y, n, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(indices + r[:, None] * N + c[None, :], mask=c[None, :] < n).to(tl.int8)  # load
    b = tl.load(indices + c[:, None] * M + r[None, :], mask=c[:, None] < n + 1, other=0).to(tl.int8)
    tl.store(y + r[:, None] * M + r[None, :], tl.dot(a, b, out_dtype=tl.int32))  # use


@innocent
def clamped(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    j = tl.load(indices + i, mask=i < n)
    j = tl.minimum(tl.maximum(j, 0), 100)
    tl.store(y + i, tl.load(x + j) + tl.load(x + (j.to(tl.uint32) * 77 & 63)) + tl.load(x + j % 7), mask=i < n)


@innocent
def guarded(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    j = tl.load(indices + i, mask=i < n)
    tl.store(y + i, tl.load(x + j, mask=(j >= 0) & (j < 100), other=0.0), mask=i < n)


@innocent
def two_codes_of_a_byte(indices, x, y, n, N: tl.constexpr):
    i, j = tl.arange(0, N), tl.arange(0, 2 * N)
    b = tl.load(indices + i, mask=i < n)
    tl.store(y + j, tl.load(x + tl.interleave(b & 15, (b >> 4) & 15)), mask=j < 2 * n)


@innocent
def row_that_is_not_stored(indices, x, y, n, N: tl.constexpr):
    p, c = tl.program_id(0), tl.arange(0, N)
    rows = tl.make_tensor_descriptor(x, [60, N], [N, 1], [1, N])
    v = tl.reshape(rows.load([tl.load(indices + p, mask=p < n), 0]), (N,))
    tl.store(y + p * N + c, v, mask=(p < n) & (c < N))


@innocent
def places(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    old = tl.atomic_add(indices + i % 4, 1, mask=i < n)
    tl.store(y + old, 1, mask=i < n)


@innocent
def whole_product_with_zeros(indices, y, n, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(indices + r[:, None] * N + c[None, :], mask=c[None, :] < n).to(tl.int8)
    b = tl.load(indices + c[:, None] * M + r[None, :], mask=c[:, None] < n, other=0).to(tl.int8)
    tl.store(y + r[:, None] * M + r[None, :], tl.dot(a, b, out_dtype=tl.int32))


@innocent
def dropped_in_a_loop(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for k in range(0, n, N):
        acc += tl.where(k + i < n, tl.load(x + k + i, mask=k + i < n), 0.0)
    tl.store(y, tl.sum(acc))


@innocent
def one_round_ahead(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
    s = 0.0
    for k in range(0, n, N):
        s += tl.sum(tl.where(k + i < n, v, 0.0))
        v = tl.load(x + k + N + i, mask=k + N + i < n)
    tl.store(y, s)


@innocent
def carried_mask(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    on = i < n
    v = tl.load(x + i, mask=on)
    s = 0.0
    for _ in range(0, 5):
        s += tl.sum(tl.where(on, v, 0.0))
        i += N
        on = i < n
        v = tl.load(x + i, mask=on)
    tl.store(y, s)


@innocent
def in_a_while(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    k, s = 0, 0.0
    while k < n:
        s += masked_sum(tl.load(x + k + i, mask=k + i < n), k + i < n)
        k += N
    tl.store(y, s)


@innocent
def behind_a_lock(lock, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y + i, v + tl.load(y + i, mask=i < n), mask=i < n)
    tl.atomic_xchg(lock, 0)


@guilty
def summed_behind_a_lock(lock, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)  # load
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y, tl.load(y) + tl.sum(v))  # use
    tl.atomic_xchg(lock, 0)


@innocent
def rows_of_a_product(x, y, z, n, m, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N)
    s = tl.program_id(1) * M + tl.arange(0, M)
    acc = tl.zeros((M, M), tl.float32)
    for k in range(0, 4):
        a = tl.load(x + r[:, None] * 256 + k * N + c[None, :], mask=r[:, None] < n)
        b = tl.load(y + (k * N + c[:, None]) * m + s[None, :], mask=s[None, :] < m)
        acc = tl.dot(a, b, acc)
    tl.store(z + r[:, None] * m + s[None, :], acc, mask=(r < n)[:, None] & (s < m)[None, :])


@innocent
def scan_of_the_first(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.cumsum(tl.load(x + i, mask=i < n), 0), mask=i < n)


@innocent
def chosen_while_reduced(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
    tl.store(y, tl.reduce((v, (i < n).to(tl.int32)), 0, first_valid)[0])


@innocent
def index_under_a_mask(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    j = tl.load(indices + i, mask=i < n)
    on = (j != 3) & (i < n)
    tl.store(y + i, tl.load(x + j, mask=on), mask=on)


@innocent
def one_of_some_addresses(x, y, z, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
    tl.store(z + i, tl.load(y + tl.where(v > 0, i, 0)), mask=i < n)


@innocent
def mask_from_memory(indices, x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    on = tl.load(indices + i, mask=i < n, other=0) != 0
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=on)


@innocent
def whole_numbers_by_zero(indices, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y, tl.sum(tl.load(indices + i, mask=i < n) * (i < n).to(tl.int32)))


@innocent
def compared_in_another_way(x, y, n, m, N: tl.constexpr):
    p, i = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + i, mask=(i < n - p * N) & (i >= m))
    tl.store(y + i, tl.where((p * N + i >= n) | (i < m), 0.0, v))


@innocent
def turned_and_reshaped(x, y, n, M: tl.constexpr, N: tl.constexpr):
    r, c, i = tl.arange(0, M), tl.arange(0, N), tl.arange(0, M * N)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=r[:, None] * N + c[None, :] < n)
    tl.store(y + i, tl.flip(tl.reshape(v, (M * N,))), mask=M * N - 1 - i < n)


@innocent
def reached_only_where_full(x, y, n, N: tl.constexpr):
    p, i = tl.program_id(0), tl.arange(0, N)
    if p * N + N <= n:
        tl.store(y + p, tl.sum(tl.load(x + p * N + i, mask=p * N + i < n)))


@innocent
def returned_before(x, y, n):
    p = tl.program_id(0)
    if p >= n:
        return
    put(y + p, tl.load(x + p, mask=p < n))


@innocent
def descriptor(x, y, n, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    out = tl.make_tensor_descriptor(y, [n, 64], [64, 1], [M, N])
    out.store([0, 0], tl.load(x + r[:, None] * N + c[None, :], mask=r[:, None] < n))


@innocent
def rows_sorted(x, y, n, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=r[:, None] < n)
    tl.store(y + r[:, None] * N + c[None, :], tl.sort(v, 1), mask=r[:, None] < n)


def line_of(kernel, comment):
    """Return the line of a kernel, or of the helper that it calls, that has a comment."""
    for function in (kernel, mean, put):
        lines, first = inspect.getsourcelines(function.fn)
        for at, text in enumerate(lines):
            if text.rstrip().endswith(comment):
                return first + at
    return None


@pytest.mark.parametrize("kernel", GUILTY, ids=lambda kernel: kernel.fn.__name__)
def test_undefined_lanes_are_found_with_their_load_and_their_use(kernel):
    uses = {"called": line_of(mean, "# a helper's sum"), "not_inlined": inspect.getsourcelines(put.fn)[1] + 2}
    used = uses.get(kernel.fn.__name__) or line_of(kernel, "# use")

    for card in CARDS:
        ((found,), not_checked) = (followed(kernel, card).found, followed(kernel, card).not_checked)
        assert not not_checked
        assert (found.function, found.line, found.use) == (kernel.fn.__name__, line_of(kernel, "# load"), f"test_undefined.py:{used}")


@pytest.mark.parametrize("kernel", INNOCENT, ids=lambda kernel: kernel.fn.__name__)
def test_lanes_that_decide_nothing_are_not_reported(kernel):
    """They are dropped, masked, or never there."""
    none = Followed(kernel.fn.__name__)

    assert [followed(kernel, card, n=n) for card in CARDS for n in (10, 50, 64, 1000)] == [none] * 8


def test_a_finding_says_what_its_lanes_reach():
    (found,) = followed(next(kernel for kernel in GUILTY if kernel.fn.__name__ == "called")).found

    assert found.what == "tl.sum"
    assert found.finding.sentence.startswith(f"undefined-lanes in called at {found.place}: {found.reaches}: v = tl.load(")


# What a launch does is what counts: the same code is right for one, and wrong for another.


@triton.jit
def limited(x, y, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + i, tl.load(x + i, mask=i < 512), mask=i < n)


@triton.jit
def varying(indices, x, y, N: tl.constexpr):
    p, i = tl.program_id(0), tl.arange(0, N)
    tl.store(y + p, tl.sum(tl.load(x + p * N + i, mask=i < tl.load(indices + p))))


@triton.jit
def assembled(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
    (v,) = tl.inline_asm_elementwise("// $0 $1", "=r,r", [v], dtype=(tl.float32,), is_pure=True, pack=1)
    tl.store(y + i, v, mask=v > n)


@triton.jit
def scaled(indices, y, n, N: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, N)[None, :]
    v = tl.load(indices + i * N + j, mask=j < n).to(tl.int8)
    tl.store(y + tl.arange(0, 16), tl.histogram(tl.sum(v, 1).to(tl.int32), 16))


@triton.jit
def waiting(x, y, n):
    p = tl.program_id(0)
    v = tl.load(x + p, mask=p < n)
    k = 0
    while k < 100000000:
        k += 1
    tl.store(y + p, v, mask=p < n - k)


@pytest.mark.parametrize(
    ("kernel", "given", "is_found"),
    [
        (limited, {"n": 500}, False),
        (limited, {"n": 600}, True),
        (varying, {"indices": [64] * 16}, False),
        (varying, {"indices": [64, 64, 63, *[64] * 13]}, True),
    ],
)
def test_only_what_the_launch_does_is_reported(kernel, given, is_found):
    """Its numbers and its tensors decide: an alarm that no launch can hit would be false."""
    assert (len(followed(kernel, **given).found), followed(kernel, **given).not_checked) == (int(is_found), "")


@pytest.mark.parametrize(("kernel", "rest"), [(limited, {"n": 600, "unknown": ["n"]}), (varying, {"memory": False})])
def test_what_a_guess_decides_is_only_possible(kernel, rest):
    """Where there is no data, as in the compile stage; it is never silent."""
    done = followed(kernel, **rest)

    assert (len(done.found), len(done.possible)) == (0, 1)
    assert done.possible[0].sentence in done.not_checked


def test_addresses_that_stay_close_are_of_one_tensor_where_memory_is_not_known():
    kernels = {each.fn.__name__: each for each in [*INNOCENT, *GUILTY]}

    assert followed(kernels["clamped"], memory=False) == Followed("clamped")
    assert len(followed(kernels["clamped_on_one_side"], memory=False).found) == 1


def test_what_takes_too_long_says_so(monkeypatch):
    """With the kernel's name, so that it can be counted as not checked."""
    monkeypatch.setattr("warpwave.inside.codegen.undefined._MOST_OF_PROGRAM", 1000)
    assert followed(waiting).not_checked == "waiting takes too long to follow"


@gluon.jit
def in_gluon(indices, y, n, WANTED: gl.constexpr):
    one: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    other: gl.constexpr = gl.BlockedLayout([2], [64], [4], [0])
    i, j = gl.arange(0, 512, layout=one), gl.arange(0, 512, layout=other)
    v = gl.load(indices + i, mask=i < n)  # load
    if WANTED == "all":
        gl.store(y, gl.sum(v, 0))  # use
    elif WANTED == "by zero":
        gl.store(y, gl.sum(v * (i < n).to(gl.int32), 0))
    else:
        gl.store(y + j, gl.convert_layout(v, other), mask=j < n)


@pytest.mark.parametrize(("wanted", "is_found"), [("all", True), ("by zero", False), ("some", False)])
def test_gluons_code_is_followed_too(wanted, is_found):
    """It has layouts, and calls of functions that are not inlined: what they do is at the line that calls them."""
    source = GluonASTSource(in_gluon, {"indices": "*i32", "y": "*i32", "n": "i32", "WANTED": "constexpr"}, {"WANTED": wanted})
    done = follow(triton.compile(source, target=CARDS[0], options={"enable_fp_fusion": True}).asm["source"], [0, 0, 500], (1, 1, 1))
    lines, first = inspect.getsourcelines(in_gluon.fn)
    load, use = (first + next(at for at, text in enumerate(lines) if text.rstrip().endswith(word)) for word in ("# load", "# use"))

    assert [(each.what, each.line, each.use) for each in done.found] == [("gl.sum", load, f"test_undefined.py:{use}")] * is_found
    assert not done.not_checked
