"""Opcodes that gfx90a gives to other instructions than later CDNA cards: each is read as its own, or refused under its own name."""

from __future__ import annotations

import pytest
from test_unused_control import error_of

from warpwave.emulator import Unimplemented


@pytest.mark.parametrize(
    "line",
    [
        "v_mac_f32 v40, v10, v11", "v_mac_f32_e64 v40, v10, -v11", "v_madmk_f32 v40, v10, 0x41200000, v11",
        "v_madak_f32 v40, v10, v11, 0x41200000", "v_mad_f32 v40, v10, v11, v12", "v_mad_legacy_f32 v40, v10, v11, v12",
    ],
)  # fmt: skip
def test_what_rounds_twice_is_refused(line):
    """They flush denormals and round the product, as no later card does: v_dot2c_f32_bf16, v_fmamk_f32 and v_fmaak_f32 took opcodes."""
    error = error_of("gfx90a", line)

    assert isinstance(error, Unimplemented)
    assert line.split()[0].removesuffix("_e64") in str(error)
