"""What the two Hopper kernels share: whether they can run at all, and how their tiles travel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

try:
    from triton._C.libtriton import ir
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language._core import builtin
    from triton.experimental.gluon.language.nvidia import hopper
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    AVAILABLE = hasattr(gl, "warp_specialize") and hasattr(hopper, "warpgroup_mma")
except ImportError:  # a Triton without Gluon, or without its Hopper part
    AVAILABLE = False


if AVAILABLE:
    # The names are those of Triton 3.9; 3.6 has the first two under others, and for the third the operation but no function.
    async_load = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
    async_store = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global

    @builtin
    def _reduce_add(desc, coord, source, _semantic=None):
        coord = _semantic._convert_to_ir_values(coord, require_i64=False)
        _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, desc.handle, coord, source.handle)

    async_atomic_add = getattr(hopper.tma, "async_atomic_add", None) or _reduce_add


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`gluon.jit`, and nothing where there is no Gluon: importing a kernel never fails, only `supports` says no."""
    return gluon.jit(function, **options) if AVAILABLE else function or (lambda function: function)


@jit
def ring(STAGES: gl.constexpr, FILLS: gl.constexpr, CONSUMERS: gl.constexpr):
    """(full, empty) barriers of a ring of buffers: the arrivals that make one full, and those that make it empty again."""
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(full.index(i), count=FILLS)
        hopper.mbarrier.init(empty.index(i), count=CONSUMERS)
    return full, empty


def supports(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Whether these tensors are ones for the Hopper kernels, with a mask or without, on a card that the configuration calls one."""
    return (
        AVAILABLE
        and not triton.knobs.runtime.interpret
        and q.shape[0] * q.shape[1] < 1 << 16  # heads are an axis of the backward's grid
        and q.shape[3] in (64, 128)
        and q.shape[3] == k.shape[3] == v.shape[3]
        and travels(q)
        and travels(k)
        and travels(v)
    )


def travels(x: Tensor) -> bool:
    """Whether the tensor memory accelerator can fetch tiles of a 4-dimensional tensor: 16-byte steps, and none of size zero."""
    return x.data_ptr() % 16 == 0 and x.dtype in (torch.float16, torch.bfloat16) and _has_steps(x.shape, x.stride())


# What follows from a shape alone is worked out once: it would be a third of the host's time for a forward.
@functools.lru_cache
def _has_steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    steps = [stride for size, stride in zip(shape[:-1], strides[:-1], strict=True) if size > 1]
    return 0 not in shape and strides[-1] == 1 and all(step > 0 and step % 8 == 0 for step in steps)


def tiles(x: Tensor, rows: int, swizzle: int = 128) -> Any:
    """A descriptor of tiles of `rows` rows of one head. What lies past the last row is read as zero and not written.

    In shared memory a tile lies in panels of `swizzle` bytes a row, with 16-byte units permuted so that columns are free of conflicts.
    """
    return TensorDescriptor(x, *_described(x.shape, x.stride(), rows, swizzle))


@functools.lru_cache
def _described(shape: tuple[int, ...], strides: tuple[int, ...], rows: int, swizzle: int) -> tuple[Any, ...]:
    """Shape, strides, block and layout of `tiles`."""
    steps = [stride if size > 1 else shape[-1] for size, stride in zip(shape[:-1], strides[:-1], strict=True)]
    layout = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=16, rank=4)
    return list(shape), [*steps, 1], [1, 1, rows, shape[-1]], layout


@functools.cache
def fp32_layouts() -> tuple[Any, Any]:
    """Of vectors, and of tiles in panels of 128 bytes a row."""
    vector = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    return vector, gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=4)


@functools.lru_cache
def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is no larger than `limit`."""
    return next(n for n in range(min(number, limit), 0, -1) if number % n == 0)


def with_positive_scale(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """Two factors with the product `scale * q`, the second positive: the largest of `q k^T` is then the largest score too."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (torch.zeros_like(q), 1.0)
