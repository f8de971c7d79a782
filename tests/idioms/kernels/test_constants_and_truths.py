"""Where a kernel's own types count: constants that a function returns, truths that are added, and numbers whose type it names."""

import pytest
import torch
import triton
import triton.language as tl


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
