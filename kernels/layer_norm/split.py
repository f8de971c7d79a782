"""Kernels of layer_norm and rms_norm for rows that several programs share, so that a row of any length is read once.

The programs of a row are neighbours in the grid and wait for each other's sums. GPUs start programs in the order of their numbers, so
a program waits only for some that run, or that will once others end. A program's sums are one word of 64 bits, written by one
atomic: what is there is whole, and nothing else needs to be ordered. All add the words up in the same order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.layer_norm.kernels import add_both, mean_of, rstd_of


@triton.jit
def _publish(word_ptr, first, second):
    """Writes two sums where zeros are. Minus zero stands for zero, so that no word is zero."""
    high = first.to(tl.int32, bitcast=True)
    high = tl.where(high == 0, -2147483648, high).to(tl.int64) << 32
    tl.atomic_xchg(word_ptr, high | (second.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF), sem="relaxed")


@triton.jit
def _collect(words_ptr, n_parts, SLOTS: tl.constexpr):
    """The sums of all parts, each once it is there, and zeros in further slots."""
    slots = tl.arange(0, SLOTS)
    there = slots < n_parts
    # In assembly, because Triton pipelines no loads of a loop that has another loop in it.
    words = tl.inline_asm_elementwise(
        """{
        .reg .pred absent;
        again:
        ld.relaxed.gpu.global.u64 $0, [$1];
        setp.eq.u64 absent, $0, 0;
        @absent bra again;
        }""",
        "=l,l",
        [words_ptr + tl.where(there, slots, 0)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    first = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    second = words.to(tl.int32).to(tl.float32, bitcast=True)
    return tl.where(there, first, 0.0), tl.where(there, second, 0.0)


@triton.jit
def forward_split_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    mean_ptr,
    rstd_ptr,
    words_ptr,
    row_stride,
    n_rows,
    n_columns,
    n_parts,
    eps,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """BLOCK columns a program: groups of `n_parts` programs stride over the rows.

    A program publishes its sums of one row, then finishes the row before, whose sums have had that time to come.
    """
    group = tl.program_id(0) // n_parts
    part = tl.program_id(0) % n_parts
    step = tl.num_programs(0) // n_parts
    columns = part * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=inside, other=0.0)
    counts = tl.maximum(tl.minimum(BLOCK, n_columns - tl.arange(0, SLOTS) * BLOCK), 1).to(tl.float32)
    late_x = tl.zeros((BLOCK,), x_ptr.dtype.element_ty)
    one = tl.full((), 1, tl.int64)  # a row's number times its stride passes 2**31
    for number in tl.range(group, n_rows + step, step, num_stages=STAGES):
        row, late_row = number * one, tl.maximum(number - step, group) * one
        reads = columns < tl.where(number < n_rows, n_columns, 0)
        x = tl.load(x_ptr + row * row_stride + columns, mask=reads, other=0.0)
        own = x.to(tl.float32)
        if mean_ptr is not None:
            # Squares about the mean of the part; Chan's formula moves them to that of the row.
            total = tl.sum(own, 0)
            own = tl.where(inside, own - total / tl.minimum(BLOCK, n_columns - part * BLOCK), 0.0)
            square = tl.sum(own * own, 0)
        else:
            square = tl.sum(own * own, 0)
            total = square
        _publish(words_ptr + row * n_parts + part, square, total)

        out = late_x.to(tl.float32)
        squares, totals = _collect(words_ptr + late_row * n_parts, n_parts, SLOTS)
        if mean_ptr is not None:
            mean = mean_of(tl.sum(totals, 0), n_columns)
            tl.store(mean_ptr + late_row, mean)
            shifts = tl.where(tl.arange(0, SLOTS) < n_parts, totals / counts - mean, 0.0)
            squares += counts * shifts * shifts
            out -= mean
        rstd = rstd_of(tl.sum(squares, 0), n_columns, eps)
        tl.store(rstd_ptr + late_row, rstd)
        out *= rstd
        if weight_ptr is not None:
            out *= weight.to(tl.float32)
        if bias_ptr is not None:
            out += bias.to(tl.float32)
        writes = columns < tl.where(number > group, n_columns, 0)
        tl.store(out_ptr + late_row * n_columns + columns, out.to(out_ptr.dtype.element_ty), mask=writes)
        late_x = x


@triton.jit
def backward_split_kernel(
    grad_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweights_ptr,
    dbiases_ptr,
    words_ptr,
    row_stride,
    n_rows,
    n_columns,
    n_parts,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """`backward_kernel` with BLOCK columns a program: groups of `n_parts` programs stride over the rows.

    A program publishes its sums of one row, then finishes the row before, whose sums have had that time to come.
    """
    group = tl.program_id(0) // n_parts
    part = tl.program_id(0) % n_parts
    step = tl.num_programs(0) // n_parts
    columns = part * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dbias = tl.zeros((BLOCK,), tl.float32)
    late_grad = tl.zeros((BLOCK,), grad_ptr.dtype.element_ty)
    late_x = tl.zeros((BLOCK,), x_ptr.dtype.element_ty)
    one = tl.full((), 1, tl.int64)  # a row's number times its stride passes 2**31
    for number in tl.range(group, n_rows + step, step, num_stages=STAGES):
        row, late_row = number * one, tl.maximum(number - step, group) * one
        reads = columns < tl.where(number < n_rows, n_columns, 0)
        grad = tl.load(grad_ptr + row * n_columns + columns, mask=reads, other=0.0)
        x = tl.load(x_ptr + row * row_stride + columns, mask=reads, other=0.0)
        scaled = grad.to(tl.float32)
        if weight_ptr is not None:
            scaled *= weight.to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=number < n_rows, other=0.0)
        if mean_ptr is not None:
            mean = tl.load(mean_ptr + row, mask=number < n_rows, other=0.0)
            product, shift = tl.reduce((scaled * (x.to(tl.float32) - mean), scaled), 0, add_both)
        else:
            product = tl.sum(scaled * x.to(tl.float32), 0)
            shift = product
        _publish(words_ptr + row * n_parts + part, product * rstd, shift)

        rstd = tl.load(rstd_ptr + late_row)
        normal = late_x.to(tl.float32)
        if mean_ptr is not None:
            normal -= tl.load(mean_ptr + late_row)
        normal *= rstd
        scaled = late_grad.to(tl.float32)
        if dweights_ptr is not None:
            dweight += scaled * normal
        if dbiases_ptr is not None:
            dbias += scaled
        if weight_ptr is not None:
            scaled *= weight.to(tl.float32)
        products, shifts = _collect(words_ptr + late_row * n_parts, n_parts, SLOTS)
        dx = scaled - normal * (tl.sum(products, 0) / n_columns)
        if mean_ptr is not None:
            dx -= tl.sum(shifts, 0) / n_columns
        writes = columns < tl.where(number > group, n_columns, 0)
        tl.store(dx_ptr + late_row * n_columns + columns, (dx * rstd).to(dx_ptr.dtype.element_ty), mask=writes)
        late_grad, late_x = grad, x
    own = group * n_columns + columns
    if dweights_ptr is not None:
        tl.store(dweights_ptr + own, dweight, mask=inside)
    if dbiases_ptr is not None:
        tl.store(dbiases_ptr + own, dbias, mask=inside)
