"""Shared by the kernels for Hopper: barriers, and TMA under the names of Triton 3.9. Triton 3.6 has other names, or only the operation."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language import _core
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
async_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@_core.builtin
def _reduce_add(desc, coord, source, _semantic=None):
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    _semantic.builder.create_async_tma_reduce(_core.ir.DESCRIPTOR_REDUCE_KIND.ADD, desc.handle, coord, source.handle)


async_atomic_add = getattr(tma, "async_atomic_add", None) or _reduce_add


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return barriers that each complete a phase after so many arrivals.

    Do not make any that nothing uses: the compiler would give its memory to the next ones, which is undefined while it holds a barrier.
    """
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made
