"""Shared by the two backward kernels for heads of more than 128 columns: products over such columns, in two parts.

The second part has 128 or 64 columns, or none: tensors have powers of two, so 192 columns are 128 and 64.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def scores(a, b, unset, REST: gl.constexpr):
    """Start the product of rows by rows, `a @ b.T`, over 128 columns and REST more."""
    s = warpgroup_mma(a.slice(0, 128, dim=1), b.slice(0, 128, dim=1).permute((1, 0)), unset, use_acc=False, is_async=True)
    if REST:
        s = warpgroup_mma(a.slice(128, REST, dim=1), b.slice(128, REST, dim=1).permute((1, 0)), s, is_async=True)
    return s


@gluon.jit
def cleared(ROWS: gl.constexpr, REST: gl.constexpr):
    """Return zeros to add products to: 128 columns, and REST more (of no use if that is none)."""
    COLUMNS: gl.constexpr = REST if REST else 64
    left: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    right: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    return gl.zeros([ROWS, 128], gl.float32, left), gl.zeros([ROWS, COLUMNS], gl.float32, right)


@gluon.jit
def add_product(a, b, left, right, REST: gl.constexpr):
    """Start `a @ b`, added to both parts of the columns."""
    left = warpgroup_mma(a, b.slice(0, 128, dim=1), left, is_async=True)
    if REST:
        right = warpgroup_mma(a, b.slice(128, REST, dim=1), right, is_async=True)
    return left, right


@gluon.jit
def finished(left, right, pending: gl.constexpr, REST: gl.constexpr):
    """Return both parts once at most `pending` products are under way."""
    if REST:
        left, right = warpgroup_mma_wait(pending, deps=(left, right))
    else:
        left = warpgroup_mma_wait(pending, deps=(left,))
    return left, right


@gluon.jit
def store_parts(smem, left, right, REST: gl.constexpr):
    """Write both parts to a tile in shared memory."""
    smem.slice(0, 128, dim=1).store(left.to(smem.dtype))
    if REST:
        smem.slice(128, REST, dim=1).store(right.to(smem.dtype))
