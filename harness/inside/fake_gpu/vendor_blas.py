"""The vendors' matrix products that Triton brings (`CublasLt`, `HipblasLt`): benches and tests compare kernels with them.

Their libraries come with a driver or a GPU build of torch, and do not load where there is no card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton._C import libtriton
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from harness.inside.fake_gpu.torch_device import Patch, missing
from harness.records import Architecture

_PRODUCTS = ("matmul", "gemm")


class Products:
    """Stands for a handle of such a library: torch computes the products, or only the shapes where tensors have no data."""

    def __init__(self, workspace: torch.Tensor) -> None:
        """Take a card's scratch memory, which nothing here needs."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write `a @ b.T` to `c`. Shapes: (M, K), (N, K) and (M, N)."""
        c.copy_(_product(a, b))

    def gemm(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float) -> None:
        """Write `alpha * a @ b.T + beta * c` to `d`. Shapes: (M, K), (N, K) and twice (M, N)."""
        d.copy_(alpha * _product(a, b) + beta * c.float())


def vendor_blas(card: Architecture) -> list[Patch]:
    """Return what gives the backend of `card` such a handle. Those of other vendors say that their library is not there."""
    target = GPUTarget(card.backend, card.arch, card.warp_size)
    return [
        (module, name, _standing_for(getattr(module, name)) if backends[vendor].compiler.supports_target(target) else _absent(name, card))
        for vendor, module, name in _handles()
    ]


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a product whose sums are of fp32, as those libraries have them."""
    return a.float() @ b.float().t()


def _handles() -> Iterator[tuple[str, Any, str]]:
    """Yield each backend's name, its module of products, and the name of the class there."""
    for vendor in backends:
        for name, module in vars(getattr(libtriton, vendor, object)).items():
            if name.endswith("blas"):
                yield from ((vendor, module, each) for each, value in vars(module).items() if isinstance(value, type))


def _standing_for(real: type) -> type:
    """Return `Products`, which refuses whatever else the real class offers."""
    public = {name for name in vars(real) if not name.startswith("_")}
    return type(real.__name__, (Products,), {name: missing(f"{real.__name__}.{name}") for name in public - set(_PRODUCTS)})


def _absent(name: str, card: Architecture) -> Callable[..., object]:
    def fail(*args: object, **kwargs: object) -> object:
        raise RuntimeError(f"{name}: a machine with {card.name} does not have the library of another vendor")

    return fail
