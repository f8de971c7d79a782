"""Attention of sequences of several lengths, one after the other in a tensor: `torch.nn.attention.varlen.varlen_attn`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.attention.attention import WIDEST, hopper_kernels
from kernels.attention.masked import is_empty, plain_tiles
from kernels.attention.plain.backward import backward
from kernels.attention.plain.forward import forward
from kernels.attention.plain.sequences import Sequences
from kernels.contract import autocast_all, check_dtype, check_same
from kernels.dispatch import custom_op


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> Tensor:
    """Return the attention of each sequence to itself; differentiable, as PyTorch's function of the same name.

    The host does not wait for lengths. Gradients are bitwise reproducible, except those of up to 128 columns on Hopper.

    Args:
        query: (T, H, E) in fp32, fp16 or bf16: sequences, one after the other; E is at most 256.
        key: (S, H, E) of the same dtype.
        value: (S, H, Ev) of the same dtype.
        cu_seq_q: (N + 1,) in int32, on the same device: sequence i has the queries `cu_seq_q[i]` to `cu_seq_q[i + 1] - 1`. The first one
            is 0, the last one T.
        cu_seq_k: the same of keys and values. A query whose sequence has no key has zeros.
        max_q: the most queries of a sequence. A sequence may not have more.
        max_k: the most keys of a sequence.
        scale: of the scores; by default `E ** -0.5`.
        window_size: (-1, -1): a query sees all keys of its sequence; (-1, 0): the last query sees all, the one before all but the last
            key, and so on.
        enable_gqa: `query` may have a multiple of the heads of `key` and `value`.

    Returns:
        (T, H, Ev), contiguous.

    Raises:
        NotImplementedError: another window, a head dimension over 256, or a dtype that is none of the three.
        RuntimeError: shapes, dtypes or devices do not match.
    """
    query, key, value = autocast_all(query, key, value)
    check_dtype("varlen_attn", query, key, value)
    check_same("varlen_attn", query, key, value)
    check_same("varlen_attn", cu_seq_q, cu_seq_k)
    if tuple(window_size) not in ((-1, -1), (-1, 0)):
        raise NotImplementedError(f"varlen_attn is implemented for the windows (-1, -1) and (-1, 0), not for {tuple(window_size)}")
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 3 or query.shape[2] != key.shape[2] or key.shape[:2] != value.shape[:2]:
        raise RuntimeError(f"varlen_attn expected (length, heads, width), of one width and of as many keys as values, but got {shapes}")
    if key.shape[1] == 0 or (query.shape[1] % key.shape[1] if enable_gqa else query.shape[1] != key.shape[1]):
        raise RuntimeError(f"heads of query must be {'a multiple of ' if enable_gqa else ''}those of key and value, but they are {shapes}")
    if cu_seq_q.dtype != torch.int32 or cu_seq_q.dim() != 1 or cu_seq_q.shape != cu_seq_k.shape or not len(cu_seq_q):
        raise RuntimeError("varlen_attn expected cu_seq_q and cu_seq_k in int32 and of one length, the number of sequences plus one")
    if max(query.shape[2], value.shape[2]) > WIDEST:
        raise NotImplementedError(f"varlen_attn is implemented for head dimensions of up to {WIDEST}; got {shapes}")
    if scale is None:
        scale = max(1, query.shape[-1]) ** -0.5
    if scale <= 0:  # the kernels find the highest score before scaling
        query, scale = query * (-1.0 if scale < 0 else 0.0), -scale or 1.0
    return _varlen(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, window_size[1] == 0, cu_seq_q is cu_seq_k, scale)


@custom_op("warpwave::varlen_attention")
def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    causal: bool,
    square: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the output (T, H, Ev), and the natural logarithms of the sums of exponentials (1, H, T) in fp32.

    `square`: each sequence has as many keys as queries. Only then does a diagonal start at a tile's corner, as those for Hopper need.
    """
    query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
    if is_empty(query, value):
        out = query.new_empty((query.shape[2], query.shape[1], value.shape[3]))
        return out.zero_(), out.new_empty(query.shape[:-1], dtype=torch.float32).fill_(math.inf)
    sequences = Sequences(cu_seq_q, cu_seq_k, max_q, max_k)
    module = hopper_kernels("forward", query, key, value, causal) if query.dtype != torch.float32 and (square or not causal) else None
    if module:
        out, lse = module.forward(query, key, value, causal, scale, sequences)
    else:
        tiles, precision = plain_tiles(query, value)
        out, lse = forward(query, key, value, causal, scale, tiles.forward, precision, sequences=sequences)
    return out[0].transpose(0, 1), lse


@custom_op("warpwave::varlen_attention_backward")
def _varlen_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    out: Tensor,
    lse: Tensor,
    max_q: int,
    max_k: int,
    causal: bool,
    square: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grad, query, key, value, out = (x.transpose(0, 1)[None] for x in (grad, query, key, value, out))
    if is_empty(query, value):
        dq, dk, dv = (x.new_empty(x.shape[2], x.shape[1], x.shape[3]).zero_() for x in (query, key, value))
        return dq, dk, dv
    sequences = Sequences(cu_seq_q, cu_seq_k, max_q, max_k)
    module = hopper_kernels("backward", query, key, value, causal) if query.dtype != torch.float32 and (square or not causal) else None
    if module and query.shape[3] == value.shape[3] <= 128:
        grads = module.backward(grad, query, key, value, out, lse, causal, scale, sequences)
    else:
        tiles, precision = plain_tiles(query, value)
        grads = backward(grad, query, key, value, out, lse, causal, scale, tiles.query, tiles.key_value, precision, sequences=sequences)
    dq, dk, dv = (x[0].transpose(0, 1) for x in grads)
    return dq, dk, dv


@_varlen.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out = query.new_empty((*query.shape[:2], value.shape[2]))
    return out, out.new_empty((1, query.shape[1], query.shape[0]), dtype=torch.float32)


@_varlen_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.max_q, ctx.max_k, ctx.causal, ctx.square, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    rest = ctx.max_q, ctx.max_k, ctx.causal, ctx.square, ctx.scale
    grads = (None, None, None) if grad is None else _varlen_backward(grad, *ctx.saved_tensors, *rest)
    return *grads, None, None, None, None, None, None, None


_varlen.register_autograd(_backward, setup_context=_setup_context)
