"""The high half of a constant in a packed addition is not known: harmless where nobody reads the result, refused where somebody does."""

from __future__ import annotations

import numpy as np
import pytest
from machine_code import lanes

from harness.emulator import Unimplemented

ADD = "v_pk_add_f32 v[40:41], v[10:11], 1.0\n "
READ = {
    "it is stored": "v_mov_b32 v42, v41",
    "an operation of two registers reads it": "v_pk_mul_f32 v[42:43], v[40:41], v[40:41]\n v_mov_b32 v41, 0",
    "only some lanes overwrite it": "s_mov_b64 exec, 15\n v_mov_b32 v41, 0\n s_mov_b64 exec, -1",
    "a half of it is overwritten": "v_mov_b32_sdwa v41, v10 dst_sel:WORD_0 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
    "a branch comes between": "s_branch .Lnext\n.Lnext:\n v_mov_b32 v41, 0",
}
ROWS = [np.random.default_rng(3).standard_normal(256).astype(np.float32).view(np.uint32) for _ in range(2)]


def test_a_half_that_nobody_reads():
    low, high = lanes("gfx942", ADD + "v_mov_b32 v41, v11", ROWS, 2)

    np.testing.assert_array_equal(low.view(np.float32), ROWS[0].view(np.float32) + np.float32(1))
    np.testing.assert_array_equal(high, ROWS[1])


@pytest.mark.parametrize("why", READ)
def test_a_half_that_somebody_reads(why):
    with pytest.raises(Unimplemented, match="v_pk_add_f32"):
        lanes("gfx942", ADD + READ[why], ROWS, 2)
