"""Operations of torch's on fp16 and bf16 as a card computes them: sums are of fp32, and the result is rounded once.

On the CPU, torch adds some of these in halves. A mean loss over 4096 tokens in bf16, half of them ignored, is 2.0 instead of 8.07; a layer
norm's gradient of its bias over 4096 rows is off by 65%; the product of 512 numbers, by 30 units in the last place. And it keeps a layer
norm's mean and deviation in halves for the backward, where a card keeps fp32. A test would blame a correct kernel for that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from harness.inside.fake_gpu.references.operations import replaced_on_cpu

_HALVES = (torch.float16, torch.bfloat16)
# Each operation, with the arguments whose type its results have; `None` is for a result in fp32.
_OPERATIONS: dict[str, tuple[int | None, ...]] = {
    "native_layer_norm": (0, None, None),
    "_log_softmax": (0,),
    "nll_loss_forward": (0, 0),
    "nll_loss2d_forward": (0, 0),
    "native_layer_norm_backward": (1, 5, 5),
    "native_group_norm_backward": (1, 4, 4),
    "embedding_dense_backward": (0,),
    "prod": (0,),
    "prod.dim_int": (0,),
}


def sum_in_fp32() -> Callable[[], None]:
    """Replace the operations. Return what undoes that."""
    return replaced_on_cpu({name: partial(_widened, places=places) for name, places in _OPERATIONS.items()})


def _widened(kernel: Any, places: tuple[int | None, ...]) -> Callable[..., Any]:
    """Return an operation that computes halves in fp32. What is asked for in another type (`dtype`, `half_to_float`) stays in it."""

    def compute(keys: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[places[0] or 0].dtype
        given = [None if place is None else args[place] for place in places]
        dtypes = [torch.float32 if place is None else getattr(each, "dtype", first) for place, each in zip(places, given, strict=True)]
        if not any(dtype in _HALVES for dtype in dtypes) or kwargs.get("dtype") is not None:
            return kernel.call_boxed(keys, *args, **kwargs)
        found = kernel.call_boxed(keys, *map(_wide, args), **kwargs)
        several = found if isinstance(found, (list, tuple)) else [found]
        rounded = [each if each is None else each.to(dtype) for each, dtype in zip(several, dtypes, strict=True)]
        return tuple(rounded) if isinstance(found, (list, tuple)) else rounded[0]

    return compute


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value
