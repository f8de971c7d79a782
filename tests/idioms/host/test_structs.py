"""Structs that kernels pass around: several values with a name, and functions of their own."""

import pytest
import torch
import triton
import triton.language as tl

aggregate = getattr(tl.core, "_aggregate", None)
if aggregate is None:
    pytest.skip("this Triton has no structs", allow_module_level=True)


@aggregate
class Part:
    start: tl.tensor
    size: tl.constexpr

    @triton.constexpr_function
    def __init__(self, start, size):
        self.start = start
        self.size = tl.constexpr(size)

    @triton.jit
    def offsets(self):
        return self.start + tl.arange(0, self.size)


@triton.jit
def double_parts(x, n, BLOCK: tl.constexpr):
    part = Part(tl.program_id(0) * BLOCK, BLOCK)
    i = part.offsets()
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def test_a_struct_with_a_constant_and_a_function(device):
    x = torch.ones(100, device=device)
    double_parts[(2,)](x, 100, BLOCK=64)
    torch.testing.assert_close(x, torch.full_like(x, 2.0))
