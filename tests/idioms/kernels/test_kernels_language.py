"""Arithmetic whose ends matter: signs of zeros, NaN, numbers that do not fit, and what type a comparison has."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@triton.jit
def compared_kernel(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, (a > b).to(tl.float32))
    tl.store(out + N + at, tl.reshape(a == b, (N // 4, 4)).reshape((N,)).to(tl.float32) + (a != b).to(tl.int32))
    tl.store(out + 2 * N + at, ((a > 0) + (b > 0)).to(tl.float32))
    tl.store(out + 3 * N, tl.sum((a <= b).to(tl.int32), axis=0).to(tl.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_comparison_is_of_one_bit(dtype):
    x, y = torch.randn(64, device="cuda").to(dtype), torch.randn(64, device="cuda").to(dtype)
    y[::5] = x[::5]
    out = torch.zeros(4 * 64, device="cuda")
    compared_kernel[(1,)](x, y, out, N=64)
    found = out.view(4, 64)
    torch.testing.assert_close(found[0], (x > y).float())
    torch.testing.assert_close(found[1], torch.ones(64, device="cuda"))
    torch.testing.assert_close(found[2], ((x > 0) ^ (y > 0)).float())
    assert found[3, 0] == (x <= y).sum()


@triton.jit
def extremes_kernel(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.minimum(a, b))
    tl.store(out + N + at, tl.maximum(a, b))
    tl.store(out + 2 * N + at, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 3 * N + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_smaller_of_zeros_and_nan(dtype):
    nan = float("nan")
    x = torch.tensor([nan, 2.0, -0.0, 0.0, 1.0, nan, -3.0, 5.0], device="cuda", dtype=dtype)
    y = torch.tensor([1.0, nan, 0.0, -0.0, 2.0, nan, -4.0, 5.0], device="cuda", dtype=dtype)
    out = torch.empty(4 * 8, device="cuda", dtype=dtype)
    extremes_kernel[(1,)](x, y, out, N=8)
    found = out.view(4, 8).float()
    expected = [
        [1.0, 2.0, -0.0, -0.0, 1.0, nan, -4.0, 5.0],
        [1.0, 2.0, 0.0, 0.0, 2.0, nan, -3.0, 5.0],
        [nan, nan, -0.0, -0.0, 1.0, nan, -4.0, 5.0],
        [nan, nan, 0.0, 0.0, 2.0, nan, -3.0, 5.0],
    ]
    expected = torch.tensor(expected, device="cuda")
    torch.testing.assert_close(found, expected, equal_nan=True)
    torch.testing.assert_close(found.signbit()[:, 2:4], expected.signbit()[:, 2:4])


@triton.jit
def converted_kernel(x, signed, unsigned, wide, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    tl.store(signed + at, a.to(tl.int32))
    tl.store(unsigned + at, a.to(tl.uint32).to(tl.int64))
    tl.store(wide + at, a.to(tl.int64))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_number_that_does_not_fit_is_the_largest(dtype):
    """NaN is 0 in 32 bits."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -7.5, 2.75, 0.0, 300.0, -0.5], device="cuda", dtype=dtype)
    signed = torch.empty(8, device="cuda", dtype=torch.int32)
    unsigned, wide = (torch.empty(8, device="cuda", dtype=torch.int64) for _ in range(2))
    converted_kernel[(1,)](x, signed, unsigned, wide, N=8)
    assert signed.tolist() == [0, 2**31 - 1, -(2**31), -7, 2, 0, 300, 0]
    assert unsigned.tolist() == [0, 2**32 - 1, 0, 0, 2, 0, 300, 0]
    assert wide.tolist()[3:] == [-7, 2, 0, 300, 0]
    if torch.version.hip is None:  # others compute 64 bits from two halves
        assert wide.tolist()[1:3] == [2**63 - 1, -(2**63)]


