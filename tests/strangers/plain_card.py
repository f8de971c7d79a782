"""A stand-in for a card under plain pytest (`-p plain_card`), for tests that end without one. Nothing of the harness is in it.

What a test puts on a GPU is on the CPU, where Triton's interpreter reads it. The rest of torch.cuda answers as a card would, or not at all.
"""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import plain_compile
import torch
import triton
from torch.overrides import TorchFunctionMode


class OnTheCpu(TorchFunctionMode):
    """Replace a GPU by the CPU in each call of torch, and say that it is a GPU if asked."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        kwargs = {key: _cpu(value) for key, value in (kwargs or {}).items()}
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        kwargs |= {"pin_memory": False} if kwargs.get("pin_memory") else {}
        return func(*map(_cpu, args), **kwargs)


def _cpu(value: Any) -> Any:
    """Return the CPU for a GPU, and anything else as it is."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


class Event:
    """An event that has happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    record = wait = synchronize = lambda self, *args: None

    def elapsed_time(self, other: Event) -> float:
        """Return a millisecond."""
        return 1.0


def _nothing() -> Any:
    """Return a function that does nothing."""
    return lambda *args, **kwargs: None


def _context() -> Any:
    """Return a function that returns a context without an effect."""
    return lambda *args: contextlib.nullcontext()


def pretend() -> None:
    """Answer for the rest of the process."""
    plain_compile.pretend(plain_compile.target_of(os.environ.get("PLAIN_CARD", "sm_90")))
    triton.runtime.driver.active.get_benchmarker = lambda: lambda call, *args, **kwargs: call() or 1.0
    cuda: Any = torch.cuda
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda other: None, device=torch.device("cuda", 0))
    for name in ("_lazy_init", "init", "synchronize", "empty_cache", "set_device", "manual_seed", "manual_seed_all"):
        setattr(cuda, name, _nothing())  # each its own function: torch.compile refuses one of two names
    cuda.current_stream, cuda.default_stream = (lambda *args: stream), (lambda *args: stream)
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    for name in ("device", "device_of", "stream"):
        setattr(cuda, name, _context())
    cuda.memory_allocated, cuda.max_memory_allocated = (lambda *args: 0), (lambda *args: 0)
    cuda.Event = Event
    autograd: Any = torch.autograd
    run_backward = autograd._engine_run_backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        with OnTheCpu():  # torch turns a mode off while a function that it saw runs
            return run_backward(*args, **kwargs)

    autograd._engine_run_backward = backward
    OnTheCpu().__enter__()


pretend()
