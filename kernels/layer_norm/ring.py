"""The backward of layer_norm and rms_norm for rows that several programs share, so that each element is read only once.

A program has one part of the columns, with its weights and its sums over rows in registers, and walks over the rows. They pass through a
ring of buffers in shared memory: `AHEAD` rows are loading, and one waits for the sums of the other parts. Each sum is one 64-bit word,
written by one atomic: it arrives whole, and needs no memory ordering. All programs add the words in the same order.

The programs of a row are neighbours in the grid. GPUs start programs in the order of their numbers, so a program only waits for programs
that run, or that will run once others end.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from kernels.layer_norm.backward import add_both, add_up
from kernels.layer_norm.forward import UNTIL_THERE

# The name in Triton 3.9; 3.6 has another.
async_load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared

VECTOR_BYTES = 16  # of a copy to shared memory: rows must start and end at multiples of it


def takes(row_bytes: int, stride_bytes: int) -> bool:
    """Return whether rows start and end where such copies can, if the first starts on 16 bytes."""
    return not (row_bytes % VECTOR_BYTES or stride_bytes % VECTOR_BYTES)


@gluon.jit
def _packed(x):
    # The compiler would keep values that every row needs in fp32, in twice the registers of half precision. It cannot see through this.
    if x.dtype.primitive_bitwidth == 16:
        x = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@gluon.jit
def _fetch_row(grads, xs, grad_ptr, x_ptr, row, n_rows, n_columns, row_stride, columns, slot):
    inside = columns < gl.where(row < n_rows, n_columns, 0)
    async_load(grads.index(slot), grad_ptr + row.to(gl.int64) * n_columns + columns, mask=inside)
    async_load(xs.index(slot), x_ptr + row.to(gl.int64) * row_stride + columns, mask=inside)
    async_copy.commit_group()


@gluon.jit
def _publish(word_ptr, first, second, exists):
    """Write two sums where zeros are. Minus zero stands for zero, so that no word is zero."""
    high = first.to(gl.int32, bitcast=True)
    high = gl.where(high == 0, -2147483648, high).to(gl.int64) << 32
    gl.atomic_xchg(word_ptr, high | (second.to(gl.int32, bitcast=True).to(gl.int64) & 0xFFFFFFFF), mask=exists, sem="relaxed")


@gluon.jit
def _collect(words_ptr, n_parts, slots):
    """Return the sums of all parts, once they are published; unused slots are zero."""
    there = slots < n_parts
    own = words_ptr + gl.where(there, slots, 0)
    words = gl.inline_asm_elementwise(UNTIL_THERE, "=l,l", [own], dtype=gl.int64, is_pure=False, pack=1)
    first = (words >> 32).to(gl.int32).to(gl.float32, bitcast=True)
    second = words.to(gl.int32).to(gl.float32, bitcast=True)
    return gl.where(there, first, 0.0), gl.where(there, second, 0.0)


@gluon.jit
def backward_ring_kernel(
    grad_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweights_ptr, dbiases_ptr, words_ptr,
    row_vectors, n_rows, n_vectors, n_parts,
    VECTOR: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr, AHEAD: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Like `backward_kernel`: sums over rows are in registers, and at the end in row `group` of dweights and dbiases."""
    COMPENSATED: gl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 32
    layout: gl.constexpr = gl.BlockedLayout([VECTOR], [32], [WARPS], [0])
    slots = gl.arange(0, SLOTS, layout=gl.BlockedLayout([1], [32], [WARPS], [0]))
    grads = gl.allocate_shared_memory(grad_ptr.dtype.element_ty, [AHEAD + 2, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    xs = gl.allocate_shared_memory(x_ptr.dtype.element_ty, [AHEAD + 2, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    n_columns, row_stride = n_vectors * VECTOR, row_vectors * VECTOR
    part, group, groups = gl.program_id(0) % n_parts, gl.program_id(0) // n_parts, gl.num_programs(0) // n_parts
    columns = part * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = columns < n_columns
    if weight_ptr is not None:
        weight = gl.load(weight_ptr + columns, mask=inside, other=0.0)
    dweight = gl.zeros([BLOCK], gl.float32, layout=layout)
    dbias = gl.zeros([BLOCK], gl.float32, layout=layout)
    lost_of_dweight = gl.zeros([BLOCK], gl.float32, layout=layout)
    lost_of_dbias = gl.zeros([BLOCK], gl.float32, layout=layout)
    for i in gl.static_range(AHEAD):
        _fetch_row(grads, xs, grad_ptr, x_ptr, group + i * groups, n_rows, n_columns, row_stride, columns, i)
    # Load the statistics one row ahead too: otherwise every row would wait for memory here.
    next_rstd = gl.load(rstd_ptr + group)
    next_mean = gl.load(mean_ptr + group) if mean_ptr is not None else 0.0
    # Not `next_rstd`: Triton assumes that a variable with the same value before and after the first iteration never changes.
    rstd, mean = gl.to_tensor(0.0), gl.to_tensor(0.0)

    for i in range(0, gl.cdiv(n_rows - group, groups) + 1):
        row = group + i * groups
        slot = (i + AHEAD) % (AHEAD + 2)
        _fetch_row(grads, xs, grad_ptr, x_ptr, row + AHEAD * groups, n_rows, n_columns, row_stride, columns, slot)
        async_copy.wait_group(AHEAD)
        late_rstd, late_mean = rstd, mean
        rstd, mean = next_rstd, next_mean
        next_row = gl.minimum(row + groups, n_rows - 1)
        next_rstd = gl.load(rstd_ptr + next_row)
        if mean_ptr is not None:
            next_mean = gl.load(mean_ptr + next_row)
        slot = i % (AHEAD + 2)
        x = xs.index(slot).load(layout).to(gl.float32)
        scaled = grads.index(slot).load(layout).to(gl.float32)
        if weight_ptr is not None:
            scaled *= _packed(weight).to(gl.float32)
        if mean_ptr is not None:
            product, shift = gl.reduce((scaled * (x - mean), scaled), 0, add_both)
        else:
            product = gl.sum(scaled * x, 0)
            shift = product
        _publish(words_ptr + row.to(gl.int64) * n_parts + part, product * rstd, shift, row < n_rows)

        late_row = row - groups
        if late_row >= group:
            products, shifts = _collect(words_ptr + late_row.to(gl.int64) * n_parts, n_parts, slots)
            product, shift = gl.sum(products, 0) / n_columns, gl.sum(shifts, 0) / n_columns
            slot = (i + AHEAD + 1) % (AHEAD + 2)
            normal = xs.index(slot).load(layout).to(gl.float32)
            if mean_ptr is not None:
                normal -= late_mean
            normal *= late_rstd
            grad = grads.index(slot).load(layout).to(gl.float32)
            if dweights_ptr is not None:
                dweight, lost_of_dweight = add_up(dweight, lost_of_dweight, grad * normal, COMPENSATED)
            if dbiases_ptr is not None:
                dbias, lost_of_dbias = add_up(dbias, lost_of_dbias, grad, COMPENSATED)
            if weight_ptr is not None:
                grad *= _packed(weight).to(gl.float32)
            dx = grad - normal * product
            if mean_ptr is not None:
                dx -= shift
            gl.store(dx_ptr + late_row.to(gl.int64) * n_columns + columns, (dx * late_rstd).to(dx_ptr.dtype.element_ty), mask=inside)
    async_copy.wait_group(0)
    own = group * n_columns + columns
    if dweights_ptr is not None:
        gl.store(dweights_ptr + own, dweight, mask=inside)
    if dbiases_ptr is not None:
        gl.store(dbiases_ptr + own, dbias, mask=inside)
