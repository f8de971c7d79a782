"""Shared by the benches: sweeps over providers, the peers that are installed, and milliseconds as GB/s or TFLOP/s."""

import functools
import importlib
import unittest
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

# The labels of lines in every bench, by provider.
LINES = {
    "triton": "Triton",
    "copy": "Copy of as many bytes",
    "torch": "PyTorch",
    "compile": "torch.compile",
    "liger": "Liger",
    "quack": "QuACK",
    "tl": "Triton language",
    "cudnn": "cuDNN",
    "fa3": "FlashAttention-3",
    "plain": "Triton, product alone",
    "fast": "PyTorch, whole sums in the matrix units",
    "deepgemm": "DeepGEMM",
    "low": "Triton (little memory)",
    "floor": "Three products",
}
PEERS = ("liger", "quack")
# Errors with which peers refuse a size. A lost card or lack of memory raises something more specific.
REFUSALS = (RuntimeError, AssertionError)


def peer(module: str, name: str) -> Any:
    """Return `name` of `module`, or None if it cannot be imported: a missing peer is no error."""
    try:
        return getattr(importlib.import_module(module), name)
    except Exception:  # a package built for another torch fails in its own ways
        return None


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.compile` of a function for static shapes, compiled once per shape."""
    torch._dynamo.config.cache_size_limit = 256  # a sweep has more shapes than the default allows
    return torch.compile(function, dynamic=False)


def providers(**candidates: Any) -> dict[str, Any]:
    """Return the candidates that are not None, in order."""
    return {name: candidate for name, candidate in candidates.items() if candidate is not None}


def sweep(name: str, unit: str, candidates: Iterable[str], axes: Sequence[str], points: Sequence[Any], **args: Any) -> Any:
    """Return a benchmark: a line for each provider, a point for each value of the axis, or tuple of values of several axes."""
    names = list(candidates)
    labels = [LINES[provider] for provider in names]
    return triton.testing.Benchmark(list(axes), points, "provider", names, labels, name, args, ylabel=unit)


def gradients_of(out: Tensor, *leaves: Tensor) -> Callable[[], object]:
    """Return a call of the backward of `out`, with a random gradient, that can be repeated."""
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def tflops(operations: float, run: Callable[[], object]) -> tuple[float, float, float]:
    """Return TFLOP/s of a call at the median, and at the 20th and 80th percentile."""
    return _rates(operations * 1e-9, run)


def _rates(amount: float, run: Callable[[], object]) -> tuple[float, float, float]:
    """Return the amount per millisecond."""
    median, fast, slow = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])
    return amount / median, amount / slow, amount / fast


def bandwidth(bench: Callable[..., tuple[int, Callable[[], object]]]) -> Callable[..., tuple[float, float, float]]:
    """Return a benchmark of memory bandwidth: GB/s at the median, and at the 20th and 80th percentile.

    `bench(provider, **parameters)` makes the inputs and returns the minimum bytes that the op must move (each input read once, each output
    written once) and the call to time. For the provider `copy`, PyTorch copies a tensor with the same number of bytes instead. If a peer
    refuses a size, the point is skipped with the peer's message: that is no failure of this package.
    """

    @functools.wraps(bench)
    def measure(provider: str, **parameters: Any) -> tuple[float, float, float]:
        try:
            n_bytes, run = bench(provider if provider != "copy" else "torch", **parameters)
            if provider in PEERS:
                run()
        except Exception as error:
            if provider not in PEERS or type(error) not in REFUSALS:
                raise
            raise unittest.SkipTest(f"{LINES[provider]} refuses it: {error}") from error
        if provider == "copy":
            source = torch.randn(n_bytes // 8, device="cuda")
            run = functools.partial(torch.empty_like(source).copy_, source)
        return _rates(n_bytes * 1e-6, run)

    return measure
