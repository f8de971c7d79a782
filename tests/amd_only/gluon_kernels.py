"""Kernels in Gluon that some releases of Triton get wrong on AMD only."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import cdna3
from triton.experimental.gluon.language.amd.cdna4 import async_copy


@gluon.jit
def largest(x, out, N: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    at = gl.arange(0, N, layout=layout)
    cdna3.buffer_atomic_max(out, at, gl.load(x + at))


@gluon.jit
def straight_to_lds(x, out, count, N: gl.constexpr):
    """Copy through LDS, without registers; what is beyond `count` counts as 7."""
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    at = gl.arange(0, N, layout=layout)
    lds = gl.allocate_shared_memory(gl.float32, [N], shared)
    async_copy.buffer_load_to_shared(lds, x, at, mask=at < count, other=7.0)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + at, async_copy.load_shared_relaxed(lds, layout))


KERNELS = {
    "largest-fp64": (largest, {"x": "*fp64", "out": "*fp64"}, {"N": 256}, {"num_warps": 4}),
    "straight-to-lds": (straight_to_lds, {"x": "*fp32", "out": "*fp32", "count": "i32"}, {"N": 1024}, {"num_warps": 4}),
}
