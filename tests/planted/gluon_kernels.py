"""Faults in Gluon kernels for gfx950, which only machine code shows. `FAULT` plants the fault; without it each is right.

All take `x` and `out` of 512 floats and run as one program of 4 waves. `test_emulated_kernels.py` holds what is found.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy


@gluon.constexpr_function
def lanes():
    """Return the layout of a row of floats: one for each lane."""
    return gl.BlockedLayout([1], [64], [4], [0])


@gluon.constexpr_function
def plain():
    """Return the layout of a row in LDS."""
    return gl.SwizzledSharedLayout(1, 1, 1, [0])


@gluon.jit
def no_wait(x, out, FAULT: gl.constexpr):
    """A copy that goes straight to LDS is read before its wave has waited for it."""
    at = gl.arange(0, 256, layout=lanes())
    lds = gl.allocate_shared_memory(gl.float32, [256], plain())
    async_copy.buffer_load_to_shared(lds, x, at)
    async_copy.commit_group()
    if not FAULT:
        async_copy.wait_group(0)
    gl.store(out + at, async_copy.load_shared_relaxed(lds, lanes()))


@gluon.jit
def one_wait_too_few(x, out, FAULT: gl.constexpr):
    """Of two copies in flight, the second is read after a wait for the first."""
    at = gl.arange(0, 256, layout=lanes())
    lds = gl.allocate_shared_memory(gl.float32, [2, 256], plain())
    async_copy.buffer_load_to_shared(lds.index(0), x, at)
    async_copy.commit_group()
    async_copy.buffer_load_to_shared(lds.index(1), x, at + 256)
    async_copy.commit_group()
    async_copy.wait_group(1 if FAULT else 0)
    gl.store(out + at, async_copy.load_shared_relaxed(lds.index(1), lanes()))


@gluon.jit
def never_written(x, out, FAULT: gl.constexpr):
    at = gl.arange(0, 256, layout=lanes())
    lds = gl.allocate_shared_memory(gl.float32, [2, 256], plain())
    lds.index(0).store(gl.load(x + at))
    gl.store(out + at, lds.index(1 if FAULT else 0).load(lanes()))


@gluon.jit
def two_lanes(x, out, FAULT: gl.constexpr):
    at = gl.arange(0, 256, layout=lanes())
    gl.store(out + (at // 2 if FAULT else at), gl.load(x + at))


@gluon.jit
def exchanged(x, out, FAULT: gl.constexpr):
    """Waves exchange two rows through one buffer. It is right; the test removes its barriers one at a time."""
    at = gl.arange(0, 256, layout=lanes())
    every: gl.constexpr = gl.BlockedLayout([4], [64], [4], [0])
    all_of_it = gl.arange(0, 256, layout=every)
    lds = gl.allocate_shared_memory(gl.float32, [256], plain())
    lds.store(gl.load(x + at))
    first = lds.load(every)
    lds.store(gl.load(x + 256 + at))
    gl.store(out + all_of_it, first + lds.load(every))


KERNELS = (no_wait, one_wait_too_few, never_written, two_lanes)


@gluon.jit
def two_buffers(x, out, FAULT: gl.constexpr):
    """Rows go through two buffers in turn, so that one is filled while the other is read. The test removes barriers one at a time."""
    at = gl.arange(0, 256, layout=lanes())
    every: gl.constexpr = gl.BlockedLayout([4], [64], [4], [0])
    lds = gl.allocate_shared_memory(gl.float32, [2, 256], plain())
    total = gl.zeros([256], gl.float32, every)
    lds.index(0).store(gl.load(x + at))
    for step in range(4):
        lds.index((step + 1) % 2).store(gl.load(x + at + step % 2 * 256) + step)
        total += lds.index(step % 2).load(every)
    gl.store(out + gl.arange(0, 256, layout=every), total)


@gluon.jit
def two_allocations(x, out, FAULT: gl.constexpr):
    """Two rows, each in an allocation of its own. The test lets the second begin within the first."""
    at = gl.arange(0, 256, layout=lanes())
    every: gl.constexpr = gl.BlockedLayout([4], [64], [4], [0])
    first = gl.allocate_shared_memory(gl.float32, [256], plain())
    second = gl.allocate_shared_memory(gl.float32, [256], plain())
    first.store(gl.load(x + at))
    second.store(gl.load(x + 256 + at))
    gl.store(out + gl.arange(0, 256, layout=every), first.load(every) + second.load(every))
