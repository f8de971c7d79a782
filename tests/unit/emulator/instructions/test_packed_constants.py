"""A constant of a packed operation is read by both halves, whether op_sel_hi is set or not, as LLVM's code for a splat needs it."""

from __future__ import annotations

import numpy as np
import pytest
from machine_code import lanes

ROWS = [np.random.default_rng(3).standard_normal(4096).astype(np.float32).view(np.uint32) for _ in range(2)]
MEANING = {
    "v_pk_add_f32 v[40:41], v[10:11], 1.0": lambda x: x + np.float32(1),
    "v_pk_mul_f32 v[40:41], v[10:11], -4.0": lambda x: x * np.float32(-4),
    "v_pk_fma_f32 v[40:41], v[10:11], 0.5, 2.0": lambda x: x * np.float32(0.5) + np.float32(2),
}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("text", MEANING)
def test_both_halves_read_the_constant(arch, text):
    for select in ("", " op_sel_hi:[1,0,0]" if "fma" in text else " op_sel_hi:[1,0]"):
        found = lanes(arch, text + select, ROWS, 2)

        for half, row in zip(found, ROWS, strict=True):
            np.testing.assert_array_equal(half.view(np.float32), MEANING[text](row.view(np.float32)))
