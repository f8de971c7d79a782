"""The kernels that most of these tests launch. What a test is about is in its host code.

Products of bfloat16 are taken in float32: Triton's interpreter has none of its own.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    if x_ptr.dtype.element_ty == tl.bfloat16:
        x = x.to(tl.float32)
        y = y.to(tl.float32)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if x_ptr.dtype.element_ty == tl.bfloat16:
        x = x.to(tl.float32)
    tl.store(out_ptr + offsets, x * factor, mask=mask)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offsets, mask=offsets < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    return out


def scale(x, factor):
    out = torch.empty_like(x)
    n = out.numel()
    scale_kernel[(triton.cdiv(n, 256),)](x, out, n, factor, BLOCK=256)
    return out


def row_sum(x):
    rows, columns = x.shape
    out = torch.empty(rows, device=x.device, dtype=x.dtype)
    row_sum_kernel[(rows,)](x, out, x.stride(0), columns, BLOCK=triton.next_power_of_2(columns))
    return out
