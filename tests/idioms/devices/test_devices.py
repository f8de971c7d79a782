"""Which device: the default one, the current one, where tensors are, what host code asks about it, and other processes and threads."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton
import triton.language as tl
from small_kernels import add, add_kernel, row_sum, scale, scale_kernel


@pytest.fixture
def on_the_card():
    torch.set_default_device("cuda")
    yield
    torch.set_default_device(None)


def test_factories_without_a_device(on_the_card):
    x, y, host = torch.randn(300), torch.zeros(300), torch.ones(300, device="cpu")
    assert torch.get_default_device().type == "cuda"
    assert (x.is_cuda, y.is_cuda, host.is_cuda) == (True, True, False)
    torch.testing.assert_close(add(x, y), x)
    assert (scale(host.cuda(), 2.0) == 2).all()


def test_a_device_as_a_context():
    with torch.device("cuda"):
        x = torch.ones(300)
    assert x.is_cuda
    assert (scale(x, 2.0) == 2).all()


def test_a_default_dtype():
    torch.set_default_dtype(torch.float16)
    try:
        x = torch.ones(300, device="cuda")
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype == torch.float16
    assert (scale(x, 2.0) == 2).all()


def test_numpy_and_back(on_the_card):
    packed = torch.randint(0, 16, (300,)).cpu().numpy().astype("uint32") << 4
    assert (add(torch.from_numpy(packed.astype("int32")).to("cuda"), torch.zeros(300, dtype=torch.int32)) >= 0).all()


def test_a_tensor_of_numbers_on_the_card(on_the_card):
    x = torch.arange(4.0)
    chosen = torch.tensor([x[1], x[3]], device=x.device)
    assert chosen.shape == (2,)
    assert chosen.is_cuda
    assert chosen.dtype == torch.float32
    torch.testing.assert_close(scale(chosen, 2.0), torch.tensor([2.0, 6.0]))


def test_numpy_makes_an_array_of_a_tensor():
    x = torch.ones(300, device="cuda")
    array = np.asarray(scale(x, 2.0).detach().to("cpu"))
    np.testing.assert_array_equal(array, np.full(300, 2.0, dtype=np.float32))
    assert np.array(scale(x, 3.0).cpu()).sum() == 900
    assert np.mean(np.array([scale(x, 4.0).mean().item()])) == 4
    assert (scale(torch.from_numpy(array).cuda(), 2.0) == 4).all()


# Which card is current: guards by index, by device and by tensor.


GUARDS = {
    "index": lambda x: torch.cuda.device(0),
    "device": lambda x: torch.cuda.device(x.device),
    "index of the device": lambda x: torch.cuda.device(x.device.index),
    "tensor": torch.cuda.device_of,
}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_a_guard(guard, pair):
    x, y = pair
    with guard(x):
        out = add(x, y)
    torch.testing.assert_close(out, x + y)


@pytest.mark.parametrize("card", [0, "cuda:0"])
def test_set_device_and_current_device(card, pair):
    torch.cuda.set_device(card)
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])


def test_guard_as_a_decorator_of_ones_own(pair):
    def guarded(function):
        def inner(*args, **kwargs):
            tensor = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
            with torch.cuda.device(tensor.device.index):
                return function(*args, **kwargs)

        return inner

    torch.testing.assert_close(guarded(scale)(pair[0], 3.0), pair[0] * 3.0)


def test_each_visible_device():
    for index in range(torch.cuda.device_count()):
        with torch.cuda.device(index):
            x = torch.ones(300, device=f"cuda:{index}")
            assert (scale(x, 2.0) == 2).all()


def test_the_accelerator_of_any_vendor():
    if not torch.accelerator.is_available():
        pytest.skip("needs an accelerator")
    kind = torch.accelerator.current_accelerator().type
    x = torch.ones(300, device=kind)
    out = scale(x, 2.0)
    torch.accelerator.synchronize()
    assert torch.accelerator.device_count() >= 1
    assert torch.accelerator.current_device_index() == x.get_device()
    assert (out == 2).all()


def test_the_accelerators_device_index(pair):
    torch.accelerator.set_device_index(pair[0].device.index)
    torch.testing.assert_close(scale(pair[0], 2.0), pair[0] * 2)


def test_tritons_active_device():
    active = triton.runtime.driver.active.get_active_torch_device()
    x = torch.ones(300, device=active)
    assert x.device == active
    assert (scale(x, 2.0) == 2).all()


def test_tritons_device_interface(pair):
    interface = triton.runtime.driver.active.get_device_interface()
    interface.synchronize()
    with interface.device(interface.current_device()):
        out = add(*pair)
    interface.synchronize()
    torch.testing.assert_close(out, pair[0] + pair[1])


# Tensors on the host: a launch refuses them, unless the memory is pinned; results and copies are where torch puts them.

REFUSED = "cannot be accessed from Triton"


HOST = {
    "forgotten": lambda x: add_kernel[(4,)](x, torch.randn(1000), torch.empty_like(x), 1000, BLOCK=256),
    "all": lambda x: scale(torch.ones(300), 2.0),
    "result": lambda x: scale_kernel[(4,)](x, torch.empty(1000), 1000, 2.0, BLOCK=256),
    "view of a copy": lambda x: scale(x.cpu()[1:], 2.0),
    "number, which is a pointer, too": lambda x: add_kernel[(4,)](x, torch.tensor(2.0), torch.empty_like(x), 1, BLOCK=256),
    "parameter of a module": lambda x: scale(torch.nn.Linear(16, 16).weight.detach(), 2.0),
    "no program": lambda x: scale_kernel[(0,)](torch.ones(300), torch.ones(300), 0, 2.0, BLOCK=256),
}


@pytest.mark.parametrize("launch", HOST.values(), ids=HOST)
def test_a_tensor_on_the_host(launch, pair):
    with pytest.raises(ValueError, match=REFUSED):
        launch(pair[0])
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])
    assert scale(torch.nn.Linear(16, 16).cuda().weight.detach(), 2.0).is_cuda


def test_pinned_memory_is_in_reach(pair):
    pinned = torch.ones(1000).pin_memory()
    assert pinned[500:].is_pinned()
    out = torch.empty(500, pin_memory=True)
    scale_kernel[(2,)](pinned[500:], out, 500, 2.0, BLOCK=256)
    torch.cuda.synchronize()
    assert (out == 2).all()


def test_an_empty_tensor_on_the_host(pair):
    """It has no address that could be wrong."""
    out = torch.empty_like(pair[0])
    add_kernel[(4,)](pair[0], torch.empty(0), out, 0, BLOCK=256)


def test_a_copy_is_where_its_source_is(pair):
    with pytest.warns(UserWarning, match="copy construct"):
        copies = [torch.tensor(pair[0]), torch.as_tensor(pair[0]), torch.asarray(pair[0])]
    for copy in copies:
        assert copy.is_cuda
        torch.testing.assert_close(scale(copy, 2.0), 2 * pair[0])
    assert pair[0].is_cuda


# torch's own operations: they refuse tensors of two devices, and take single numbers and indices of the host.

MIXED = {
    "operator": lambda x, host: x - host,
    "the other way round": lambda x, host: host < x,
    "in place": lambda x, host: x.mul_(host),
    "on the host": lambda x, host: host.add_(x.sum()),
    "mask": lambda x, host: torch.where(torch.arange(1000) < 500, x, 0.0),
    "masked": lambda x, host: x.masked_fill(host > 0, 0.0),
    "of a view": lambda x, host: x.view(10, 100)[1:] @ host.view(100, 10),
    "of what a kernel made": lambda x, host: (scale(x, 2.0) - 2.0 * host).abs().max(),
    "cat": lambda x, host: torch.cat([x, host.to("cuda"), host]),
    "stack": lambda x, host: torch.stack([host, x]),
    "lookup": lambda x, host: x.index_select(0, torch.arange(4)),
    "module": lambda x, host: torch.nn.LayerNorm(1000)(x),
    "loss": lambda x, host: torch.nn.functional.mse_loss(x, host),
    "out": lambda x, host: torch.add(x, x, out=host),
    "one number in a list": lambda x, host: x * torch.tensor([2.0]),
    "indexed and written": lambda x, host: x.__setitem__(torch.arange(4), host[:4]),
    "a gradient": lambda x, host: torch.autograd.functional.vjp(lambda y: y * 2, x, x)[1] + x.to("cuda") * host,
}


@pytest.mark.parametrize("compute", MIXED.values(), ids=MIXED)
def test_torch_refuses_tensors_of_two_devices(compute, pair):
    with pytest.raises(RuntimeError, match="be on the same device"):
        compute(pair[0], torch.randn(1000))


def test_an_index_of_the_card_into_the_host():
    with pytest.raises(RuntimeError, match="either on cpu or on the same device"):
        torch.randn(8)[torch.arange(4, device="cuda")]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_whole_numbers_are_not_multiplied_as_matrices(dtype):
    x = torch.ones(2, 16, 16, dtype=dtype, device="cuda")
    for multiply in (lambda: x @ x, lambda: x[0] @ x[0], lambda: torch.mv(x[0], x[0, 0]), lambda: torch.nn.functional.linear(x[0], x[0])):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            multiply()
    assert (x * x + (x.cpu() @ x.cpu()).to(x.device)).is_cuda
    assert (x.double() @ x.double()).to(dtype).sum() == 2 * 16**3


@pytest.mark.parametrize(("device", "other"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_generator_of_the_other_device(device, other):
    with pytest.raises(RuntimeError, match=f"Expected a '{device}' device type for generator but found '{other}'"):
        torch.randn(4, device=device, generator=torch.Generator(other))
    drawn = torch.randn(4, device=device, generator=torch.Generator(device).manual_seed(1))
    assert drawn.device.type == device


def test_memory_of_the_card_is_not_pinned(pair):
    with pytest.raises(RuntimeError, match="cannot pin"):
        pair[0].pin_memory()


ARRAYS = {"numpy": lambda x: x.numpy(), "asarray": np.asarray, "compared": lambda x: np.testing.assert_allclose(x, x), "number": np.float32}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_numpy_takes_nothing_of_the_card(make, pair):
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        make(pair[0][:1].sum())


TAKEN = {
    "number": lambda x, host: x * torch.tensor(2.0) + host.sum(),
    "number in place": lambda x, host: x.clone().mul_(torch.tensor(2.0)),
    "index": lambda x, host: x[torch.randperm(1000)],
    "copies": lambda x, host: torch.empty_like(x).copy_(host) + x,
    "items": lambda x, host: [x.__setitem__(slice(0, 4), host[:4]), x.__setitem__(0, host[0]), host.__setitem__(1, x[1]), x + x][3],
    "moved": lambda x, host: x + host.to(x) + host.type_as(x) + host.to(x.device, torch.float64) + torch.as_tensor(host, device=x.device),
    "old names": lambda x, host: x[:3] + torch.FloatTensor([1, 2, 3]).cuda() + torch.Tensor([1, 2, 3]).to(x.device),
    "old name on the host": lambda x, host: (torch.FloatTensor([1, 2, 3]) + host[:3]).cuda() + x[:3],
    "like": lambda x, host: x + torch.zeros_like(host, device="cuda") + x.new_ones(1000) + torch.rand_like(x),
    "module": lambda x, host: torch.nn.LayerNorm(1000).to(x.device)(x),
}


@pytest.mark.parametrize("compute", TAKEN.values(), ids=TAKEN)
def test_torch_takes_from_the_host(compute, pair):
    assert compute(pair[0], torch.randn(1000)).is_cuda


def test_what_comes_to_the_card_is_a_copy(pair):
    host = np.ones(300, dtype=np.float32)
    x = torch.as_tensor(host, device="cuda")
    x.add_(1)
    assert host.sum() == 300
    assert (scale(x, 2.0) == 4).all()


# Tests in several processes, and in a group of one: what packages for many cards run on one.


def rank(index, path):
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=index, world_size=1)
    x = torch.ones(100, device="cuda")
    dist.all_reduce(x)
    torch.testing.assert_close(add(x, x), 2 * x)
    dist.destroy_process_group()


def test_a_process_for_each_card_and_a_group_of_one(tmp_path):
    rank(0, tmp_path / "group")
    mp.spawn(rank, args=(tmp_path / "another",), nprocs=1)


def fail(index):
    raise ValueError("the second half is missing")


def test_an_error_of_a_process(pair):
    x, y = pair
    torch.testing.assert_close(add(x, y), x + y)
    with pytest.raises(mp.ProcessRaisedException, match="the second half is missing"):
        mp.spawn(fail, nprocs=1)


def doubled(x):
    return add(x, x)


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_a_pool_of_processes(start, pair):
    with ProcessPoolExecutor(max_workers=2, mp_context=mp.get_context(start)) as pool:
        futures = [pool.submit(doubled, x) for x in pair]
        for x, future in zip(pair, futures, strict=True):
            result = future.result()
            assert result.is_cuda
            torch.testing.assert_close(result, 2 * x)


def put(queue, done):
    queue.put(torch.ones(3, device="cuda"))
    done.wait()


def test_a_queue_between_processes(pair):
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=put, args=(queue, done))
    process.start()
    x = queue.get()
    assert x.is_cuda
    del x
    done.set()
    process.join()
    torch.testing.assert_close(add(*pair), sum(pair))


# Launches outside of the thread that pytest runs: pools that warm kernels up, servers, data loaders.


def test_a_launch_in_a_thread():
    results = []

    def work():
        x = torch.ones(1000, device="cuda")
        results.append(add(x, x))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.testing.assert_close(results[0], torch.full((1000,), 2.0, device="cuda"))


def test_launches_in_a_pool(pair):
    x, y = pair
    with ThreadPoolExecutor(2) as pool:
        scaled = list(pool.map(lambda factor: add(x.to("cuda"), y * factor), [1.0, 2.0]))
    torch.testing.assert_close(scaled[0], x + y)
    torch.testing.assert_close(scaled[1], x + y * 2.0)


def test_a_loader_that_pins(device):
    data = torch.utils.data.TensorDataset(torch.arange(64, dtype=torch.float32).reshape(8, 8))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        moved = batch.to(device, non_blocking=True)
        torch.testing.assert_close(add(moved, moved), moved + moved)


# What host code asks about the card.

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


def tritons_grid(x):
    properties = triton.runtime.driver.active.utils.get_device_properties(triton.runtime.driver.active.get_current_device())
    return min(properties["multiprocessor_count"], 4), 256 if properties["max_shared_mem"] >= 48 * 1024 else 128


GRIDS = {
    "at import": lambda x: (min(SMS, triton.cdiv(1000, 256)), 256),
    "cached": lambda x: (min(multiprocessors(x.device.index), 3), 128),
    "triton": tritons_grid,
}


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_a_grid_from_the_properties_of_the_card(grid, pair):
    programs, block = grid(pair[0])
    out = torch.empty_like(pair[0])
    persistent_kernel[(programs,)](pair[0], out, 1000, BLOCK=block)
    torch.testing.assert_close(out, pair[0] + 1)


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
    assert getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block) >= 48 * 1024
    assert properties.shared_memory_per_multiprocessor >= properties.shared_memory_per_block
    if torch.version.hip is not None:
        assert properties.gcnArchName.split(":")[0].startswith("gfx")
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_support_for_bfloat16():
    if not torch.cuda.is_bf16_supported():
        pytest.skip("no bfloat16")
    x = torch.ones(300, device="cuda", dtype=torch.bfloat16)
    assert (add(x, x) == 2).all()


@functools.lru_cache
def multiprocessors(index):
    return torch.cuda.get_device_properties(index).multi_processor_count


def test_switches_of_torchs_own_backends(pair):
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.testing.assert_close(add(*pair), pair[0] + pair[1])
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


# Where a tensor is: making it on the card, moving it, and asking it.

DEVICE = "cuda"


PLACES = ["cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0), torch.device("cuda:0")]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_device_and_what_moves_there(place):
    for x in (torch.ones(300, device=place), torch.ones(300).to(place), torch.ones(300).to(place, torch.float16), torch.ones(300).cuda()):
        assert x.is_cuda
        assert (scale(x, 2.0).cuda(0) == 2).all()
    assert torch.ones(300).to(place, torch.float16).dtype == torch.float16


@pytest.mark.filterwarnings("ignore:torch.range is deprecated", "ignore:The PyTorch API of nested tensors")
def test_tensors_that_no_mode_sees_made():
    assert torch.range(1, 4, device="cuda").device.type == "cuda"
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda", layout=torch.jagged)
    assert nested.device.type == nested.values().device.type == "cuda"
    assert nested.values().numel() == 5


def test_a_tensor_knows_its_device(pair):
    x = pair[0]
    assert x.is_cuda, "this kernel needs a tensor on a GPU"
    assert x.device == torch.device("cuda", 0)
    assert x.device.type == "cuda"
    assert str(x.device) == "cuda:0"
    assert x.get_device() == x.device.index == 0
    assert not x.cpu().is_cuda
    out = scale(x, 2.0)
    assert out.device == torch.ones(300).to(x).device == out.new_empty(3).device == x.device
    torch.testing.assert_close(out, 2 * x)


def test_a_check_that_refuses_the_host():
    def checked(x):
        if x.device.type != "cuda":
            raise ValueError("expected a tensor on a GPU")
        return scale(x, 2.0)

    assert (checked(torch.ones(300, device=DEVICE)) == 2).all()


def test_to_the_host_and_back(pair):
    x = pair[0]
    host = scale(x, 2.0).cpu()
    assert host.device == torch.device("cpu")
    torch.testing.assert_close(host.to(x.device), 2 * x)
    torch.testing.assert_close(scale(host.cuda(), 0.5), x)


def test_pinned_memory_without_blocking():
    host = torch.randn(300).pin_memory()
    assert host.is_pinned()
    out = scale(host.to("cuda", non_blocking=True), 2.0)
    back = torch.empty(300, pin_memory=True)
    back.copy_(out, non_blocking=True)
    torch.cuda.synchronize()
    torch.testing.assert_close(back, 2 * host)


def test_every_factory():
    x = torch.randn(8, 16, device=DEVICE, dtype=torch.float32)
    like = [torch.empty_like(x), torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2.0), torch.randn_like(x), torch.rand_like(x)]
    new = [x.new_empty(8, 16), x.new_zeros((8, 16)), x.new_ones(8, 16), x.new_full((8, 16), 3.0), x.new_tensor([[1.0]])]
    made = [
        torch.full((8,), 1.0, device=DEVICE),
        torch.arange(0, 8, device=DEVICE),
        torch.linspace(0, 1, 8, device=DEVICE),
        torch.randint(0, 9, (8,), device=DEVICE, dtype=torch.int32),
        torch.randperm(8, device=DEVICE),
        torch.eye(8, device=DEVICE),
        torch.tensor([1.0, 2.0], device=DEVICE),
        torch.as_tensor([1, 2], device=DEVICE),
        torch.empty_strided((8, 16), (1, 8), device=DEVICE),
        torch.tril(torch.ones(8, 8, device=DEVICE)),
    ]
    assert {value.device for value in (*like, *new, *made)} == {x.device}
    torch.testing.assert_close(row_sum(x), x.sum(dim=1), rtol=1e-4, atol=1e-4)


def test_views_and_strides():
    x = torch.randn(16, 32, device=DEVICE)
    half = x[::2, :20]
    assert not half.is_contiguous()
    assert half.stride() == (64, 1)
    torch.testing.assert_close(row_sum(half), half.sum(1), rtol=1e-4, atol=1e-4)
    turned = x.t().contiguous()
    torch.testing.assert_close(row_sum(turned), turned.sum(1), rtol=1e-4, atol=1e-4)


def test_a_pointer_that_is_aligned(pair):
    x = pair[0]
    if x.data_ptr() % 16 != 0:
        x = x.clone()
    assert x.data_ptr() % 16 == 0
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_dlpack(pair):
    vendor = 2 if torch.version.hip is None else 10  # kDLCUDA, kDLROCM
    assert pair[0].__dlpack_device__() == (vendor, 0)
    assert torch.ones(3).__dlpack_device__() == (1, 0)
    x = torch.from_dlpack(pair[0])
    assert x.device == pair[0].device
    torch.testing.assert_close(scale(x, 2.0), 2 * pair[0])


def test_counts_of_a_length_that_the_author_names():
    """How many tokens each expert has: the length is known, the numbers are not."""
    experts = torch.randint(0, 8, (64,), device="cuda")
    counts = torch.bincount(experts, minlength=8)
    assert counts.shape == (8,)
    assert scale(counts.float(), 2.0).shape == (8,)


def test_the_allocator_of_code_that_torch_compile_wrote():
    """Authors keep such code. Its functions are private ones of torch."""
    guards = torch._C._dynamo.guards
    x = torch.randn(8, 16, device="cuda")
    guards.assert_size_stride(x, (8, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        out = guards._empty_strided_cuda((8, 16), (16, 1), torch.float32)
    scale_kernel[(1,)](x, out, x.numel(), 2.0, BLOCK=128)
    torch.testing.assert_close(out, x * 2)
    assert guards._reinterpret_tensor(out, (16, 8), (1, 16), 0).is_cuda


def test_a_device_made_of_an_index(tmp_path):
    device = torch.device(0)
    assert device == torch.device("cuda:0") == torch.device("cuda", 0)
    assert torch.device(device=0) == device == torch.device(torch.cuda.current_device())
    torch.save(torch.ones(300), tmp_path / "ones.pt")
    with pytest.raises(TypeError, match="not callable"):  # torch.load takes no index
        torch.load(tmp_path / "ones.pt", map_location=0)
    loaded = torch.load(tmp_path / "ones.pt", map_location=device)
    assert (scale(loaded, 2.0) == 2).all()
    assert torch.cuda.get_device_name(device)
    layer = torch.nn.Linear(4, 4).to(0)
    assert layer.weight.device == device
    assert layer.to(0, torch.float16).weight.dtype == torch.float16
    assert (scale(torch.ones(300, device=device), 2.0) == 2).all()
