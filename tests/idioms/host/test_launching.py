"""Launches and what a kernel's handle tells."""

import math
import os

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add_kernel, scale, scale_kernel

BLOCK: tl.constexpr = tl.constexpr(256)


@triton.jit
def global_kernel(x_ptr, out_ptr, n):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def test_a_global_constant(pair):
    out = torch.empty_like(pair[0])
    global_kernel[(triton.cdiv(1000, BLOCK.value),)](pair[0], out, 1000)
    torch.testing.assert_close(out, pair[0] + 1)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 5)], ids=str)
def test_a_grid_by_a_function_of_the_constants(shape):
    x, y = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]), 1, 1)  # noqa: E731
    add_kernel[grid](x, y, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    torch.testing.assert_close(out, x + y)


def test_a_grid_that_is_a_list(pair):
    for grid in ([4], lambda meta: [triton.cdiv(1000, meta["BLOCK"])]):
        out = torch.empty_like(pair[0])
        add_kernel[grid](pair[0], pair[1], out, 1000, BLOCK=256)
        torch.testing.assert_close(out, pair[0] + pair[1])


@pytest.mark.parametrize(
    "grid",
    [
        lambda meta: (triton.cdiv(meta["x_ptr"].numel(), 64),),
        lambda meta: (triton.cdiv(meta["out_ptr"].shape[0], 64), 1),
        lambda meta: (math.ceil(meta["n"] / 64),),
        lambda meta: (max(1, -(-meta["n"] // 64)),),
        lambda meta: [triton.next_power_of_2(meta["n"]) // 64],
    ],
    ids=["elements", "shape", "ceiling", "division", "list"],
)
def test_a_grid_by_a_function_of_the_arguments(pair, grid):
    out = torch.empty_like(pair[0])
    scale_kernel[grid](pair[0], out, pair[0].numel(), 2.0, BLOCK=64)
    torch.testing.assert_close(out, pair[0] * 2)


def test_arguments_by_name(pair):
    out = torch.empty_like(pair[0])
    add_kernel[(4,)](x_ptr=pair[0], y_ptr=pair[1], out_ptr=out, n=1000, BLOCK=256, num_warps=2, num_stages=1)
    torch.testing.assert_close(out, pair[0] + pair[1])


@triton.jit(do_not_specialize=["n"])
def unspecialized_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def test_an_argument_without_specialization():
    for n in (1, 16, 300):
        x = torch.randn(n, device="cuda")
        out = torch.empty_like(x)
        unspecialized_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        torch.testing.assert_close(out, x + 1)


def _metadata(grid, kernel, args):
    return {"name": f"{kernel.name}_{args['n']}", "bytes": 8 * args["n"]}


@triton.jit(launch_metadata=_metadata, repr=lambda specialization: "named_kernel")
def described_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def test_metadata_of_a_launch(pair):
    out = torch.empty_like(pair[0])
    described_kernel[(4,)](pair[0], out, 1000, BLOCK=256)
    torch.testing.assert_close(out, pair[0] + 1)


def test_warmup_with_tensors(pair):
    x, y = pair
    out = torch.empty_like(x)
    kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, num_warps=4, grid=(1,))
    kernel._init_handles()
    assert kernel.n_regs > 0
    assert kernel.n_spills >= 0
    assert kernel.metadata.shared >= 0
    assert kernel.metadata.num_warps == 4


def test_warmup_with_dtypes(pair):
    add_kernel.warmup(torch.float32, torch.float32, torch.float32, 1000, BLOCK=256, grid=(1,))
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_occupancy_from_a_warmed_up_kernel(pair):
    x, y = pair
    out = torch.empty_like(x)
    properties = triton.runtime.driver.active.utils.get_device_properties(x.device.index)
    kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, num_warps=4, grid=(1,))
    kernel._init_handles()
    programs = properties["max_num_regs"] // (max(kernel.n_regs, 1) * properties["warpSize"] * 4)
    if kernel.metadata.shared:
        programs = min(programs, properties["max_shared_mem"] // kernel.metadata.shared)
    assert programs >= 1
    add_kernel[(min(properties["multiprocessor_count"] * programs, 4),)](x, y, out, 1000, BLOCK=256, num_warps=4)
    torch.testing.assert_close(out, x + y)


def test_the_handle_of_a_launch(pair):
    out = torch.empty_like(pair[0])
    handle = scale_kernel[(4,)](pair[0], out, 1000, 2.0, BLOCK=256)
    print(handle.n_regs, handle.n_spills, handle.metadata.shared, handle.metadata.num_warps)
    torch.testing.assert_close(out, 2 * pair[0])


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter generates no code")
def test_the_generated_code(pair):
    out = torch.empty_like(pair[0])
    handle = scale_kernel[(4,)](pair[0], out, 1000, 2.0, BLOCK=256)
    assert "ttir" in handle.asm
    assert ("ptx" in handle.asm) or ("amdgcn" in handle.asm)
    torch.testing.assert_close(out, 2 * pair[0])


@triton.jit
def checked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.device_assert(x == x, "not a number")
    tl.static_assert(BLOCK >= 16, "too small")
    tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


def test_assertions_of_a_kernel(pair):
    out = torch.empty_like(pair[0])
    checked_kernel[(4,)](pair[0], out, 1000, BLOCK=256)
    torch.testing.assert_close(out, pair[0] + 1)


def test_helpers_of_tritons_host_side(pair):
    assert triton.cdiv(1000, 256) == 4
    assert triton.next_power_of_2(1000) == 1024
    assert isinstance(triton.__version__, str)
    assert tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 0)
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])
