"""Host code that decides by vendor and architecture."""

import os

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add, scale_kernel

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


def test_configurations_by_vendor(pair):
    out = torch.empty_like(pair[0])
    tuned_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](pair[0], out, 1000)
    torch.testing.assert_close(out, 2 * pair[0])


def test_the_targets_architecture(pair):
    target = triton.runtime.driver.active.get_current_target()
    if target.backend == "cuda":
        assert target.arch >= 80
    elif target.backend == "hip":
        assert target.arch.startswith("gfx")
    assert target.warp_size in (32, 64)
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_options_that_one_backend_knows(pair):
    options = {"waves_per_eu": 2} if is_hip() else {"maxnreg": 128} if is_cuda() else {}
    out = torch.empty_like(pair[0])
    scale_kernel[(4,)](pair[0], out, 1000, 2.0, BLOCK=256, num_warps=4, **options)
    torch.testing.assert_close(out, 2 * pair[0])


def test_torchs_version_tells_the_vendor(pair):
    vendor = "amd" if torch.version.hip else "nvidia" if torch.version.cuda else "other"
    warps = {"amd": 4, "nvidia": 8}.get(vendor, 4)
    out = torch.empty_like(pair[0])
    scale_kernel[(4,)](pair[0], out, 1000, 2.0, BLOCK=256, num_warps=warps)
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


def test_tritons_own_questions(pair):
    backend = triton.runtime.driver.active.get_current_target().backend
    assert triton.runtime.driver.active.get_active_torch_device().type == "cuda"
    name = {"cuda": "cubin", "hip": "hsaco"}.get(backend)
    if name is None:
        pytest.skip(f"no binary is known for {backend}")
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_the_interpreter_is_asked_for(pair):
    n = 200 if INTERPRET else 1000
    x, y = pair[0][:n], pair[1][:n]
    torch.testing.assert_close(add(x, y), x + y)


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
