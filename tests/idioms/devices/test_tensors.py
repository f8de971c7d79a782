"""Where a tensor is: making it on the card, moving it, and asking it."""

import pytest
import torch
from small_kernels import row_sum, scale, scale_kernel

DEVICE = "cuda"


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_device_by_a_text(name):
    assert (scale(torch.ones(300, device=name), 2.0) == 2).all()


@pytest.mark.filterwarnings("ignore:torch.range is deprecated", "ignore:The PyTorch API of nested tensors")
def test_tensors_that_no_mode_sees_made():
    assert torch.range(1, 4, device="cuda").device.type == "cuda"
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda", layout=torch.jagged)
    assert nested.device.type == nested.values().device.type == "cuda"
    assert nested.values().numel() == 5


def test_device_by_an_index():
    assert (scale(torch.ones(300, device=0), 2.0) == 2).all()


@pytest.mark.parametrize("device", [torch.device("cuda"), torch.device("cuda", 0), torch.device("cuda:0")], ids=str)
def test_device_by_an_object(device):
    assert (scale(torch.ones(300, device=device), 2.0) == 2).all()


def test_the_cuda_method():
    x = torch.ones(300).cuda()
    assert x.is_cuda
    assert (scale(x, 2.0).cuda(0) == 2).all()


def test_to_a_device():
    x = torch.ones(300)
    for place in ("cuda", "cuda:0", torch.device("cuda"), 0):
        assert (scale(x.to(place), 2.0) == 2).all()


def test_to_a_device_and_a_dtype():
    x = torch.ones(300).to("cuda", torch.float16)
    assert x.dtype == torch.float16
    assert (scale(x, 2.0) == 2).all()


def test_to_another_tensors_device(pair):
    x = torch.ones(300).to(pair[0])
    assert x.device == pair[0].device
    assert (scale(x, 2.0) == 2).all()


def test_is_cuda_and_device_type(pair):
    x = pair[0]
    assert x.is_cuda, "this kernel needs a tensor on a GPU"
    assert x.device.type == "cuda"
    assert not x.cpu().is_cuda
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_a_tensor_knows_its_device(pair):
    x = pair[0]
    assert x.device == torch.device("cuda", 0)
    assert str(x.device) == "cuda:0"
    assert x.get_device() == x.device.index == 0
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_a_result_is_where_its_input_was(pair):
    out = scale(pair[0], 2.0)
    assert out.device == pair[0].device
    assert out.new_empty(3).device == pair[0].device


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
    x = torch.from_dlpack(pair[0])
    assert x.device == pair[0].device
    torch.testing.assert_close(scale(x, 2.0), 2 * pair[0])


def test_the_device_that_dlpack_names(pair):
    vendor = 2 if torch.version.hip is None else 10  # kDLCUDA, kDLROCM
    assert pair[0].__dlpack_device__() == (vendor, 0)
    assert torch.ones(3).__dlpack_device__() == (1, 0)
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


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
    assert torch.device(device=0) == device
    torch.save(torch.ones(300), tmp_path / "ones.pt")
    with pytest.raises(TypeError, match="not callable"):  # torch.load takes no index
        torch.load(tmp_path / "ones.pt", map_location=0)
    loaded = torch.load(tmp_path / "ones.pt", map_location=device)
    assert (scale(loaded, 2.0) == 2).all()
    layer = torch.nn.Linear(4, 4).to(0)
    assert layer.weight.device == device
    assert layer.to(0, torch.float16).weight.dtype == torch.float16
    assert (scale(torch.ones(300, device=device), 2.0) == 2).all()


def test_a_device_made_of_the_current_index():
    device = torch.device(torch.cuda.current_device())
    assert torch.cuda.get_device_name(device)
    assert (scale(torch.ones(300, device=device), 2.0) == 2).all()
