"""Operations that work on elements, or through descriptors, and what a kernel asks of its card."""

import pytest
import torch
import triton
import triton.language as tl


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
def scaled_kernel(x, scales, out, SCALED: tl.constexpr, BLOCK: tl.constexpr):
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
    scaled_kernel[(1,)](x, torch.empty(0, device="cuda"), out, SCALED=False, BLOCK=64)
    torch.testing.assert_close(out, x)
    scaled_kernel[(1,)](x, torch.full((1,), 3.0, device="cuda"), out, SCALED=True, BLOCK=64)
    torch.testing.assert_close(out, 3 * x)
