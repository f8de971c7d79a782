"""`torch.nn.functional.scaled_dot_product_attention` with the kernels of this package."""

import functools
import importlib
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernels.attention.masked import extra, is_empty, mask_by_heads, plain_tiles
from kernels.attention.one_key import one_key
from kernels.attention.plain import decode
from kernels.attention.plain.backward import backward
from kernels.attention.plain.forward import forward
from kernels.attention.plain.tiles import padded
from kernels.configs import choose
from kernels.configs.attention import ATTENTION, MOST_OF_DECODING
from kernels.contract import autocast_all, check_dtype, check_same
from kernels.dispatch import custom_op
from kernels.launches.tape import repeatable

WIDEST = 256


@repeatable
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return `softmax(scale * query @ key.mT) @ value` by heads; differentiable, as PyTorch's function of the same name.

    Products accumulate in fp32, and the softmax is fp32. Gradients are bitwise reproducible, except the query's of up to 128 columns on
    Hopper. If the last dimension has a stride of one, any other strides are read in place, including broadcast ones.

    Args:
        query: (..., L, E) in fp32, fp16 or bf16; leading dimensions broadcast. E is at most 256; a power of two wastes nothing.
        key: (..., S, E) of the same dtype.
        value: (..., S, Ev) of the same dtype.
        attn_mask: broadcasts to (..., L, S): bool, true where a query sees a key; or numbers to add to the scaled scores, in query's dtype
            or fp32. It has no gradient. A query that sees no key has zeros.
        dropout_p: the share of probabilities that are dropped; the others are scaled by `1 / (1 - dropout_p)`.
        is_causal: query i sees keys 0 to i.
        scale: of the scores; by default `E ** -0.5`.
        enable_gqa: `query` may have a multiple of the heads (third dimension from the end) of `key` and `value`.

    Raises:
        NotImplementedError: a mask with a gradient, a head dimension over 256, or a dtype that is none of the three.
        RuntimeError: shapes, dtypes or devices do not match; or there are both kinds of mask.
    """
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"dropout_p must be between 0 and 1, but it is {dropout_p}")
    query, key, value = autocast_all(query, key, value)
    check_dtype("scaled_dot_product_attention", query, key, value)
    check_same("scaled_dot_product_attention", query, key, value)
    query, key, value, lead = _by_heads(query, key, value, enable_gqa)
    if scale is None:
        scale = max(1, query.shape[-1]) ** -0.5
    if scale <= 0:  # the kernels find the highest score before scaling
        query, scale = query * (-1.0 if scale < 0 else 0.0), -scale or 1.0
    if is_causal and query.shape[2] == 1 and attn_mask is None:  # the only query sees the first key alone
        key, value = key[:, :, :1], value[:, :, :1]
    mask = None if attn_mask is None else mask_by_heads(attn_mask, query, key, is_causal, lead)
    if key.shape[2] == 1 and not dropout_p and not is_empty(query, value):
        out = one_key(query, key, value, scale, mask)
    else:
        seed = torch.randint(2**63 - 1, (1,), device=query.device) if dropout_p else None
        out = _attention(query, key, value, mask, seed, is_causal, scale, float(dropout_p))
    return out if len(lead) == 2 else out.reshape(*lead, *out.shape[-2:])


def _by_heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor, Tensor, torch.Size]:
    """Return the three as (batch, heads, length, width), and the leading dimensions of the result."""
    if _are_by_heads(query.shape, key.shape, value.shape, enable_gqa):  # the common case costs only this check
        return query, key, value, query.shape[:2]
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(x.dim() for x in (query, key, value)) < 2:
        raise RuntimeError(f"query, key and value must have at least two dimensions, but they are {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"query and key must be of one width, key and value of one length, but they are {shapes}")
    if max(query.shape[-1], value.shape[-1]) > WIDEST:
        raise NotImplementedError(f"scaled_dot_product_attention is implemented for head dimensions of up to {WIDEST}; got {shapes}")
    if enable_gqa:
        if min(x.dim() for x in (query, key, value)) < 3:
            raise RuntimeError(f"grouped heads need at least three dimensions, but they are {shapes}")
        heads = [x.shape[-3] for x in (query, key, value)]
        if any(not n or heads[0] % n for n in heads[1:]):
            raise RuntimeError(f"heads of query must be a multiple of those of key and value, but they are {shapes}")
        if heads[1] != heads[2]:
            key, value = (x.repeat_interleave(heads[0] // x.shape[-3], -3) for x in (key, value))
        batch = torch.broadcast_shapes(*(x.shape[:-3] for x in (query, key, value)))
        lead = torch.Size((*batch, heads[0]))
        tensors = [x.expand(*batch, *x.shape[-3:]) for x in (query, key, value)]
    else:
        lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
        tensors = [x.expand(*lead, *x.shape[-2:]) for x in (query, key, value)]
    for _ in range(2 - len(lead)):
        tensors = [x.unsqueeze(0) for x in tensors]
    query, key, value = (x.flatten(0, -4) if x.dim() > 4 else x for x in tensors)
    return query, key, value, lead


def _are_by_heads(query: torch.Size, key: torch.Size, value: torch.Size, enable_gqa: bool) -> bool:
    """Return whether the three are (batch, heads, length, width), match, and need no broadcasting."""
    return (
        len(query) == len(key) == len(value) == 4
        and query[0] == key[0] == value[0]
        and key[1] == value[1]
        and (query[1] == key[1] or (enable_gqa and key[1] > 0 and query[1] % key[1] == 0))
        and query[3] == key[3]
        and key[2] == value[2]
        and max(query[3], value[3]) <= WIDEST
    )


def hopper_kernels(direction: str, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Any:
    """Return the module of the Hopper kernels if this GPU has a configuration for them and they support the shape, or None.

    Gluon is experimental, so it is imported only if needed.
    """
    if choose(ATTENTION).design != "hopper":
        return None
    module = _module(f"kernels.attention.hopper.{direction if query.dtype != torch.float32 else 'fp32'}")
    return module if module.supports(query, key, value, causal) else None


_module = functools.cache(importlib.import_module)


def _empty_results(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, out.new_empty(query.shape[:-1], dtype=torch.float32)


@custom_op("warpwave::attention", fake=_empty_results, repeats=True)
def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seed: Tensor | None, causal: bool, scale: float, p: float
) -> tuple[Tensor, Tensor]:
    """Return the output, and the natural logarithms of the sums of exponentials (fp32); infinity for a row that sees nothing.

    `mask`: (batch, heads, L, S). `seed`: of dropout with probability `p`. The plain kernels alone have these.
    """
    if is_empty(query, value):
        out, lse = _empty_results(query, key, value)
        return out.zero_(), lse.fill_(math.inf)
    if mask is None and seed is None:
        if not causal and query.shape[2] <= MOST_OF_DECODING:  # the common case costs only this check
            config, width = choose(ATTENTION), padded(max(query.shape[-1], value.shape[-1]))
            tile = next((tile for tile in config.decode if width <= tile.width), None)
            if tile and decode.supports(query, key, causal, tile.most):
                return decode.forward(query, key, value, scale, tile, config.precision)
        if hopper := hopper_kernels("forward", query, key, value, causal):
            return hopper.forward(query, key, value, causal, scale)
    tiles, precision = plain_tiles(query, value)
    return forward(query, key, value, causal, scale, tiles.forward, precision, extra(mask, seed, p))


def _empty_gradients(grad: Tensor, *leaves: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = leaves[:3]
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


@custom_op("warpwave::attention_backward", fake=_empty_gradients, repeats=True)
def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seed: Tensor | None, out: Tensor, lse: Tensor,
    causal: bool, scale: float, p: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if is_empty(query, value):
        dq, dk, dv = _empty_gradients(grad, query, key, value)
        return dq.zero_(), dk.zero_(), dv.zero_()
    plain = mask is not None or seed is not None
    if not plain and (hopper := hopper_kernels("backward", query, key, value, causal)):
        return hopper.backward(grad, query, key, value, out, lse, causal, scale)
    tiles, precision = plain_tiles(query, value)
    # A launch for dK and one for dV: with a mask or random words, registers do not hold both.
    key_value = replace(tiles.key_value, split=True) if plain else tiles.key_value
    return backward(grad, query, key, value, out, lse, causal, scale, tiles.query, key_value, precision, extra(mask, seed, p))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.scale, ctx.p = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)  # no gradient flows into the logarithms, so do not write zeros for it


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    grads = (None,) * 3 if grad is None else _attention_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale, ctx.p)
    return *grads, None, None, None, None, None


_attention.register_autograd(_backward, setup_context=_setup_context)
