"""Let torch's libraries plan before the card is held what a sweep calls of them.

A library chooses, compiles and loads what computes an operator when it is first called for a shape, which takes up to seconds of the host.
The card records such a call in a graph that is never run: the library plans, and nothing is computed. The tensors of the call have no
memory of their own; they all begin at one small piece of it. Plans are kept by the thread that made them, so calls of a backward pass are
recorded in the thread of torch's autograd.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from harness.inside.facts.device import accelerator
from harness.inside.precompile_torch.library_calls import Call, calls

_LIMIT_S = 120.0  # what is not planned by then is planned when it is first called
_PIECE_BYTES = 1 << 20


def plan(lines: Iterable[str]) -> int:
    """Plan these calls. Return how many were.

    Raises:
        RuntimeError: the device does not answer any more.
    """
    here = accelerator()
    if here is None or not hasattr(here[1], "CUDAGraph") or _chooses_by_time(here[1]):
        return 0
    device, module = here
    piece = torch.empty(_PIECE_BYTES, dtype=torch.uint8, device=device)
    memory = _Memory(piece)
    stream = module.Stream()  # one for all: libraries keep memory for each
    ends, planned = time.monotonic() + _LIMIT_S, 0
    for call in calls(list(lines), memory.tensor):
        if time.monotonic() > ends:
            break
        with contextlib.suppress(Exception):  # the sweep reports the error, if it is one of the call's own
            _record(call, module, stream, memory)
            planned += 1
        module.empty_cache()
    with contextlib.suppress(AttributeError):
        torch._C._cuda_clearCublasWorkspaces()
    module.synchronize()
    module.empty_cache()
    return planned


def _chooses_by_time(module: Any) -> bool:
    """Return whether libraries choose by timing their candidates, which needs a card that runs them."""
    tunable = getattr(module, "tunable", None)
    return bool(torch.backends.cudnn.benchmark or (tunable is not None and tunable.is_enabled()))


class _Memory:
    """Makes tensors that all begin at one piece of the device's memory, however large they are."""

    def __init__(self, piece: torch.Tensor) -> None:
        self._piece = piece

    def tensor(self, size: list[int], stride: list[int], dtype: torch.dtype, device: str) -> torch.Tensor:
        """Return a tensor of the device without memory of its own; of the host, one of zeros."""
        if device == "cpu":
            return torch.zeros(size, dtype=dtype)
        span = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if all(size) else 0
        known = {"size": torch.Size(size), "stride": tuple(stride), "dtype": dtype, "device": self._piece.device, "storage_offset": 0}
        place = {"data_ptr": self._piece.data_ptr(), "nbytes": span * dtype.itemsize}
        storage = torch._C._construct_storage_from_data_pointer(place["data_ptr"], self._piece.device, place["nbytes"])
        return torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata({**known, **place}, storage)


def _record(call: Call, module: Any, stream: Any, memory: Any) -> None:
    graph = module.CUDAGraph()
    with warnings.catch_warnings(), module.stream(stream), torch.no_grad():
        warnings.simplefilter("ignore")  # torch warns of a graph without a launch
        module.synchronize()
        graph.capture_begin(capture_error_mode="relaxed")
        try:
            in_backward(call, memory) if call.in_backward else call()
        finally:
            graph.capture_end()


def in_backward(call: Call, memory: Any) -> None:
    """Make a call in the thread of torch's autograd for the device."""
    start = memory.tensor([1], [1], torch.float32, "the device").requires_grad_()
    with torch.enable_grad():
        end = _InBackward.apply(start, call)  # type: ignore[no-untyped-call]
    torch.autograd.grad(end, start, memory.tensor([1], [1], torch.float32, "the device"), allow_unused=True)


class _InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, call: Call) -> torch.Tensor:
        """Note what the backward pass calls."""
        ctx.call = call
        return start.view_as(start)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Make the call. There is no gradient."""
        ctx.call()
        return None, None
