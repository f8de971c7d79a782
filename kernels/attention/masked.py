"""Attention with a mask or with dropout, in the plain kernels: those for Hopper, and those for few queries, have neither.

Dropout stores no mask: a probability is kept or not by a random word of its place (Philox4x32-7, keyed by a seed from torch's generator).
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernels.attention.one_key import one_key
from kernels.attention.plain.backward import backward
from kernels.attention.plain.forward import forward
from kernels.attention.plain.tiles import Extra, padded
from kernels.configs import choose
from kernels.configs.attention import ATTENTION, Tiles
from kernels.dispatch import custom_op


def plain_tiles(query: Tensor, value: Tensor) -> tuple[Tiles, str]:
    """Return the tiles of the plain Triton kernels for these dtypes and widths, and the precision of products."""
    config, width = choose(ATTENTION), padded(max(query.shape[-1], value.shape[-1]))
    narrow = query.dtype != torch.float32
    tiles = next(tiles for tiles in (config.narrow if narrow else config.wide) if width <= tiles.width)
    return tiles, config.precision


def is_empty(query: Tensor, value: Tensor) -> bool:
    """Return whether there is no output, or nothing to attend to."""
    return not (value.numel() and query.shape[:-1].numel())


def masked(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, dropout_p: float, lead: torch.Size
) -> Tensor:
    """Return attention with heads (batch, head, length, width), with a mask that broadcasts to `lead` and the scores.

    Raises:
        RuntimeError: the mask does not broadcast, or is of another dtype or device; or there is a causal mask, too.
        NotImplementedError: the mask needs a gradient.
    """
    if mask is not None:
        mask = _checked(mask, query, causal).expand(*lead, query.shape[2], key.shape[2])
        mask = mask[(None,) * (2 - len(lead))] if len(lead) < 2 else mask.flatten(0, -4) if len(lead) > 2 else mask
    if mask is not None and not dropout_p and key.shape[2] == 1 and not is_empty(query, value):
        return one_key(query, key, value, scale, mask)
    seed = torch.randint(2**63 - 1, (1,), device=query.device) if dropout_p else None
    return _masked(query, key, value, mask, seed, causal, scale, float(dropout_p))


def _checked(mask: Tensor, query: Tensor, causal: bool) -> Tensor:
    if causal:
        raise RuntimeError("explicit attn_mask should not be set when is_causal=True")
    if mask.dtype not in (torch.bool, torch.float32, query.dtype) or mask.device != query.device:
        seen = f"{mask.dtype} on {mask.device}, and query is {query.dtype} on {query.device}"
        raise RuntimeError(f"attn_mask must be bool, fp32 or of query's dtype, on its device; it is {seen}")
    if mask.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("the gradient of attn_mask is not implemented: it is as large as the scores, which are never stored")
    return mask


def _extra(mask: Tensor | None, seed: Tensor | None, p: float) -> Extra:
    # With p = 1, all probabilities are dropped, and the factor must not be infinite.
    threshold, kept_scale = (2**32 - 1, 0.0) if p == 1.0 else (min(round(p * 2**32), 2**32 - 1), 1.0 / (1.0 - p))
    return Extra(mask, (0, 0, 0, 0) if mask is None else mask.stride(), seed, threshold, kept_scale)


@custom_op("warpwave::attention_masked")
def _masked(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seed: Tensor | None, causal: bool, scale: float, p: float
) -> tuple[Tensor, Tensor]:
    """Return the output, and the natural logarithms of the sums of exponentials (fp32); infinity for a row that sees nothing."""
    if is_empty(query, value):
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        return out.zero_(), out.new_empty(query.shape[:-1], dtype=torch.float32).fill_(math.inf)
    tiles, precision = plain_tiles(query, value)
    return forward(query, key, value, causal, scale, tiles.forward, precision, _extra(mask, seed, p))


@custom_op("warpwave::attention_masked_backward")
def _masked_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seed: Tensor | None, out: Tensor, lse: Tensor,
    causal: bool, scale: float, p: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if is_empty(query, value):
        dq, dk, dv = (x.new_empty(x.shape).zero_() for x in (query, key, value))
        return dq, dk, dv
    tiles, precision = plain_tiles(query, value)
    # A launch for dK and one for dV: with a mask or random words, registers do not hold both.
    key_value = replace(tiles.key_value, split=True)
    return backward(grad, query, key, value, out, lse, causal, scale, tiles.query, key_value, precision, _extra(mask, seed, p))


@_masked.register_fake
def _(query, key, value, *_):
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, out.new_empty(query.shape[:-1], dtype=torch.float32)


@_masked_backward.register_fake
def _(grad, query, key, value, *_):
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.scale, ctx.p = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    grads = (None, None, None) if grad is None else _masked_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale, ctx.p)
    return *grads, None, None, None, None, None


_masked.register_autograd(_backward, setup_context=_setup_context)
