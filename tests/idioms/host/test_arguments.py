"""What host code gives to kernels beside tensors and numbers."""

import enum
import typing

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add_kernel, scale_kernel


class Mode(enum.IntEnum):
    ADD = 0
    MUL = 1


class Strides(typing.NamedTuple):
    row: int
    column: int


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply_kernel(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, FUNCTION(tl.load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def mode_kernel(x_ptr, y_ptr, out_ptr, n, MODE: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if y_ptr is not None:
        y = tl.load(y_ptr + offsets, mask=mask)
        x = x + y if MODE == 0 else x * y
    if KIND == "relu":
        x = tl.maximum(x, 0)
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def tuple_kernel(x_ptr, out_ptr, shape, strides, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * strides[0] + columns * strides[1], mask=columns < shape[1])
    tl.store(out_ptr + row * shape[1] + columns, x, mask=columns < shape[1])


@triton.jit
def named_kernel(x_ptr, out_ptr, n, strides, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * strides.row + columns * strides.column, mask=columns < n)
    tl.store(out_ptr + row * n + columns, x, mask=columns < n)


@triton.jit
def cast_kernel(x_ptr, out_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask).to(DTYPE), mask=mask)


@triton.jit
def pointers_kernel(inputs, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.zeros((BLOCK,), tl.float32)
    for index in tl.static_range(len(inputs)):
        total += tl.load(inputs[index] + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


@pytest.mark.parametrize("function", [relu, square], ids=["relu", "square"])
def test_a_function_as_a_constant(function, pair):
    x, _ = pair
    out = torch.empty_like(x)
    apply_kernel[(triton.cdiv(1000, 256),)](x, out, 1000, FUNCTION=function, BLOCK=256)
    torch.testing.assert_close(out, x.relu() if function is relu else x * x)


@pytest.mark.parametrize("mode", list(Mode))
def test_an_enumeration_as_a_constant(mode, pair):
    x, y = pair
    out = torch.empty_like(x)
    mode_kernel[(4,)](x, y, out, 1000, MODE=mode, KIND="relu", BLOCK=256)
    torch.testing.assert_close(out, (x + y if mode is Mode.ADD else x * y).relu())


def test_no_tensor_and_no_text(pair):
    x, _ = pair
    out = torch.empty_like(x)
    mode_kernel[(4,)](x, None, out, 1000, MODE=Mode.ADD, KIND=None, BLOCK=256)
    torch.testing.assert_close(out, x)


def test_shapes_and_strides_as_tuples(device):
    x = torch.randn(40, 30, device=device).t()
    out = torch.empty(30, 40, device=device)
    tuple_kernel[(30,)](x, out, tuple(x.shape), x.stride(), BLOCK=64)
    torch.testing.assert_close(out, x)


def test_a_shape_as_it_is(device):
    x = torch.randn(30, 40, device=device)
    out = torch.empty(30, 40, device=device)
    tuple_kernel[(30,)](x, out, x.shape, x.stride(), BLOCK=64)
    torch.testing.assert_close(out, x)


def test_a_named_tuple(device):
    x = torch.randn(30, 40, device=device)
    out = torch.empty(30, 40, device=device)
    named_kernel[(30,)](x, out, 40, Strides(*x.stride()), BLOCK=64)
    torch.testing.assert_close(out, x)


def test_a_tuple_of_tensors(device):
    many = tuple(torch.randn(100, device=device) for _ in range(3))
    out = torch.empty(100, device=device)
    pointers_kernel[(1,)](many, out, 100, BLOCK=128)
    torch.testing.assert_close(out, sum(many))


@pytest.mark.parametrize(("dtype", "named"), [(torch.float16, tl.float16), (torch.bfloat16, tl.bfloat16), (torch.int32, tl.int32)])
def test_a_dtype_as_a_constant(dtype, named, pair):
    x, _ = pair
    out = torch.empty_like(x, dtype=dtype)
    cast_kernel[(4,)](x, out, 1000, named, BLOCK=256)
    torch.testing.assert_close(out, x.to(dtype))


def test_a_grid_of_numpys_numbers(pair):
    x, y = pair
    out = torch.empty_like(x)
    add_kernel[(np.int64(4), np.int32(1), 1)](x, y, out, 1000, BLOCK=256)
    torch.testing.assert_close(out, x + y)


def test_a_grid_that_is_a_list(pair):
    x, y = pair
    out = torch.empty_like(x)
    add_kernel[[4]](x, y, out, 1000, BLOCK=256)
    torch.testing.assert_close(out, x + y)


def test_a_truth_as_an_argument(pair):
    x, _ = pair
    out = torch.empty_like(x)
    scale_kernel[(4,)](x, out, 1000, True, BLOCK=256)
    torch.testing.assert_close(out, x)


def test_the_grid_and_run(pair):
    x, y = pair
    out = torch.empty_like(x)
    add_kernel.run(x, y, out, 1000, grid=(4,), warmup=False, BLOCK=256)
    torch.testing.assert_close(out, x + y)


def test_a_tensor_seen_as_another_dtype(device):
    x = torch.arange(-128, 128, dtype=torch.int8, device=device)
    out = torch.empty(256, dtype=torch.float16, device=device)
    cast_kernel[(1,)](triton.reinterpret(x, tl.float8e5), out, 256, tl.float16, BLOCK=256)
    torch.testing.assert_close(out, x.view(torch.float8_e5m2).to(torch.float16), equal_nan=True)


class Rows:
    """As FlagGems has it: some rows of a tensor, by their address, without a tensor of their own."""

    def __init__(self, tensor, first):
        self.tensor, self.first, self.dtype = tensor, first, tensor.dtype

    def data_ptr(self):
        return self.tensor.data_ptr() + self.first * self.tensor.stride(0) * self.tensor.element_size()


def test_an_object_with_an_address(device):
    x, out = torch.randn(8, 128, device=device), torch.zeros(8, 128, device=device)
    add_kernel[(4,)](Rows(x, 4), Rows(x, 0), Rows(out, 2), 512, BLOCK=128)
    torch.testing.assert_close(out[2:6], x[4:] + x[:4])
    assert not out[:2].any()


@triton.jit
def count_kernel(out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at.to(out_ptr.dtype.element_ty))


@triton.jit
def count_second_kernel(pair, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(pair[1] + at, at)


def test_what_a_kernel_writes_through_another_dtype_or_a_tuple(device):
    """A tensor that the host fills with numbers has others afterwards."""
    x, y, z = (torch.tensor(np.zeros(16, np.int16), device=device) for _ in range(3))
    count_kernel[(1,)](triton.reinterpret(x, tl.uint16), BLOCK=16)
    assert (x.cpu().numpy() == np.arange(16)).all()
    count_second_kernel[(1,)]((y, z), BLOCK=16)
    assert (z.cpu().numpy() == np.arange(16)).all()
    count_kernel[(1,)](x, BLOCK=16)
