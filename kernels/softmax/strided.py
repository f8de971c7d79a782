"""Softmax along a dimension whose elements are not adjacent in memory: neighbouring columns are processed together.

Two passes: the first keeps a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). The
second finds the elements in a cache.
"""

import triton
import triton.language as tl

from kernels.softmax.rows import careful_exp, exp, shift


@triton.jit
def _columns(program, length, width, tiles, WIDTH: tl.constexpr):
    """Return the offset of the first elements of a program's columns, and which of them exist."""
    lane = program % tiles * WIDTH + tl.arange(0, WIDTH)[None, :]
    return (program // tiles).to(tl.int64) * length * width + lane, lane < width


@triton.jit
def _step(begin, length, width, BLOCK: tl.constexpr):
    """Return the offsets of the next elements down a column, and which of them exist."""
    step = begin + tl.arange(0, BLOCK)[:, None]
    return step.to(tl.int64) * width, step < length


@triton.jit
def softmax_strided_kernel(out_ptr, x_ptr, length, width, tiles, LOG: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    first, exists = _columns(tl.program_id(0), length, width, tiles, WIDTH)
    kind = out_ptr.dtype.element_ty
    top = tl.full((BLOCK, WIDTH), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for begin in range(0, length, BLOCK):
        step, within = _step(begin, length, width, BLOCK)
        x = tl.load(x_ptr + first + step, mask=exists & within, other=-float("inf")).to(tl.float32).to(kind).to(tl.float32)
        higher = tl.maximum(top, x)
        total = total * exp(top - shift(higher)) + exp(x - shift(higher))
        top = higher
    highest = tl.max(top, axis=0)[None, :]
    total = tl.sum(total * exp(top - shift(highest)), axis=0)[None, :]
    for begin in range(0, length, BLOCK):
        step, within = _step(begin, length, width, BLOCK)
        x = tl.load(x_ptr + first + step, mask=exists & within).to(tl.float32).to(kind).to(tl.float32)
        y = x - highest - tl.log(total) if LOG else exp(x - highest) / total
        tl.store(out_ptr + first + step, y.to(kind), mask=exists & within)


@triton.jit
def softmax_strided_backward_kernel(
    dx_ptr, dy_ptr, y_ptr, length, width, tiles, LOG: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    first, exists = _columns(tl.program_id(0), length, width, tiles, WIDTH)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for begin in range(0, length, BLOCK):
        step, within = _step(begin, length, width, BLOCK)
        dy = tl.load(dy_ptr + first + step, mask=exists & within, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + first + step, mask=exists & within, other=0.0).to(tl.float32)
        total += dy if LOG else dy * y
    total = tl.sum(total, axis=0)[None, :]
    for begin in range(0, length, BLOCK):
        step, within = _step(begin, length, width, BLOCK)
        dy = tl.load(dy_ptr + first + step, mask=exists & within).to(tl.float32)
        y = tl.load(y_ptr + first + step, mask=exists & within).to(tl.float32)
        dx = dy - careful_exp(y) * total if LOG else y * (dy - total)
        tl.store(dx_ptr + first + step, dx.to(dx_ptr.dtype.element_ty), mask=exists & within)
