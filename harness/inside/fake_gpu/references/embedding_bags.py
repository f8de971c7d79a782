"""What `_embedding_bag` returns beside its sums: packages pass it to their own backward.

A card returns the bag of each index and the size of each bag. The CPU leaves them empty, or zero, where it adds up: it computes them later.
Source: `EmbeddingBag.cu` and `EmbeddingBag.cpp` of torch 2.11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.inside.fake_gpu.references.operations import replaced_on_cpu


def name_bags() -> Callable[[], None]:
    """Replace the operation. Return what undoes that."""
    return replaced_on_cpu({"_embedding_bag": _named, "_embedding_bag_forward_only": _named})


def _named(kernel: Any) -> Callable[..., Any]:
    def compute(keys: Any, weight: Any, indices: Any, offsets: Any, *args: Any, **kwargs: Any) -> Any:
        output, bag_of_index, sizes, largest = kernel.call_boxed(keys, weight, indices, offsets, *args, **kwargs)
        if bag_of_index.numel() == indices.numel():
            return output, bag_of_index, sizes, largest
        ends = torch.cat([offsets[1:], offsets.new_tensor([indices.numel()])])[: sizes.numel()]
        sizes = ends - offsets[: sizes.numel()]
        return output, torch.repeat_interleave(sizes), sizes, largest

    return compute
