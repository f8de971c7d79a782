"""The lists of used forms are those of today's kernels and compiler: what a few kernels compile to must be on them."""

from __future__ import annotations

import pytest
import torch
from held import used
from machine_code import compiled
from shapes import instructions, shape

from kernels.add.add import add_kernel
from kernels.dropout.dropout import dropout_kernel
from kernels.gelu.gelu import gelu_kernel

N = 4096


def kernels(dtype):
    """Yield three of the bundled kernels, with arguments and constants as their packages launch them."""
    x, out, seed = torch.zeros(N, dtype=dtype), torch.zeros(N, dtype=dtype), torch.zeros(1, dtype=torch.int64)
    yield add_kernel, {"x_ptr": x, "y_ptr": x, "out_ptr": out, "n_elements": N, "alpha": 1.5}, {"BLOCK_SIZE": 1024}
    yield gelu_kernel, {"x_ptr": x, "out_ptr": out, "n_elements": N}, {"TANH": False, "BLOCK_SIZE": 1024}
    random = {"x_ptr": x, "out_ptr": out, "seed_ptr": seed, "n_elements": N, "threshold": 12345, "scale": 2.0}
    yield dropout_kernel, random, {"QUARTER": 256}


@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", torch.bfloat16), ("gfx1201", torch.float16)], ids=["gfx942", "gfx1201"])
def test_what_kernels_compile_to_is_on_the_list(arch, dtype):
    """If this fails, kernels or Triton have changed: make the lists anew as `inventory.py` says, and state the new forms."""
    found = {
        shape(line.replace("\t", " "))
        for function, arguments, constants in kernels(dtype)
        for line in instructions(compiled(function, arch, arguments, constants).asm["amdgcn"])
    }

    assert len(found) > 50
    assert found - used(arch).keys() == set()
