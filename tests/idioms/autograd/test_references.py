"""What tests compare with, and train with: torch's attention, counts, optimizers, and tensors that wrap others."""

import pytest
import torch
from small_kernels import add, scale
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


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


def test_a_part_of_a_tensor_that_wraps_others(device):
    weights = Quantized(torch.randint(-8, 8, (4, 8), dtype=torch.int8, device=device), 0.5)
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
