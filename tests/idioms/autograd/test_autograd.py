"""torch.autograd.Function over kernels: mixed precision, gradients, and modules around it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.utils.checkpoint
from small_kernels import add, scale
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scale(x, factor)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad.contiguous(), ctx.factor), None


class Square(torch.autograd.Function):
    """Its backward reads what its forward saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * scale(x, 1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return add(x, x) * grad if ctx.needs_input_grad[0] else None


def test_backward_of_a_given_gradient():
    x = torch.randn(300, device="cuda", requires_grad=True)
    grad = torch.randn_like(x)
    Square.apply(x).backward(grad)
    ours, x.grad = x.grad.clone(), None
    (x * x).backward(grad)
    torch.testing.assert_close(ours, x.grad)


def test_leaves_detached_for_a_reference():
    x = torch.randn(300, device="cuda")
    ours, theirs = x.clone().requires_grad_(), x.detach().clone().requires_grad_(True)
    Scale.apply(ours, 2.0).pow(2).sum().backward()
    (2.0 * theirs).pow(2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    (grad,) = torch.autograd.grad(Square.apply(ours).mean(), ours)
    assert torch.allclose(grad, 2 * x / 300, atol=1e-6)
    ours.grad = None
    loss = Square.apply(ours).mean()
    print(f"loss: {loss.item():.4f}, largest: {ours.detach().abs().max().item()}")
    loss.backward()
    torch.testing.assert_close(ours.grad, 2 * x / 300)


def test_gradcheck():
    x = torch.randn(8, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: Square.apply(x), (x,))


class Half(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx, x):
        return scale(x, 2.0)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return scale(grad.contiguous(), 2.0)


def test_custom_forward_below_autocast():
    x = torch.ones(300, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.float16):
        y = Half.apply(x)
    assert y.dtype == torch.float16
    y.float().sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_names_of_mixed_precision():
    class Older(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd
        def forward(ctx, x):
            return scale(x, 2.0)

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, grad):
            return scale(grad.contiguous(), 2.0)

    x = torch.ones(300, device="cuda", requires_grad=True)
    with torch.cuda.amp.autocast(dtype=torch.float16):
        Older.apply(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))


def test_the_dtype_that_autocast_uses():
    a, b = torch.randn(16, 32, device="cuda"), torch.randn(32, 16, device="cuda")
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        product = a @ b
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16
    assert product.dtype == torch.bfloat16
    torch.testing.assert_close(scale(product, 2.0), 2 * product)


def test_no_gradients_in_inference():
    x = torch.randn(300, device="cuda", requires_grad=True)
    with torch.no_grad():
        assert not Scale.apply(x, 2.0).requires_grad
    with torch.inference_mode():
        assert Scale.apply(x, 2.0).is_inference()


def test_checkpointing():
    x = torch.randn(300, device="cuda", requires_grad=True)
    torch.utils.checkpoint.checkpoint(lambda x: Scale.apply(Square.apply(x), 3.0), x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())


def test_what_autocast_computes_in_fp32():
    """A norm, a softmax and a sum; a product is in the lower precision. Packages choose a kernel's output by that."""
    x = torch.randn(16, 64, device="cuda", dtype=torch.float16)
    norm = torch.nn.LayerNorm(64).to("cuda", torch.float16)
    with torch.autocast("cuda", dtype=torch.float16):
        found = [norm(x), torch.softmax(x, dim=-1), x.sum(dim=-1), torch.nn.functional.mse_loss(x, x), x.float() @ x.float().T]
        half = torch.softmax(x, dim=-1, dtype=torch.float16)
    assert [each.dtype for each in found] == [torch.float32] * 4 + [torch.float16]
    assert half.dtype == torch.float16
    torch.testing.assert_close(scale(found[0], 2.0), 2 * found[0])


@pytest.mark.parametrize("layer", [torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin])
def test_modules_that_autocast_computes_in_fp32(layer):
    """They pass `dtype=None` on, which names no dtype."""
    x = torch.randn(16, 64, device="cuda", dtype=torch.float16)
    with torch.autocast("cuda", dtype=torch.float16):
        found = layer(dim=-1)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(scale(found, 2.0), 2 * layer(dim=-1)(x.float()))


# torch.nn.Module around kernels.


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scale(x, 0.5)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad.contiguous(), 0.5)


