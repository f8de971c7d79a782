"""Shared by kernels that hold rows in registers: values for a second use, and numbers that the programs of a row exchange."""

import triton
import triton.language as tl


@triton.jit
def again(x, PACKED: tl.constexpr):
    """Return loaded values for a second use.

    The compiler would keep values for it in fp32, in twice the registers of half precision. It cannot see through this.
    """
    if PACKED and x.dtype.primitive_bitwidth == 16:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@triton.jit
def publish(word_ptr, high, low):
    """Publish two fp32 numbers of a part as one word. They arrive together, and nothing else is published, so no fence is needed."""
    word = (high.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (low.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)
    tl.atomic_xchg(word_ptr, word, sem="relaxed")


@triton.jit
def collect(words_ptr, n_parts, SLOTS: tl.constexpr):
    """Return the numbers of all parts of a row, once they are published; -inf and 0 past the last part.

    An empty word is 0, which is never published: if the largest number of a part is 0, its sum is at least 1.
    """
    slot = tl.arange(0, SLOTS)
    words = tl.load(words_ptr + slot, mask=slot < n_parts, other=1, volatile=True)
    while tl.min((words != 0).to(tl.int32), axis=0) == 0:
        words = tl.load(words_ptr + slot, mask=slot < n_parts, other=1, volatile=True)
    high = tl.where(slot < n_parts, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), -float("inf"))
    return high, tl.where(slot < n_parts, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
