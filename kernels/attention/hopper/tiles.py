"""Shared by the two Hopper kernels: whether they can run at all, and how their tiles move."""

import functools
from typing import Any

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.hopper import barriers

WIDEST = 256  # columns of a head, padded
_NARROWEST = 32  # columns of a head that the plain kernels do not pad more than these do


@gluon.jit
def ring(STAGES: gl.constexpr, FILLS: gl.constexpr, CONSUMERS: gl.constexpr):
    """Return the (full, empty) barriers of a ring of buffers, with the arrivals that make a buffer full, and empty again."""
    return barriers(STAGES, FILLS), barriers(STAGES, CONSUMERS)


def supports(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether the Hopper kernels can take these tensors on this GPU."""
    return (
        not triton.knobs.runtime.interpret
        and (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16 == 0
        and _have_shapes(q.dtype, *[(x.shape, x.stride()) for x in (q, k, v)])
    )


# Cache what depends on shapes alone: computing it takes a third of the host's time for a forward.
@functools.lru_cache(maxsize=1024)
def _have_shapes(dtype: torch.dtype, *layouts: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    q, _, v = [shape for shape, _ in layouts]
    return (
        dtype in (torch.float16, torch.bfloat16)
        and q[0] * q[1] < 1 << 16  # heads are an axis of the backward's grid
        and min(q[3], v[3]) > _NARROWEST
        and q[3] % 8 == v[3] % 8 == 0  # so that results travel too
        and padded(max(q[3], v[3])) <= WIDEST
        and all(_has_steps(*layout) for layout in layouts)
    )


def travels(x: Tensor) -> bool:
    """Return whether the TMA can fetch tiles of a 4-dimensional tensor: strides in 16-byte steps, and no size of zero."""
    return x.data_ptr() % 16 == 0 and x.dtype in (torch.float16, torch.bfloat16) and _has_steps(x.shape, x.stride())


@functools.lru_cache
def _has_steps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    steps = [stride for size, stride in zip(shape[:-1], strides[:-1], strict=True) if size > 1]
    return 0 not in shape and strides[-1] == 1 and all(step > 0 and step % 8 == 0 for step in steps)


def tiles(x: Tensor, rows: int, swizzle: int = 128) -> Any:
    """Return a descriptor of tiles of `rows` rows of one head. Past the last row, reads give zero and writes are ignored.

    In shared memory, a tile consists of panels of `swizzle` bytes per row, with 16-byte units permuted so that columns have no bank
    conflicts.
    """
    return TensorDescriptor(x, *_described(x.shape, x.stride(), rows, swizzle))


def padded(width: int) -> int:
    """Return the columns of a tile: whole panels, a power of two. Past a head's last column, the TMA reads zeros and writes nothing."""
    return max(64, 1 << (width - 1).bit_length())


@functools.lru_cache
def _described(shape: tuple[int, ...], strides: tuple[int, ...], rows: int, swizzle: int) -> tuple[Any, ...]:
    """Return shape, strides, block and layout of `tiles`."""
    steps = [stride if size > 1 else shape[-1] for size, stride in zip(shape[:-1], strides[:-1], strict=True)]
    layout = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=16, rank=4)
    return list(shape), [*steps, 1], [1, 1, rows, padded(shape[-1])], layout


@functools.cache
def fp32_layouts() -> tuple[Any, Any]:
    """Return the layouts of vectors, and of tiles in panels of 128 bytes per row."""
    vector = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    return vector, gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=4)


@functools.lru_cache
def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of `number` up to `limit`."""
    return next(n for n in range(min(number, limit), 0, -1) if number % n == 0)