class Layer(nn.Module):
    def __init__(self, width, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.register_buffer("offset", torch.zeros(width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        return Scaled.apply(x) * self.weight + self.offset


MODULES = {
    "moved": lambda: Layer(64).cuda(),
    "made": lambda: Layer(64, device="cuda", dtype=torch.float16),
    "moved and cast": lambda: Layer(64).to(device="cuda", dtype=torch.bfloat16),
    "copied": lambda: copy.deepcopy(Layer(64, device="cuda")),
}


@pytest.mark.parametrize("way", MODULES)
def test_a_module_on_the_card(way):
    layer = MODULES[way]()
    dtype = {"made": torch.float16, "moved and cast": torch.bfloat16}.get(way, torch.float32)
    assert next(layer.parameters()).is_cuda
    assert layer.weight.device.type == layer.offset.device.type == "cuda"
    assert layer.weight.dtype == dtype
    x = torch.randn(16, 64, device="cuda", dtype=dtype)
    torch.testing.assert_close(layer(x), x / 2)


def test_gradients_of_parameters():
    layer = Layer(64, device="cuda")
    x = torch.randn(16, 64, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, (x.detach() / 2).sum(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(x.grad, torch.full_like(x, 0.5))


def test_the_state_of_a_module(tmp_path):
    layer, other = Layer(64, device="cuda"), nn.Sequential(Layer(64)).cuda()
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other[0].load_state_dict(torch.load(tmp_path / "layer.pt", map_location="cuda"))
    x = torch.randn(16, 64, device="cuda")
    torch.testing.assert_close(other(x), layer(x))


def test_a_step_of_an_optimizer():
    layer = Layer(64, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(16, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.testing.assert_close(layer.weight.detach(), torch.full((64,), 1 - 0.8, device="cuda"))


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_a_step_of_a_fused_optimizer(name):
    layers = [Layer(64, device="cuda") for _ in range(2)]
    for layer, fused in zip(layers, (True, False), strict=True):
        optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, fused=fused)
        layer(torch.ones(16, 64, device="cuda")).sum().backward()
        optimizer.step()
    ours, theirs = (layer(torch.ones(16, 64, device="cuda")) for layer in layers)
    torch.testing.assert_close(ours, theirs)


class Counting(nn.Module):
    """Has a buffer of whole numbers, which `to` moves without a dtype."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(300))
        self.register_buffer("steps", torch.zeros(4, dtype=torch.int64))

    def forward(self, x):
        return add(x, self.weight)


def test_a_buffer_of_whole_numbers_moves_with_its_module():
    module = Counting().to("cuda", torch.float16)
    assert module.steps.is_cuda
    assert module.steps.dtype == torch.int64
    assert module.weight.dtype == torch.float16
    x = torch.ones(300, device="cuda", dtype=torch.float16)
    assert (module(x) == 2).all()


# Gradients that torch computes in other ways: what a checkpoint runs twice, and what torch.func wraps.


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return add(x, x)

    @staticmethod
    def backward(ctx, grad):
        return scale(grad, 2.0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint(reentrant, device):
    x = torch.randn(4, 8, device=device, requires_grad=True)

    def block(x):
        places = torch.arange(8, device=x.device)
        return Doubled.apply(x * places + torch.eye(8, device=x.device)[0]).exp() * x.new_ones(8)

    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    found, x.grad = x.grad, None
    block(x).sum().backward()
    torch.testing.assert_close(found, x.grad)


@pytest.mark.parametrize("transform", ["jvp", "grad"])
def test_a_tensor_that_torch_func_wraps_is_on_the_card(transform, device):
    x, mask = torch.randn(5, 2, device=device), torch.arange(5, device=device) < 3

    def masked(x):
        assert x.is_cuda
        assert x.device == mask.device
        return torch.where(mask[:, None], x, x.detach())

    ways = {
        "jvp": lambda: torch.func.jvp(masked, (x,), (torch.ones_like(x),))[1],
        "grad": lambda: torch.func.grad(lambda x: masked(x).sum())(x),
    }
    found = ways[transform]()
    torch.testing.assert_close(add(found, found), 2 * mask[:, None].expand(5, 2).float())


# What tests compare with, and train with: torch's attention, counts, optimizers, and tensors that wrap others.


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], ids=lambda one: one.name)
def test_one_implementation_of_attention(backend, device):
    q = torch.randn(1, 2, 64, 32, device=device, dtype=torch.float16)
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(add(out, out), 2 * out)


def test_the_older_switch_of_attention(device):
    q = torch.randn(1, 2, 64, 32, device=device, dtype=torch.float16)
    with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=False, enable_mem_efficient=True):
        out = functional.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(add(out, out), 2 * out)


def test_tokens_of_each_expert(device):
    experts = torch.randint(0, 8, (64,), device=device, dtype=torch.int32)
    counts = torch.histc(experts, bins=8, min=0, max=7)
    torch.testing.assert_close(counts.long(), torch.bincount(experts, minlength=8))
    torch.testing.assert_close(add(counts.float(), counts.float()), 2 * counts.float())


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}], ids=str)
def test_a_step_of_adam(options, device):
    weights = torch.nn.Parameter(torch.ones(100, device=device))
    optimizer = torch.optim.AdamW([weights], lr=0.1, weight_decay=0.0, **options)
    weights.grad = scale(weights.detach(), 2.0)
    optimizer.step()
    torch.testing.assert_close(weights.detach(), torch.full_like(weights, 0.9), rtol=1e-4, atol=1e-4)


def test_a_scaled_loss(device):
    weights = torch.nn.Parameter(torch.randn(100, device=device))
    before = weights.detach().clone()
    optimizer, scaler = torch.optim.SGD([weights], lr=0.1), torch.amp.GradScaler("cuda")
    scaler.scale((weights * weights).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(scale(before, 0.8), weights.detach())


REFERENCES = {
    "mask": lambda x: torch.where(x > 0, x, -1.0),
    "limits": lambda x: x.clamp(min=-0.5, max=0.5),
    "running product": lambda x: x.cumprod(-1).prod(-1),
    "gates": lambda x: functional.logsigmoid(x).cumsum(-1),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_gradient_of_a_reference(name, device):
    x = torch.randn(8, 16, device=device, requires_grad=True)
    REFERENCES[name](x).sum().backward()
    torch.testing.assert_close(add(x.grad, x.grad), 2 * x.grad)


def documents(device):
    """Three documents side by side: a query sees what is before it, of its own."""
    of = torch.tensor([0] * 40 + [1] * 50 + [2] * 38, device=device)

    def mask(batch, head, query, key):
        return (of[query] == of[key]) & (query >= key)

    return mask, (of[:, None] == of[None, :]) & torch.ones(128, 128, dtype=torch.bool, device=device).tril()


@pytest.mark.parametrize("function", [flex_attention, torch.compile(flex_attention)], ids=["as it is", "compiled"])
def test_attention_with_a_mask_that_is_a_function(function, device):
    mask, shown = documents(device)
    q = torch.randn(1, 2, 128, 32, device=device, requires_grad=True)
    out = function(q, q, q, block_mask=create_block_mask(mask, None, None, 128, 128, device=device))
    torch.testing.assert_close(add(out, out), 2 * functional.scaled_dot_product_attention(q, q, q, attn_mask=shown), rtol=0.02, atol=0.02)
    out.sum().backward()
    ours, q.grad = q.grad, None
    functional.scaled_dot_product_attention(q, q, q, attn_mask=shown).sum().backward()
    torch.testing.assert_close(ours, q.grad, rtol=0.02, atol=0.02)


def test_the_cross_entropy_of_halves(device):
    """The logarithms are near -10, where bf16 has 16 numbers between two whole ones: rounded once, gradients are off by 3% at most."""
    x = torch.randn(16, 32000, device=device, dtype=torch.bfloat16, requires_grad=True)
    wide = x.detach().float().requires_grad_()
    classes = torch.arange(16, device=device)
    functional.cross_entropy(x, classes, reduction="sum").backward()
    functional.cross_entropy(wide, classes, reduction="sum").backward()
    torch.testing.assert_close(add(x.grad.flatten(), x.grad.flatten()).float(), 2 * wide.grad.flatten(), rtol=0.04, atol=1e-7)


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, -1.0)

    @staticmethod
    def backward(ctx, grad):
        return torch.where(ctx.saved_tensors[0] > 0, scale(grad.contiguous(), 1.0), 0.0)


def test_a_mask_in_a_backward_of_ones_own(device):
    x = torch.randn(100, device=device, requires_grad=True)
    Masked.apply(x).sum().backward()
    torch.testing.assert_close(x.grad, (x > 0).float())


class Quantized(torch.Tensor):
    """Whole numbers and a scale that pass for floats, as libraries of quantization have them."""

    @staticmethod
    def __new__(cls, numbers, factor):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=torch.float32, device=numbers.device)

    def __init__(self, numbers, factor):
        self.numbers, self.factor = numbers, factor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        full = [each.numbers.float() * each.factor if isinstance(each, Quantized) else each for each in args]
        return func(*full, **(kwargs or {}))


def test_a_tensor_that_wraps_others(device):
    weights = Quantized(torch.randint(-8, 8, (4, 8), dtype=torch.int8, device=device), 0.5)
    assert weights.device.type == "cuda"
    assert weights.is_cuda
    out = torch.mm(torch.ones(2, 4, device=device), weights)
    torch.testing.assert_close(add(out, out), 2 * out)
    row = weights[1]
    assert row.device.type == "cuda"
    torch.testing.assert_close(add(row, row), weights.numbers[1].float())


def test_the_gradient_of_a_layer_norms_weight_in_halves(device):
    torch.manual_seed(0)
    x = (0.5 * torch.randn(1151, 1024, device=device) - 2.3).half()
    weight = torch.rand(1024, device=device, dtype=torch.float16).requires_grad_()
    dy = (0.1 * torch.randn(1151, 1024, device=device)).half()
    torch.nn.functional.layer_norm(x, (1024,), weight).backward(scale(dy, 1.0))
    wide = x.double()
    normal = (wide - wide.mean(1, keepdim=True)) * torch.rsqrt(wide.var(1, keepdim=True, correction=0) + 1e-5)
    torch.testing.assert_close(weight.grad.double(), (dy.double() * normal).sum(0), atol=6e-3, rtol=0)
