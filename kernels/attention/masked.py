"""Masks and dropout of attention, which the plain kernels have, and those for Hopper and for few queries have not; and their tiles.

Dropout stores no mask: a probability is kept or not by a random word of its place (Philox4x32-7, keyed by a seed from torch's generator).
"""

import torch
from torch import Tensor

from kernels.attention.plain.tiles import Extra, padded
from kernels.configs import choose
from kernels.configs.attention import ATTENTION, Tiles


def plain_tiles(query: Tensor, value: Tensor) -> tuple[Tiles, str]:
    """Return the tiles of the plain Triton kernels for these dtypes and widths, and the precision of products."""
    config, width = choose(ATTENTION), padded(max(query.shape[-1], value.shape[-1]))
    narrow = query.dtype != torch.float32
    tiles = next(tiles for tiles in (config.narrow if narrow else config.wide) if width <= tiles.width)
    return tiles, config.precision


def is_empty(query: Tensor, value: Tensor) -> bool:
    """Return whether there is no output, or nothing to attend to."""
    return not (value.numel() and query.shape[:-1].numel())


def mask_by_heads(mask: Tensor, query: Tensor, key: Tensor, causal: bool, lead: torch.Size) -> Tensor:
    """Return a mask, which broadcasts to the leading dimensions `lead` and the scores, as (batch, heads, queries, keys).

    Raises:
        RuntimeError: it does not broadcast, or is of another dtype or device; or there is a causal mask, too.
        NotImplementedError: it needs a gradient.
    """
    if causal:
        raise RuntimeError("explicit attn_mask should not be set when is_causal=True")
    if mask.dtype not in (torch.bool, torch.float32, query.dtype) or mask.device != query.device:
        seen = f"{mask.dtype} on {mask.device}, and query is {query.dtype} on {query.device}"
        raise RuntimeError(f"attn_mask must be bool, fp32 or of query's dtype, on its device; it is {seen}")
    if mask.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("the gradient of attn_mask is not implemented: it is as large as the scores, which are never stored")
    mask = mask.expand(*lead, query.shape[2], key.shape[2])
    return mask[(None,) * (2 - len(lead))] if len(lead) < 2 else mask.flatten(0, -4) if len(lead) > 2 else mask


def extra(mask: Tensor | None, seed: Tensor | None, p: float) -> Extra:
    """Return what the plain kernels take besides: a mask, and dropout with probability `p` if there is a seed."""
    # With p = 1, all probabilities are dropped, and the factor must not be infinite.
    threshold, kept_scale = (2**32 - 1, 0.0) if p == 1.0 else (min(round(p * 2**32), 2**32 - 1), 1.0 / (1.0 - p))
    return Extra(mask, (0, 0, 0, 0) if mask is None else mask.stride(), seed, threshold, kept_scale)
