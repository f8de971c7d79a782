"""Tensor descriptors (TMA on cards that have it), and the memory that they need."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def tile_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[ROWS, COLUMNS])
    result = tl.make_tensor_descriptor(out_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    result.store([row, column], source.load([row, column]) + 1)


def test_a_descriptor_made_in_the_kernel():
    if torch.version.cuda and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs TMA")

    def allocate(size, alignment, stream):
        return torch.empty(size, device="cuda", dtype=torch.int8)

    triton.set_allocator(allocate)
    x = torch.randn(32, 64, device="cuda")
    out = torch.empty_like(x)
    tile_kernel[(2, 2)](x, out, 32, 64, ROWS=16, COLUMNS=32)
    torch.testing.assert_close(out, x + 1)


@triton.jit
def tma_kernel(source, result, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    result.store([row, column], source.load([row, column]) + 1)


@pytest.mark.skipif(torch.version.cuda is None or torch.cuda.get_device_capability()[0] < 9, reason="needs TMA")
def test_a_descriptor_made_by_the_host():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(32, 64, device="cuda")
    out = torch.empty_like(x)
    source, result = (TensorDescriptor.from_tensor(tensor, [16, 32]) for tensor in (x, out))
    tma_kernel[(2, 2)](source, result, ROWS=16, COLUMNS=32)
    torch.testing.assert_close(out, x + 1)


@pytest.mark.skipif(torch.version.cuda is None or torch.cuda.get_device_capability()[0] < 9, reason="needs TMA")
def test_a_descriptor_of_a_tensor_seen_as_another_dtype():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randint(0, 1000, (32, 64), device="cuda", dtype=torch.int32)
    out = torch.empty_like(x)
    source, result = (TensorDescriptor(triton.reinterpret(tensor, tl.uint32), [32, 64], [64, 1], [16, 32]) for tensor in (x, out))
    tma_kernel[(2, 2)](source, result, ROWS=16, COLUMNS=32)
    torch.testing.assert_close(out, x + 1)


@triton.jit
def scratch_kernel(x_ptr, scratch_ptr, out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), axis=0)
    tl.store(scratch_ptr + program, total)
    tl.atomic_add(out_ptr, total)


def test_a_workspace_made_for_each_call():
    x = torch.ones(1000, device="cuda")
    workspace = torch.empty(triton.cdiv(1000, 256), device=x.device, dtype=torch.float32)
    out = torch.zeros(1, device=x.device)
    scratch_kernel[(workspace.numel(),)](x, workspace, out, 1000, BLOCK=256)
    torch.testing.assert_close(workspace.sum(), out[0])


def test_pointers_of_several_tensors():
    tensors = [torch.full((256,), float(i), device="cuda") for i in range(3)]
    addresses = torch.tensor([tensor.data_ptr() for tensor in tensors], device="cuda", dtype=torch.int64)
    out = torch.empty(3, 256, device="cuda")
    gather_kernel[(3,)](addresses, out, BLOCK=256)
    torch.testing.assert_close(out, torch.stack(tensors))


@triton.jit
def gather_kernel(addresses_ptr, out_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    source = tl.load(addresses_ptr + program).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + program * BLOCK + offsets, tl.load(source + offsets))
