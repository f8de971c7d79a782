"""Host code that decides by vendor and architecture."""

from __future__ import annotations

import os

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add, scale_kernel
from triton.language import load, store
from triton.language.extra import libdevice

INTERPRET = os.environ.get("TRITON_INTERPRET", "0") == "1"


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


def is_cuda():
    return triton.runtime.driver.active.get_current_target().backend == "cuda"


def tuned():
    """Configurations by vendor, made at import."""
    if is_hip():
        return [triton.Config({"BLOCK": 256, "waves_per_eu": 2}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=8)]
    return [triton.Config({"BLOCK": 128}, num_warps=4, num_stages=3), triton.Config({"BLOCK": 256}, num_warps=4)]


@triton.autotune(configs=tuned(), key=["n"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)


def test_what_triton_answers(pair):
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda":
        assert target.arch >= 80
    elif target.backend == "hip":
        assert target.arch.startswith("gfx")
    assert target.warp_size in (32, 64)
    assert triton.runtime.driver.active.get_active_torch_device().type == "cuda"
    if {"cuda": "cubin", "hip": "hsaco"}.get(target.backend) is None:
        pytest.skip(f"no binary is known for {target.backend}")
    n = 200 if INTERPRET else 1000
    x, y = pair[0][:n], pair[1][:n]
    torch.testing.assert_close(add(x, y), x + y)


def by_backend(x, out):
    options = {"waves_per_eu": 2} if is_hip() else {"maxnreg": 128} if is_cuda() else {}
    scale_kernel[(4,)](x, out, 1000, 2.0, BLOCK=256, num_warps=4, **options)


def by_torchs_version(x, out):
    vendor = "amd" if torch.version.hip else "nvidia" if torch.version.cuda else "other"
    scale_kernel[(4,)](x, out, 1000, 2.0, BLOCK=256, num_warps={"amd": 4, "nvidia": 8}.get(vendor, 4))


def by_configurations(x, out):
    tuned_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)


@pytest.mark.parametrize("launch", [by_backend, by_torchs_version, by_configurations])
def test_a_launch_by_vendor(launch, pair):
    out = torch.empty_like(pair[0])
    launch(pair[0], out)
    torch.testing.assert_close(out, 2 * pair[0])


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    a = tl.load(a_ptr + rows * SIZE + columns)
    b = tl.load(b_ptr + rows * SIZE + columns)
    tl.store(c_ptr + rows * SIZE + columns, tl.dot(a, b, input_precision=PRECISION))


def test_a_precision_that_one_vendor_has():
    a, b = torch.randn(32, 32, device="cuda"), torch.randn(32, 32, device="cuda")
    c = torch.empty_like(a)
    precise = torch.cuda.get_device_capability() < (8, 0) or torch.version.hip is not None
    product_kernel[(1,)](a, b, c, SIZE=32, PRECISION="ieee" if precise else "tf32")
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=5e-2)


FP8 = torch.float8_e4m3fnuz if torch.version.hip else torch.float8_e4m3fn


@triton.jit
def cast_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask).to(out_ptr.dtype.element_ty), mask=mask)


def test_a_dtype_by_vendor():
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs float8")
    x = torch.ones(300, device="cuda")
    out = torch.empty(300, device="cuda", dtype=FP8)
    cast_kernel[(2,)](x, out, 300, BLOCK=256)
    assert (out.float() == 1).all()
    assert torch.finfo(FP8).max > 200


# Functions of the vendors' device library, under the name that has no vendor.


@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    inner = 0.7978845608 * (value + 0.044715 * libdevice.pow(value, 3.0))
    tl.store(y + at, 0.5 * value * (1.0 + libdevice.tanh(inner)), mask=at < n)


@triton.jit
def softplus_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.extra.libdevice.log1p(tl.exp(value)), mask=at < n)


def test_a_kernel_that_calls_it_has_a_key():
    assert len(gelu_kernel.cache_key) > 32
    assert gelu_kernel.cache_key != softplus_kernel.cache_key


