"""Kernels that choose between pointers, which some releases of Triton do not compile for AMD."""

import triton
import triton.language as tl


@triton.jit
def choose(a, b, c, out, which, N: tl.constexpr):
    """Load from the tensor that a chain of `if` and `elif` chooses."""
    at = tl.arange(0, N)
    chosen = a
    if which == 0:
        chosen = b
    elif which == 1:
        chosen = c
    tl.store(out + at, tl.load(chosen + at))


@triton.jit
def choose_by_row(a, b, out, N: tl.constexpr):
    """Load the second row from another tensor, as triton-lang/triton#10381 does."""
    row, at = tl.arange(0, 4), tl.arange(0, N)
    chosen = a + row * 0
    chosen = tl.where(row == 1, b, chosen)
    tl.store(out + row[:, None] * N + at[None, :], tl.load(chosen[:, None] + at[None, :]))


KERNELS = {
    "choose": (choose, {**dict.fromkeys(("a", "b", "c", "out"), "*fp32"), "which": "i32"}, {"N": 256}, {}),
    "choose-by-row": (choose_by_row, dict.fromkeys(("a", "b", "out"), "*fp32"), {"N": 64}, {}),
}
