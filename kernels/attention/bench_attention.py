"""TFLOP/s of attention: two products forward, five backward, and half of each under a causal mask.

`torch` is PyTorch's own choice, `cudnn` its fastest backend on Hopper, `fa3` FlashAttention-3 if installed. `tl` are the plain Triton
kernels, on cards for which `triton` uses those for Hopper. Inputs are random: constants draw less power and run faster.
"""

import functools

import torch
import triton
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.attention import scaled_dot_product_attention
from kernels.attention.attention import plain_tiles
from kernels.attention.plain.backward import backward as plain_backward
from kernels.attention.plain.forward import forward as plain_forward
from kernels.peers import gradients_of, peer, providers, sweep, tflops

flash_attn_3 = peer("fa3_fwd_interface", "flash_attn_func")


def cudnn(query, key, value, **kwargs):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(query, key, value, **kwargs)


class Plain(torch.autograd.Function):
    """The plain Triton kernels, whatever the configuration prefers."""

    @staticmethod
    def forward(ctx, query, key, value, causal):
        tiles, precision = plain_tiles(query, value)
        out, lse = plain_forward(query, key, value, causal, query.shape[-1] ** -0.5, tiles.forward, precision)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx, grad):
        query, _, value, _, _ = ctx.saved_tensors
        tiles, precision = plain_tiles(query, value)
        scale = query.shape[-1] ** -0.5
        grads = plain_backward(grad, *ctx.saved_tensors, ctx.causal, scale, tiles.query, tiles.key_value, precision)
        return *grads, None


def tl(query, key, value, is_causal, enable_gqa):
    return Plain.apply(query, key, value, is_causal)


def fa3(query, key, value, is_causal, enable_gqa):
    """Call FlashAttention-3, which takes heads after rows."""
    with torch.no_grad():
        out = flash_attn_3(*(x.transpose(1, 2) for x in (query, key, value)), causal=is_causal)
    return out[0] if isinstance(out, tuple) else out


# Only NVIDIA GPUs have two designs.
BACKWARD = providers(
    triton=scaled_dot_product_attention,
    tl=None if torch.version.hip else tl,
    torch=F.scaled_dot_product_attention,
    cudnn=cudnn if torch.version.cuda else None,
)
FORWARD = BACKWARD | providers(fa3=flash_attn_3 and fa3)

# (batch, query heads, heads of keys and values, length), with the same number of products per head at each length
SHAPES = [(16, 32, 32, 1024), (4, 32, 32, 4096), (1, 32, 32, 16384)]
# With a mask, also a layer of Llama 3, and a length that no tile divides. Each compiles its own kernels.
CAUSAL = [*SHAPES, (2, 64, 8, 8192), (4, 32, 32, 4000)]
# These compile their own kernels, at one length.
OTHERS = [("D256", 256, torch.bfloat16), ("fp32", 128, torch.float32)]


def mark(name, shapes, candidates, causal, width=128, dtype=torch.bfloat16):
    name = f"{name}-{'causal' if causal else 'full'}"
    return sweep(name, "TFLOP/s", candidates, ("B", "H", "KV", "S"), shapes, D=width, causal=causal, dtype=dtype)


def marks(direction, candidates):
    own = {"triton": candidates["triton"], "torch": candidates["torch"]}
    found = [
        mark(f"{direction}-D128", SHAPES, candidates, False),
        mark(f"{direction}-D128", CAUSAL, candidates, True),
        mark(f"{direction}-D64", SHAPES[1:2], candidates, True, 64),
    ]
    return found + [mark(f"{direction}-{name}", [(1, 16, 16, 4096)], own, True, width, dtype) for name, width, dtype in OTHERS]


def inputs(B, H, KV, S, D, dtype, requires_grad):
    return [torch.randn(B, heads, S, D, device="cuda", dtype=dtype, requires_grad=requires_grad) for heads in (H, KV, KV)]


def product(B, H, S, D, causal):
    """Return the operations of one product."""
    return 2 * B * H * S * S * D / (2 if causal else 1)


@triton.testing.perf_report(marks("forward", FORWARD))
def forward(provider, B, H, KV, S, D, causal, dtype):
    tensors = inputs(B, H, KV, S, D, dtype, requires_grad=False)
    run = functools.partial(FORWARD[provider], *tensors, is_causal=causal, enable_gqa=H != KV)
    return tflops(2 * product(B, H, S, D, causal), run)


@triton.testing.perf_report(marks("backward", BACKWARD))
def backward(provider, B, H, KV, S, D, causal, dtype):
    tensors = inputs(B, H, KV, S, D, dtype, requires_grad=True)
    out = BACKWARD[provider](*tensors, is_causal=causal, enable_gqa=H != KV)
    return tflops(5 * product(B, H, S, D, causal), gradients_of(out, *tensors))
