"""What the benches share: peers to compare with, where they are installed, and one way to turn milliseconds into GB/s."""

from __future__ import annotations

import functools
import importlib
import unittest
from collections.abc import Callable
from typing import Any

import torch
import triton

# The names that lines have in every bench, by provider.
LINES = {
    "triton": "Triton",
    "copy": "Copy of as many bytes",
    "torch": "PyTorch",
    "compile": "torch.compile",
    "liger": "Liger",
    "quack": "QuACK",
}
PEERS = ("liger", "quack")
# What they refuse a size with. A card that is lost or has no memory left raises something more special.
REFUSALS = (RuntimeError, AssertionError)


def peer(module: str, name: str) -> Any:
    """`name` of `module`, or None where it cannot be imported: a hole in the table, never an error."""
    try:
        return getattr(importlib.import_module(module), name)
    except Exception:  # a package built for another torch fails in its own ways
        return None


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` of a function, for static shapes, compiled once a shape."""
    torch._dynamo.config.cache_size_limit = 256  # a sweep has more shapes than the default keeps
    return torch.compile(function, dynamic=False)


def providers(**candidates: Any) -> dict[str, Any]:
    """The candidates that are there, in order."""
    return {name: candidate for name, candidate in candidates.items() if candidate is not None}


def bandwidth(bench: Callable[..., tuple[int, Callable[[], object]]]) -> Callable[..., tuple[float, float, float]]:
    """A benchmark of memory bandwidth: GB/s at the median and at the 20th and 80th percentile.

    `bench(provider, **parameters)` makes the inputs and returns the fewest bytes that the op can move (each input read once, each output
    written once) and the call to time. For the provider `copy`, PyTorch copies a tensor instead, so that as many bytes are moved.
    What a peer refuses is skipped, with what it says: it is no failure of this package.
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
        median, fast, slow = triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])
        return n_bytes / median * 1e-6, n_bytes / slow * 1e-6, n_bytes / fast * 1e-6

    return measure
