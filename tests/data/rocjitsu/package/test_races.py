"""Prints what the race detector of AMD's simulator prints in a process whose kernels it executes."""

import os

import pytest

DISPATCH = '[rocjitsu] Kernel dispatch: "add" symbol="add"\n'
RACE = """RACE kernel=add symbol=add dispatch=3 type=LDS access=read reg=508 wave=0 lane=0 wg=2,0,0 conflict=unknown
Race on LDS byte 508 [workgroup (2, 0, 0), wave 0, lane 0]
  ==>  0x100  ds_write_b32 v0, v1  ; <-- wave 1
       0x104  v_sub_u32_e32 v1, 0, v0
  ==>  0x108  ds_read_b32 v1, v1  ; <-- wave 0 lane 0
END_RACE
"""


@pytest.mark.parametrize("printed", [DISPATCH, DISPATCH + RACE], ids=["right", "racing"])
def test_launch(printed):
    assert "race" in os.environ["PLUGINS"]
    os.write(2, printed.encode())
