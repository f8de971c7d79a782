"""Ways in which people launch kernels, as they write them: `cuda` in every line, and nothing of the harness."""

import unittest

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = "cuda"


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def first_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


@triton.jit
def second_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 2.0)


@triton.jit
def vendor_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 3.0)


@triton.autotune(configs=[triton.Config({"BLOCK": block}, num_warps=2) for block in (64, 128)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 0.0, mask=offsets < n)


@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def guessed_kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x_ptr + offsets, 0.0)
    else:
        tl.store(x_ptr + offsets, 0.0, mask=offsets < n)


@triton.jit
def described_kernel(tile, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.sum(tile.load([0, 0]).to(tl.float32), axis=0))


@triton.jit
def describing_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    tile = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK, BLOCK])
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.sum(tile.load([0, 0]).to(tl.float32), axis=0))


@gluon.jit
def gluon_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    offsets = gl.arange(0, BLOCK, layout=LAYOUT)
    gl.store(y_ptr + offsets, gl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def doubled(x):
    assert x.is_cuda and x.device.type == "cuda"
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return doubled(x)

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        second_kernel[(1,)](out, BLOCK=32)
        return out


@pytest.mark.parametrize("n", [1000, 4096])
def test_between_assertions_every_launch_is_made(n):
    x = torch.randn(n, device=DEVICE)
    y = doubled(x)
    torch.testing.assert_close(y, 2 * x)
    assert (y.cpu() - 2 * x.to("cpu")).abs().max().item() < 1e-6
    assert (y == 2 * x).all(), "not doubled"
    first_kernel[(1,)](x, BLOCK=16)


def test_backward():
    x = torch.randn(100, device=DEVICE, requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad is not None


def test_each_vendor_has_its_own_tile():
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    vendor_kernel[(1,)](torch.empty(1024, device=DEVICE), BLOCK=512 if torch.version.hip else 256)


def test_autotuned():
    tuned_kernel[(1,)](torch.empty(1000, device=DEVICE), 1000)


@pytest.mark.parametrize("n", [64, 65])
def test_heuristics(n):
    guessed_kernel[(1,)](torch.empty(n, device=DEVICE), n, BLOCK=64)


def test_descriptor_of_the_host():
    x = torch.randn(64, 64, device=DEVICE, dtype=torch.float16)
    described_kernel[(1,)](TensorDescriptor.from_tensor(x, [32, 32]), torch.empty(32, device=DEVICE), BLOCK=32)


def test_descriptor_of_the_device():
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=DEVICE))
    x = torch.randn(64, 64, device=DEVICE, dtype=torch.float16)
    describing_kernel[(1,)](x, torch.empty(32, device=DEVICE), *x.shape, BLOCK=32)


def test_gluon():
    lanes = triton.runtime.driver.active.get_current_target().warp_size
    layout = gl.BlockedLayout([2], [lanes], [4], [0])
    x = torch.randn(500, device=DEVICE)
    gluon_kernel[(1,)](x, torch.empty_like(x), 500, BLOCK=512, LAYOUT=layout, num_warps=4)


def test_as_many_programs_as_fit():
    properties = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
    x = torch.randn(4096, device=DEVICE)
    kernel = double_kernel.warmup(x, x, x.numel(), BLOCK=512, num_warps=8, grid=(1,))
    kernel._init_handles()
    programs = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * 8)
    assert programs > 0 and torch.cuda.get_device_properties(0).multi_processor_count == properties["multiprocessor_count"]
    kernel[(programs, 1, 1)](x, x, x.numel(), 512)


def test_the_data_decides():
    positive = torch.randn(4, device=DEVICE) > 0
    first_kernel[(1,)](torch.empty(1 + int(positive.sum().item()), device=DEVICE), BLOCK=64)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_skipped():
    first_kernel[(2,)](torch.empty(128, device=DEVICE), BLOCK=128)


class TestUnlike(unittest.TestCase):
    @unittest.expectedFailure
    def test_unlike(self):
        x = torch.zeros(2, device=DEVICE)
        self.assertTrue((x == 1).all())