LIBRARY = {
    "imported from extra": (gelu_kernel, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    "reached through the language": (softplus_kernel, torch.nn.functional.softplus),
}


@pytest.mark.parametrize("way", LIBRARY)
def test_a_function_of_the_device_library(way):
    kernel, expected = LIBRARY[way]
    x = torch.randn(300, device="cuda")
    y = torch.empty_like(x)
    kernel[(triton.cdiv(300, 128),)](x, y, 300, BLOCK=128)
    torch.testing.assert_close(y, expected(x), rtol=1e-4, atol=1e-5)


# Masks, scans and locks that the interpreter and the compiler must read alike.


@triton.jit
def choose_kernel(x_ptr, y_ptr, out_ptr, split_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    from_x = (row < tl.load(split_ptr)) & (row >= 0)
    x = tl.load(x_ptr + row * BLOCK + columns, mask=from_x & (columns < BLOCK - 1), other=0.0)
    y = tl.load(y_ptr + row * BLOCK + columns, mask=~from_x & (columns < BLOCK - 1), other=0.0)
    tl.store(out_ptr + row * BLOCK + columns, x + y, mask=(from_x | (row == 3)) & (columns >= 0))


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scan_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    _, b = tl.associative_scan((tl.load(a_ptr + offsets), tl.load(b_ptr + offsets)), 0, affine)
    tl.store(out_ptr + offsets, b)


@triton.jit
def lock_kernel(x_ptr, out_ptr, lock_ptr, count_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offsets)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    if count == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        x += tl.load(out_ptr + offsets)
    tl.store(out_ptr + offsets, x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def test_a_mask_of_a_row(device):
    x, y = torch.randn(4, 32, device=device), torch.randn(4, 32, device=device)
    out = torch.zeros_like(x)
    choose_kernel[(4,)](x, y, out, torch.tensor([2], device=device), BLOCK=32)
    expected = torch.cat((x[:2], torch.zeros_like(x[:1]), y[3:]))
    expected[:, -1] = 0
    torch.testing.assert_close(out, expected)


def test_a_scan_of_pairs(device):
    a, b = torch.rand(16, device=device), torch.randn(16, device=device)
    out = torch.empty(16, device=device)
    scan_kernel[(1,)](a, b, out, BLOCK=16)
    state, expected = torch.zeros((), device=device), []
    for index in range(16):
        state = a[index] * state + b[index]
        expected.append(state)
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_a_lock(device):
    x = torch.randn(4, 64, device=device)
    out, lock = torch.empty(64, device=device), torch.zeros(2, dtype=torch.int32, device=device)
    lock_kernel[(4,)](x, out, lock, lock[1:], BLOCK=64)
    torch.testing.assert_close(out, x.sum(0))


@triton.jit
def lower_kernel(x_ptr, half_ptr, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)[:, None]
    at = row * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(half_ptr + at, tl.load(x_ptr + at), mask=row >= tl.arange(0, BLOCK)[None, :])


@triton.jit
def square_kernel(half_ptr, out_ptr, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)[:, None]
    at = row * BLOCK + tl.arange(0, BLOCK)[None, :]
    half = tl.load(half_ptr + at).to(tl.float32)
    tl.store(out_ptr + at, tl.where(row >= tl.arange(0, BLOCK)[None, :], half, 0.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_triangle_that_is_masked_after_the_load(dtype, device):
    x = torch.randn(16, 16, device=device).to(dtype)
    half, out = torch.empty_like(x), torch.empty(16, 16, device=device)
    lower_kernel[(1,)](x, half, BLOCK=16)
    square_kernel[(1,)](half, out, BLOCK=16)
    torch.testing.assert_close(out, x.tril().float())


# Arithmetic in bf16 itself, not after a conversion to fp32.


@triton.jit
def swiglu_kernel(x, gate, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0.0), tl.load(gate + at, mask=at < n, other=0.0)
    a = tl.where(a > 0, a * b, -a + b)
    tl.store(y + at, a, mask=at < n)


@triton.jit
def largest_kernel(x, y, total, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n, other=-float("inf"))
    tl.store(y, tl.max(a, 0))
    tl.store(total, tl.sum(tl.where(at < n, a, 0.0), 0))


def test_arithmetic_comparisons_and_reductions_in_bf16():
    x, gate = (torch.randn(300, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    y, largest, total = torch.empty_like(x), torch.empty(1, device="cuda", dtype=torch.bfloat16), torch.empty(1, device="cuda")
    swiglu_kernel[(triton.cdiv(300, 128),)](x, gate, y, 300, BLOCK=128)
    torch.testing.assert_close(y, torch.where(x > 0, x * gate, gate - x))
    largest_kernel[(1,)](x, largest, total, 300, BLOCK=512)
    assert largest[0] == x.max()
    torch.testing.assert_close(total[0], x.float().sum(), rtol=1e-2, atol=1e-1)


# Numbers that are tensors within a kernel: arguments of the host, and the variables of loops.


@triton.jit
def scaled_kernel(x, y, scale, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    tl.store(y + at, a * scale.to(a.dtype), mask=at < n)


@triton.jit
def promoted_kernel(x, y, scale, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * scale, mask=at < n)


@triton.jit
def rows_kernel(x, y, rows, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + row.to(tl.int64) * stride + at)
    tl.store(y + at, total)


@triton.jit
def staged_kernel(x, y, rows, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(0, rows, 1, num_stages=2):
        total += tl.load(x + (row * stride).to(tl.int64) + at)
    for row in range(0, rows, num_stages=2):
        if row == 0:
            total += 1.0
    tl.store(y + at, total)


@triton.jit
def static_kernel(x, y, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in tl.static_range(ROWS):
        if row % 2 == 0:
            total += tl.load(x + row * stride + at)
    tl.store(y + at, total)


@triton.jit
def doubled_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    two = tl.full((), 2.0, tl.bfloat16)
    tl.store(y + at, tl.load(x + at, mask=at < n) * two, mask=at < n)


def test_a_constant_in_bf16():
    x = torch.randn(100, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    doubled_kernel[(1,)](x, y, 100, BLOCK=128)
    torch.testing.assert_close(y, x * 2)


def test_a_float_of_the_host_is_converted_or_fp32():
    x = torch.randn(100, device="cuda", dtype=torch.float16)
    y, wide = torch.empty_like(x), torch.empty(100, device="cuda")
    scaled_kernel[(1,)](x, y, 0.5, 100, BLOCK=128)
    torch.testing.assert_close(y, x * 0.5)
    promoted_kernel[(1,)](x, wide, 0.3, 100, BLOCK=128)
    torch.testing.assert_close(wide, x.float() * torch.tensor(0.3), rtol=1e-6, atol=0)


LOOPS = {
    "converted": (lambda x, y: rows_kernel[(1,)](x, y, 5, x.stride(0), BLOCK=64), lambda x: x.sum(0)),
    "with options": (lambda x, y: staged_kernel[(1,)](x, y, 5, x.stride(0), BLOCK=64), lambda x: x.sum(0) + 1),
    "unrolled": (lambda x, y: static_kernel[(1,)](x, y, x.stride(0), ROWS=5, BLOCK=64), lambda x: x[::2].sum(0)),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_the_variable_of_a_loop(kind):
    launch, expected = LOOPS[kind]
    x, y = torch.randn(5, 64, device="cuda"), torch.empty(64, device="cuda")
    launch(x, y)
    torch.testing.assert_close(y, expected(x))


@pytest.mark.filterwarnings("error")
def test_numbers_that_become_too_large():
    x = torch.tensor([3e38, float("inf"), 1.0], device="cuda")
    y = torch.tensor([3e38, float("-inf"), 2.0], device="cuda")
    expected = torch.tensor([float("inf"), float("nan"), 3.0], device="cuda")
    torch.testing.assert_close(add(x, y), expected, equal_nan=True)


# The language's functions under other names: imported by name, or chosen once for all kernels of a package.

exp2 = tl.math.exp2
gather = tl.gather if hasattr(tl, "gather") else None


@triton.jit
def power(x):
    return exp2(x)


@triton.jit
def power_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    store(out_ptr + offsets, power(load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def reversed_kernel(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = load(x_ptr + offsets)
    store(out_ptr + offsets, gather(x, N - 1 - offsets, axis=0))


def test_functions_under_other_names_or_chosen_for_all_kernels(pair):
    out = torch.empty_like(pair[0])
    power_kernel[(triton.cdiv(out.numel(), 256),)](pair[0], out, out.numel(), BLOCK=256)
    torch.testing.assert_close(out, torch.exp2(pair[0]))
    reversed_kernel[(1,)](pair[0], out, N=64)
    assert torch.equal(out[:64], pair[0][:64].flip(0))


# Products of the card's vendor by the handle that Triton brings, as its tutorials compare their kernels with them.

if triton.runtime.driver.active.get_current_target().backend == "cuda":
    from triton._C.libtriton import nvidia

    handle = nvidia.cublas.CublasLt(torch.empty(32 << 20, device="cuda", dtype=torch.uint8))
else:
    from triton._C.libtriton import amd

    handle = amd.hipblas.HipblasLt(torch.empty(32 << 20, device="cuda", dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_and_a_sum(dtype, device):
    a, b = (torch.randn(rows, 64, device=device, dtype=dtype) for rows in (128, 256))
    c, d = (torch.empty(128, 256, device=device, dtype=dtype) for _ in range(2))
    handle.matmul(a, b, c)
    torch.testing.assert_close(add(c, c), 2 * (a @ b.T), atol=2e-2, rtol=2e-2)
    if dtype is torch.float16:
        handle.gemm(a, b, c, d, 1.0, 0.5)
        torch.testing.assert_close(add(d, d), 2 * (a @ b.T) + c, atol=4e-2, rtol=2e-2)
