"""Attention to a single key, by PyTorch's own operations: there is nothing to tile, and the gradients of query and key are exactly zero.

Gradients of the kernels were also wrong for it on one card: docs/kernels/attention.md, "One key".
"""

import torch
from torch import Tensor


def one_key(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None = None) -> Tensor:
    """Return the value where a query sees the key, NaN where its score is not finite, and zeros where the mask hides the key.

    `mask` is (batch, heads, rows, 1): bool, or numbers to add.
    """
    batch, heads, rows, width = query.shape
    grouped = batch, key.shape[1], heads // key.shape[1] * rows  # the queries of one key, of all heads of its group
    scores = scale * query.float().reshape(*grouped, width) @ key.float().mT
    if mask is None:
        weights = torch.softmax(scores, -1)
    else:
        mask = mask.reshape(*grouped, 1)
        seen = mask if mask.dtype == torch.bool else mask != float("-inf")
        if mask.dtype != torch.bool:
            scores = scores + mask.float().where(seen, 0.0)  # a softmax of -inf has no gradient
        weights = torch.softmax(scores, -1).where(seen, 0.0)
    return (weights * value.float()).to(value.dtype).reshape(batch, heads, rows, -1)
