"""Atomics of less than a word at the end of a tensor: the compiler widens them, and an access that is really outside is reported."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from machine_code import WAVES, run

from warpwave.emulator import OutOfMemoryBounds


@triton.jit
def _add(x, n, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.atomic_add(x + i, 1.0, mask=i < n)


@triton.jit
def _swap(x, expected, new):
    tl.atomic_cas(x, expected.to(tl.int16), new.to(tl.int16))


@triton.jit
def _copy(x, y, n, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_word_around_the_last_half_may_end_behind_the_tensor(arch, dtype):
    behind = torch.full((16,), 5.0, dtype=dtype)
    x = behind[:7]
    x.zero_()

    run(_add, arch, (1,), {"x": x, "n": 7}, {"block": 64}, num_warps=1)

    assert behind.tolist() == [1.0] * 7 + [5.0] * 9


@pytest.mark.parametrize("arch", WAVES)
def test_a_swap_of_the_only_half_of_a_tensor(arch):
    """The word is loaded by a scalar instruction, as all lanes share its address."""
    for place in (4, 5):
        whole = torch.full((16,), 5, dtype=torch.int16)
        run(_swap, arch, (1,), {"x": whole[place : place + 1], "expected": 5, "new": 9}, {}, num_warps=1)
        assert whole.tolist() == [9 if index == place else 5 for index in range(16)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_an_atomic_behind_the_tensor_is_reported(dtype):
    x = torch.zeros(16, dtype=dtype)[:8]

    with pytest.raises(OutOfMemoryBounds):
        run(_add, "gfx1100", (1,), {"x": x, "n": 9}, {"block": 64}, num_warps=1)


def test_a_plain_load_behind_the_tensor_is_reported():
    x, y = torch.zeros(16, dtype=torch.float16)[:7], torch.zeros(16, dtype=torch.float16)

    with pytest.raises(OutOfMemoryBounds):
        run(_copy, "gfx942", (1,), {"x": x, "y": y, "n": 8}, {"block": 64}, num_warps=1)
