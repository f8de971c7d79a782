"""What host code asks about the card."""

import functools

import pytest
import torch
import triton
import triton.language as tl
from small_kernels import add, scale

# At import, as many packages do.
CAPABILITY = torch.cuda.get_device_capability()
SMS = torch.cuda.get_device_properties(0).multi_processor_count


@triton.jit
def persistent_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def test_capability_at_import(pair):
    assert CAPABILITY >= (8, 0)
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_stages_by_capability(pair):
    major, minor = torch.cuda.get_device_capability(pair[0].device)
    warps = 8 if (major, minor) >= (9, 0) else 4
    out = torch.empty_like(pair[0])
    persistent_kernel[(2,)](pair[0], out, 1000, BLOCK=256, num_warps=warps, num_stages=2 if major == 8 else 3)
    torch.testing.assert_close(out, pair[0] + 1)


@pytest.mark.skipif(torch.cuda.get_device_capability() < (8, 0), reason="needs bfloat16")
def test_skipped_below_a_capability():
    assert (scale(torch.ones(300, device="cuda", dtype=torch.bfloat16), 2.0) == 2).all()


def test_a_grid_of_as_many_programs_as_multiprocessors(pair):
    x, _ = pair
    out = torch.empty_like(x)
    persistent_kernel[(min(SMS, triton.cdiv(1000, 256)),)](x, out, 1000, BLOCK=256)
    torch.testing.assert_close(out, x + 1)


def test_a_grid_from_tritons_properties(pair):
    x, _ = pair
    device = triton.runtime.driver.active.get_current_device()
    properties = triton.runtime.driver.active.utils.get_device_properties(device)
    block = 256 if properties["max_shared_mem"] >= 48 * 1024 else 128
    out = torch.empty_like(x)
    persistent_kernel[(min(properties["multiprocessor_count"], 4),)](x, out, 1000, BLOCK=block)
    torch.testing.assert_close(out, x + 1)


def test_the_names_of_a_card(pair):
    name = torch.cuda.get_device_name()
    assert name == torch.cuda.get_device_name(0) == torch.cuda.get_device_properties(pair[0].device).name
    assert isinstance(name, str)
    assert name
    tuned = {"NVIDIA H100 80GB HBM3": 512, "AMD Instinct MI300X": 1024}.get(name, 256)
    out = torch.empty_like(pair[0])
    persistent_kernel[(1,)](pair[0], out, 1000, BLOCK=tuned)
    torch.testing.assert_close(out, pair[0] + 1)


def test_properties_of_both_vendors(pair):
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability()
    assert properties.total_memory > 1 << 30
    assert properties.warp_size in (32, 64)
    assert properties.max_threads_per_multi_processor >= 1024
    assert properties.L2_cache_size > 0
    assert properties.regs_per_multiprocessor > 0
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_shared_memory_of_a_block(pair):
    properties = torch.cuda.get_device_properties(0)
    available = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    assert available >= 48 * 1024
    assert properties.shared_memory_per_multiprocessor >= properties.shared_memory_per_block
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_the_architecture_of_an_amd_card(pair):
    if torch.version.hip is not None:
        architecture = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
        assert architecture.startswith("gfx")
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_support_for_bfloat16():
    if not torch.cuda.is_bf16_supported():
        pytest.skip("no bfloat16")
    x = torch.ones(300, device="cuda", dtype=torch.bfloat16)
    assert (add(x, x) == 2).all()


@functools.lru_cache
def multiprocessors(index):
    return torch.cuda.get_device_properties(index).multi_processor_count


def test_a_cached_count_of_multiprocessors(pair):
    x, _ = pair
    out = torch.empty_like(x)
    persistent_kernel[(min(multiprocessors(x.device.index), 3),)](x, out, 1000, BLOCK=128)
    torch.testing.assert_close(out, x + 1)


def test_switches_of_torchs_own_backends(pair):
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
