"""Autocast as a card has it: what it computes in fp32, and its state where the tensors are on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.inside.fake_gpu.torch_device import Patch

# From torch's documentation of automatic mixed precision: what autocasts to fp32 on a GPU.
_NAMES_IN_FP32 = """
__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss
cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss layer_norm log
log10 log_softmax log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss norm normalize pdist
poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm tan
triplet_margin_loss
"""
_IN_FP32 = frozenset(_NAMES_IN_FP32.split())


def in_fp32(name: str, args: Any, kwargs: Any, kind: str, is_on_card: Callable[[torch.Tensor], bool]) -> tuple[Any, Any]:
    """Return the arguments of a call, in fp32 where a card's autocast computes in it. The CPU's autocast has another list.

    Args:
        name: The function of torch.
        kind: The type of device that the card has.
    """

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            is_low = value.dtype in (torch.float16, torch.bfloat16) and is_on_card(value)
            return value.to(torch.float32) if is_low else value
        if isinstance(value, dict):
            return {key: wide(entry) for key, entry in value.items()}
        return tuple(map(wide, value)) if type(value) is tuple else value

    named = any(kwargs.get(option) is not None for option in ("dtype", "out"))  # torch.nn.functional passes dtype=None
    if name not in _IN_FP32 or named or not torch.is_autocast_enabled(kind):
        return args, kwargs
    return wide(args), wide(kwargs)


def of_card(kinds: Sequence[str]) -> list[Patch]:
    """Return what makes autocast for a GPU one for the CPU, too: that is where the tensors are.

    torch keeps a state for each type of device, also where there is none, so its own questions have the right answers.
    """
    autocast: Any = torch.amp.autocast_mode.autocast
    enter, leave = autocast.__enter__, autocast.__exit__
    open_ones: list[Any] = []

    def begin(self: Any) -> Any:
        if self.device in kinds:
            open_ones.append(autocast("cpu", dtype=self.fast_dtype, enabled=self._enabled))
            enter(open_ones[-1])
        return enter(self)

    def end(self: Any, *raised: Any) -> Any:
        result = leave(self, *raised)
        if self.device in kinds:
            leave(open_ones.pop(), *raised)
        return result

    return [(autocast, "__enter__", begin), (autocast, "__exit__", end)]