@triton.jit
def bits_kernel(x, y, inverted, high, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(inverted + at, ~a)
    tl.store(high + at, tl.umulhi(a, b))


def test_the_high_half_of_a_product():
    """Of signed numbers too, it is that of their bits."""
    x = torch.tensor([-1, 5, -(2**31), 2**31 - 1, 7, -9, 0, 123456789], device="cuda", dtype=torch.int32)
    y = torch.tensor([2, -3, -1, 2**31 - 1, 1, -9, 5, 987654321], device="cuda", dtype=torch.int32)
    inverted, high = torch.empty_like(x), torch.empty_like(x)
    bits_kernel[(1,)](x, y, inverted, high, N=8)
    products = [(a % 2**32) * (b % 2**32) >> 32 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert [value % 2**32 for value in high.tolist()] == products
    torch.testing.assert_close(inverted, ~x)


@triton.jit
def inverted_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, ~tl.load(x + at))


def test_the_bits_of_an_unsigned_number():
    x = torch.arange(0, 256, 8, device="cuda", dtype=torch.uint8)
    out = torch.empty_like(x)
    inverted_kernel[(1,)](x, out, N=32)
    torch.testing.assert_close(out, ~x)


@triton.jit
def fused_kernel(x, y, z, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.fma(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


def test_a_fused_product_is_rounded_once():
    x, y, z = (torch.randn(256, device="cuda").half() for _ in range(3))
    out = torch.empty_like(x)
    fused_kernel[(1,)](x, y, z, out, N=256)
    torch.testing.assert_close(out, (x.double() * y.double() + z.double()).half(), rtol=0, atol=0)


# Where a kernel's own types count: constants that a function returns, truths that are added, and numbers whose type it names.


@triton.jit
def order(x, y):
    if x < y:
        return -1
    if x == y:
        return 0
    return 1


@triton.jit
def order_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.map_elementwise(order, tl.load(x_ptr + at), tl.load(y_ptr + at)))


@pytest.mark.skipif(not hasattr(tl, "map_elementwise"), reason="since Triton 3.5")
def test_a_function_of_single_elements_that_returns_constants():
    x, y = torch.arange(64, device="cuda"), torch.full((64,), 20, device="cuda")
    out = torch.empty(64, dtype=torch.int32, device="cuda")
    order_kernel[(1,)](x, y, out, BLOCK=64)
    assert out.tolist() == [-1] * 20 + [0] + [1] * 43


@triton.jit
def truths_kernel(out_ptr, n, BLOCK: tl.constexpr):
    truths = tl.arange(0, BLOCK) < n
    tl.store(out_ptr, tl.sum(truths))
    tl.store(out_ptr + 1, tl.sum(truths, dtype=tl.int1).to(tl.int32))
    rows = tl.sum(tl.reshape(truths, (2, BLOCK // 2)), axis=1, dtype=tl.int1)
    tl.store(out_ptr + 2, tl.sum(rows.to(tl.int32)))


@pytest.mark.parametrize("number", [6, 33, 64])
def test_a_sum_of_truths(number):
    """In their own type, it has one bit."""
    out = torch.empty(3, dtype=torch.int32, device="cuda")
    truths_kernel[(1,)](out, number, BLOCK=64)
    assert out.tolist() == [number, number % 2, min(number, 32) % 2 + max(number - 32, 0) % 2]


@triton.jit
def typed_kernel(out_ptr, half_ptr, n: tl.int64, x: tl.float16):
    tl.store(out_ptr, n * n)
    tl.store(half_ptr, x)


def test_numbers_whose_type_the_kernel_names():
    """The square of 2**20 needs 64 bits, and a third has other digits in fp16."""
    out, half = torch.empty(1, dtype=torch.int64, device="cuda"), torch.empty(1, device="cuda")
    typed_kernel[(1,)](out, half, 1 << 20, 1 / 3)
    assert out.item() == 1 << 40
    assert half.item() == torch.tensor(1 / 3, dtype=torch.float16).item()


@triton.jit
def even_kernel(out_ptr, SIZE: tl.constexpr):
    tl.static_assert(SIZE % 2 == 0, "an even size")
    tl.store(out_ptr + tl.arange(0, SIZE), 1.0)


@pytest.mark.parametrize(("size", "said"), [(3, "an even size"), (6, "power of 2")])
def test_what_the_compiler_refuses(size, said):
    out = torch.empty(8, device="cuda")
    with pytest.raises(triton.CompilationError) as caught:
        even_kernel[(1,)](out, SIZE=size)
    assert said in f"{caught.value} {caught.value.__cause__}"
    even_kernel[(1,)](out, SIZE=8)
    assert (out == 1).all()


# Kernels that a function makes, and other ways to name the language than `tl`.


@triton.jit
def negative(value):
    return -value


def make(factor, activation):
    import triton.language as tl

    scaling = tl.constexpr(factor)

    @triton.jit
    def helper(value):
        return activation(value) * scaling

    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr = 64):
        at = tl.arange(0, BLOCK)
        value = helper(tl.load(x + at, mask=at < n))
        if scaling > 2:
            value += 1
        tl.store(y + at, value, mask=at < n)

    return kernel


def made_here():
    import triton.language as tl

    @triton.jit
    def plus_one(x, y, n, BLOCK: tl.constexpr = 64):
        at = tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    return plus_one


MADE = {
    "by a factory": (lambda: make(1, negative), lambda x: -x),
    "with another constant": (lambda: make(3, negative), lambda x: -x * 3 + 1),
    "with the language imported there": (made_here, lambda x: x + 1),
    "with the language spelled out": (lambda: spelled_out_kernel, lambda x: 2 * x),
}


@pytest.mark.parametrize("way", MADE)
def test_a_kernel_that_is_made(way):
    kernel, expected = MADE[way]
    x = torch.randn(50, device="cuda")
    y = torch.empty_like(x)
    kernel()[(1,)](x, y, 50, BLOCK=64)
    torch.testing.assert_close(y, expected(x))


def test_a_tuned_kernel_with_a_constant_of_the_function_around_it():
    import triton.language as tl

    offset = tl.constexpr(3)

    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def shifted(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) + offset, mask=at < n)

    x = torch.randn(500, device="cuda")
    y = torch.empty_like(x)
    shifted[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, y, 500)
    torch.testing.assert_close(y, x + 3)


@triton.jit
def spelled_out_kernel(x, y, n, BLOCK: triton.language.constexpr):
    at = triton.language.arange(0, BLOCK)
    triton.language.store(y + at, triton.language.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def square_kernel(out, BLOCK: triton.language.constexpr):
    triton.language.static_assert(BLOCK <= 64, "BLOCK is above 64")
    triton.language.store(out + triton.language.arange(0, BLOCK), BLOCK * 1.0)


def test_a_kernel_that_refuses_its_constants():
    out = torch.zeros(128, device="cuda")
    square_kernel[(1,)](out, BLOCK=64)
    assert (out[:64] == 64).all()
    with pytest.raises(Exception, match="BLOCK is above 64"):
        square_kernel[(1,)](out, BLOCK=128)


# Products of microscaled numbers: each group of 32 elements along K has a power of two as its scale.

M, N, K = 32, 16, 128
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


@triton.jit
def scaled_kernel(a, a_scale, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, BYTES: tl.constexpr):
    left = tl.load(a + tl.arange(0, M)[:, None] * BYTES + tl.arange(0, BYTES)[None, :])
    scale = tl.load(a_scale + tl.arange(0, M)[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    right = tl.load(b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    total = tl.dot_scaled(left, scale, FORMAT, right, None, "bf16")
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


def numbers(data, format_):
    if format_ != "e2m1":
        return data.view(torch.float8_e5m2 if format_ == "e5m2" else torch.float8_e4m3fn).float()
    pairs = torch.stack([data & 15, data >> 4], dim=-1).flatten(1)
    return torch.tensor(E2M1, device=data.device)[pairs.long()]


@pytest.mark.parametrize("most", [0x0B, 0x7B], ids=["tiny", "any"])
@pytest.mark.parametrize("format_", ["e5m2", "e4m3", "e2m1"])
def test_a_product_of_scaled_numbers(format_, most):
    """The smallest numbers of fp8 count, too."""
    width = K // 2 if format_ == "e2m1" else K
    a = torch.randint(256, (M, width), device="cuda", dtype=torch.uint8) & (0x80 | most)
    b = torch.randn(K, N, device="cuda", dtype=torch.bfloat16)
    scale = torch.randint(120, 134, (M, K // 32), device="cuda", dtype=torch.uint8)
    out = torch.empty(M, N, device="cuda")
    scaled_kernel[(1,)](a, scale, b, out, M, N, K, format_, width)
    expected = numbers(a, format_) * torch.exp2(scale.float() - 127).repeat_interleave(32, dim=1) @ b.float()
    torch.testing.assert_close(out / expected.abs().max(), expected / expected.abs().max(), rtol=1e-3, atol=1e-5)


# Programs of one launch that wait for others.


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
    y, counter, flag, out = (torch.zeros(size, device="cuda", dtype=torch.int32) for size in (8, 1, 1, 1))
    rotated_kernel[(8,)](x, y, counter, ROUNDS=3)
    assert x.tolist() == [3, 4, 5, 6, 7, 0, 1, 2]
    told_kernel[(2,)](flag, out)
    assert out.item() == 5
    largest_kernel[(5,)](x, out.zero_(), 1000)
    assert out.item() == 3


@triton.jit
def told_kernel(flag, out):
    if tl.program_id(0) == 0:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.store(out, 5)
    else:
        tl.atomic_xchg(flag, 1)


@triton.jit
def largest_kernel(x, out, n):
    """It only looks like waiting: the answer is the same for long, and the loop ends."""
    for _ in range(n):
        tl.atomic_max(out, tl.load(x))


# Operations that work on elements, or through descriptors, and what a kernel asks of its card.


@triton.jit
def larger_side(a, b):
    if a > b:  # noqa: SIM108 - a branch is what the operation is for
        result = a - b
    else:
        result = b * 2
    return result


@triton.jit
def sum_and_product(a, b):
    return a + b, a * b


@triton.jit
def mapped_kernel(x, y, out, sums, products, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.map_elementwise(larger_side, a, b))
    total, product = tl.map_elementwise(sum_and_product, a, b)
    tl.store(sums + at, total)
    tl.store(products + at, product)


@triton.jit
def width_of(dtype):
    width: tl.constexpr = dtype.value.primitive_bitwidth
    return width


@triton.jit
def half_of(n):
    half: tl.constexpr = n.value // 2
    return half


@triton.jit
def width_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < half_of(BLOCK), other=width_of(x.dtype.element_ty)))


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 32), (torch.int16, 16)])
def test_the_value_of_a_constant_argument(dtype, width):
    x, out = torch.ones(4, device="cuda", dtype=dtype), torch.zeros(4, device="cuda", dtype=dtype)
    width_kernel[(1,)](x, out, BLOCK=4)
    assert out.tolist() == [1, 1, width, width]


@triton.jit
def fill_kernel(out, LOWEST: tl.constexpr, HIGHEST: tl.constexpr, MISSING: tl.constexpr):
    tl.store(out, LOWEST)
    tl.store(out + 1, HIGHEST)
    tl.store(out + 2, MISSING)


def test_infinity_and_nan_as_constants():
    out = torch.zeros(3, device="cuda")
    fill_kernel[(1,)](out, LOWEST=float("-inf"), HIGHEST=float("inf"), MISSING=float("nan"))
    torch.testing.assert_close(out, torch.tensor([float("-inf"), float("inf"), float("nan")], device="cuda"), equal_nan=True)


@pytest.mark.skipif(not hasattr(tl, "map_elementwise"), reason="since Triton 3.5")
def test_a_function_of_single_elements():
    x, y = torch.randn(64, device="cuda"), torch.randn(64, device="cuda")
    out, sums, products = (torch.empty_like(x) for _ in range(3))
    mapped_kernel[(1,)](x, y, out, sums, products, BLOCK=64)
    torch.testing.assert_close(out, torch.where(x > y, x - y, y * 2))
    torch.testing.assert_close(sums, x + y)
    torch.testing.assert_close(products, x * y)


@triton.jit
def reducing_kernel(x, out, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, KIND: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [ROWS, columns], [columns, 1], [ROWS, COLUMNS])
    value = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    if KIND == "add":
        target.atomic_add([0, 0], value)
        target.atomic_add([0, 0], value)
    else:
        target.atomic_max([0, 0], value)


@pytest.mark.skipif(torch.version.cuda is None or torch.cuda.get_device_capability()[0] < 9, reason="needs TMA")
@pytest.mark.parametrize(("kind", "dtype"), [("add", torch.float32), ("add", torch.float16), ("add", torch.int32), ("max", torch.int32)])
def test_a_reduction_through_a_descriptor(kind, dtype):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(16, 32, device="cuda").mul(10).to(dtype)
    out = torch.zeros_like(x)
    reducing_kernel[(1,)](x, out, 32, ROWS=16, COLUMNS=32, KIND=kind)
    torch.testing.assert_close(out, 2 * x if kind == "add" else x.clamp_min(0))


@triton.jit
def dependent_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    value = tl.load(x + at, mask=at < n)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(y + at, value + 1, mask=at < n)


@pytest.mark.skipif(torch.version.cuda is None or torch.cuda.get_device_capability()[0] < 9, reason="needs Hopper")
def test_a_launch_that_waits_for_the_one_before():
    x = torch.randn(200, device="cuda")
    y = torch.empty_like(x)
    dependent_kernel[(2,)](x, y, 200, BLOCK=128, launch_pdl=True)
    torch.testing.assert_close(y, x + 1)


@triton.jit
def place_kernel(places, times, HIP: tl.constexpr):
    program = tl.program_id(0)
    if HIP:
        tl.store(places + program, tl.extra.hip.smid())
        tl.store(times + program, tl.extra.hip.memrealtime())
    else:
        tl.store(places + program, tl.extra.cuda.smid())
        tl.store(times + program, tl.extra.cuda.globaltimer())


@pytest.mark.skipif(torch.version.hip is not None and not hasattr(tl.extra.hip, "smid"), reason="not in this Triton")
def test_where_and_when_a_program_runs():
    places = torch.full((8,), -1, device="cuda", dtype=torch.int32)
    times = torch.zeros(8, device="cuda", dtype=torch.int64)
    place_kernel[(8,)](places, times, HIP=torch.version.hip is not None)
    assert (places >= 0).all()
    assert (times > 0).all()


@triton.jit
def counting_kernel(counter, places):
    tl.store(places + tl.program_id(0), tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu"))


def test_a_counter_of_programs():
    counter = torch.tensor([0], device="cuda", dtype=torch.int32)
    places = torch.arange(8, device="cuda", dtype=torch.int32) - 9
    counting_kernel[(8,)](counter, places)
    assert counter.item() == 8
    assert sorted(places.tolist()) == list(range(8))


@triton.jit
def exchange_kernel(x, y, before, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    tl.store(before + at, tl.atomic_xchg(x + at, tl.load(y + at, mask=mask), mask=mask), mask=mask)


def test_an_exchange_of_floats():
    x, y = torch.randn(64, device="cuda"), torch.randn(64, device="cuda")
    before, expected = torch.zeros(64, device="cuda"), torch.cat([y[:50], x[50:]])
    kept = x.clone()
    exchange_kernel[(1,)](x, y, before, 50, BLOCK=64)
    torch.testing.assert_close(x, expected, rtol=0, atol=0)
    torch.testing.assert_close(before[:50], kept[:50], rtol=0, atol=0)


@triton.jit
def smallest_kernel(x, out, counts, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    at = tl.arange(0, max(BLOCK, 16))
    parts = min(PARTS, tl.cdiv(n, BLOCK)).to(tl.int64)
    last = max(n - 1, 0, PARTS).to(tl.int32)
    values = tl.load(x + min(at, n - 1))
    tl.store(out + at, max(min(values, 0.5), -0.5))
    tl.store(counts, parts)
    tl.store(counts + 1, last)


@pytest.mark.parametrize("n", [40, 1000])
def test_the_smallest_by_pythons_name(n):
    x, out = torch.randn(n, device="cuda"), torch.empty(64, device="cuda")
    counts = torch.empty(2, dtype=torch.int64, device="cuda")
    smallest_kernel[(1,)](x, out, counts, n, BLOCK=64, PARTS=4)
    expected = x[torch.arange(64, device="cuda").clamp(max=n - 1)]
    torch.testing.assert_close(out, expected.clamp(-0.5, 0.5))
    assert counts.tolist() == [min(4, triton.cdiv(n, 64)), max(n - 1, 4)]


@triton.jit
def chosen_kernel(x, lengths, out, n, ODD: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    valid = at < tl.load(lengths)
    chosen = (at < n) and valid
    if ODD is not None and ODD > 0:
        chosen = chosen and (at % 2 == 1)
    skipped = not chosen
    tl.store(out + at, tl.load(x + at, mask=chosen, other=0.0))
    ends = (at == 0 or at == BLOCK - 1) or not valid
    tl.store(out + BLOCK + at, tl.where(ends, 1.0, 0.0))
    tl.store(out + 2 * BLOCK + at, tl.where(skipped, 1.0, 0.0))
    if not BIAS and not (n < 0):
        tl.store(out + 3 * BLOCK, 5.0)


@pytest.mark.filterwarnings("ignore:Logical operators")
@pytest.mark.parametrize("odd", [None, 0, 1])
def test_pythons_and_or_and_not_of_blocks(odd):
    """The compiler advises against them, and packages have them."""
    x, out = torch.randn(64, device="cuda"), torch.zeros(4 * 64, device="cuda")
    chosen_kernel[(1,)](x, torch.tensor([30], device="cuda"), out, 40, ODD=odd, BIAS=False, BLOCK=64)
    at = torch.arange(64, device="cuda")
    chosen = (at < 30) & ((at % 2 == 1) if odd else (at >= 0))
    found = out.view(4, 64)
    torch.testing.assert_close(found[0], torch.where(chosen, x, 0.0))
    torch.testing.assert_close(found[1], ((at == 0) | (at == 63) | (at >= 30)).float())
    torch.testing.assert_close(found[2], (~chosen).float())
    assert found[3, 0] == 5


@triton.jit
def scaled_kernel_of_operations(x, scales, out, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    scale = tl.load(scales)
    values = tl.load(x + at)
    if SCALED:
        values *= scale
    tl.store(out + at, values)


def test_a_load_that_nothing_needs():
    """From a tensor without elements: the compiler removes it."""
    x = torch.randn(64, device="cuda")
    out = torch.empty_like(x)
    scaled_kernel_of_operations[(1,)](x, torch.empty(0, device="cuda"), out, SCALED=False, BLOCK=64)
    torch.testing.assert_close(out, x)
    scaled_kernel_of_operations[(1,)](x, torch.full((1,), 3.0, device="cuda"), out, SCALED=True, BLOCK=64)
    torch.testing.assert_close(out, 3 * x)
