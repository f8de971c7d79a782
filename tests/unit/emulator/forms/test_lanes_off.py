"""DPP where lanes are off, as AMD's documents have it, with a mask of its own for each wave.

A source is invalid if there is none, or if its lane is off. An invalid source reads as 0 with `bound_ctrl:1`; without, nothing is written.
`fi:1` reads lanes that are off, too. What `row_mask` and `bank_mask` leave out is not written. DPP8 is as with `bound_ctrl:1`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from machine_code import WAVES
from slow_cases import slow_but
from statements.exact import MASK32
from units.cases import COUNT, Case, Machine, execute_cases
from units.operands import lane_pattern

LOW = np.uint64(MASK32)
BOTH = (
    "quad_perm:[1,0,3,2]", "quad_perm:[3,3,0,1]", "row_shl:1", "row_shl:7", "row_shl:15", "row_shr:1", "row_shr:4", "row_shr:15",
    "row_ror:1", "row_ror:8", "row_ror:15", "row_mirror", "row_half_mirror",
)  # fmt: skip
CDNA = ("row_bcast:15", "row_bcast:31", "wave_shl:1", "wave_shr:1", "wave_rol:1", "wave_ror:1", "row_newbcast:0", "row_newbcast:11")
RDNA = ("row_share:0", "row_share:11", "row_xmask:1", "row_xmask:10", "row_xmask:15")
DPP8 = ("dpp8:[7,6,5,4,3,2,1,0]", "dpp8:[1,1,4,0,7,2,2,5]")
WRITTEN = (("0xf", "0xf"), ("0xa", "0x7"), ("0x5", "0xc"))
# What an instruction makes of what DPP brings, of v12 and of v14.
OPERATIONS = {
    "v_mov_b32_dpp v40, v10": lambda x, y, z: x,
    "v_add_u32_dpp v40, v10, v12": lambda x, y, z: x + y,
    "v_add_nc_u32_dpp v40, v10, v12": lambda x, y, z: x + y,
    "v_add3_u32_e64_dpp v40, v10, v12, v14": lambda x, y, z: x + y + z,
    "v_cmp_lt_u32_e64_dpp s20, v10, v12": lambda x, y, z: x < y,
}
WIDE = "v_mov_b64_dpp v[40:41], v[10:11]"


class Lanes:
    """A machine, and the lanes of each wave that are on: as many as bits in two words of the fourth row, which each wave draws."""

    def __init__(self, arch: str) -> None:
        self.machine = machine = Machine(arch, ("u",) * 5)
        words = machine.rows[3][:: machine.wave] & np.uint64(2**machine.wave - 1)
        self.on = (words[:, None] >> np.arange(machine.wave, dtype=np.uint64) & np.uint64(1)).astype(bool)
        self.set = [f"v_readfirstlane_b32 s{24 + n}, v{16 + n}" for n in range(2)]
        self.set += [f"s_mov_b32 exec_{half}, s{24 + n}" for n, half in enumerate(("lo", "hi")[: machine.wave // 32])]
        self.all = f"s_mov_b{machine.wave} {'exec' if machine.cdna else 'exec_lo'}, -1"

    def row(self, n: int, high: int = 0) -> np.ndarray:
        return (self.machine.rows[n] >> np.uint64(32 * high) & LOW).reshape(-1, self.machine.wave)

    def case(self, text: str, control: str, rows: str = "0xf", banks: str = "0xf", bound: bool = False, fetch: bool = False) -> Case:
        """Make one instruction with DPP, over lanes of which some are off."""
        machine, lane = self.machine, np.arange(self.machine.wave)
        is_eight, name = control.startswith("dpp8"), text.split()[0]
        source = lane_pattern(dict([control.split(":") if ":" in control else (control, "")]), machine)
        valid = (source >= 0) & (self.on[:, source] | fetch)
        written = self.on & (valid | bound | is_eight)
        if not is_eight:
            written = written & (int(rows, 0) >> lane // 16 & 1 == 1) & (int(banks, 0) >> lane % 16 // 4 & 1 == 1)
        masks = "" if is_eight else f" row_mask:{rows} bank_mask:{banks}"
        flags = masks + (" bound_ctrl:1" if bound and not is_eight else "") + (" fi:1" if fetch else "")
        code = ["v_mov_b32 v40, v18", "v_mov_b32 v41, v19", *self.set, f"{text} {control}{flags}", self.all]
        made = Case(f"{name} {control}{flags}", code)
        if text == WIDE:
            results = [np.where(written, np.where(valid, self.row(0, n)[:, source], 0), self.row(4, n)) for n in range(2)]
            made.expected = [("v40", "u64", (results[0] | results[1] << np.uint64(32)).reshape(-1))]
            return made
        result = OPERATIONS[text](np.where(valid, self.row(0)[:, source], 0), self.row(1), self.row(2))
        if "v_cmp" in name:  # all bits of the result are written: 0 where a lane is off, left out, or has no source
            made.code += ["v_cndmask_b32 v40, 0, 1, s20"]
            made.expected = [("v40", "u32", (result & written).reshape(-1).astype(np.uint64))]
        else:
            made.expected = [("v40", "u32", np.where(written, result & LOW, self.row(4)).reshape(-1))]
        return made


def cases(arch: str) -> list[Case]:
    """Make every pattern of a card with every operation, with and without each modifier."""
    lanes, cdna = Lanes(arch), WAVES[arch] == 64
    assert 0.2 < lanes.on.mean() < 0.8
    texts = [one for one in OPERATIONS if ("nc_u32" in one or "e64" in one) != cdna or "mov" in one]
    found = []
    for text, control in itertools.product(texts, (*BOTH, *(CDNA if cdna else RDNA))):
        for (rows, banks), bound, fetch in itertools.product(WRITTEN, (False, True), (False,) if cdna else (False, True)):
            found.append(lanes.case(text, control, rows, banks, bound, fetch))
    if arch in ("gfx942", "gfx950"):
        for which, (rows, banks), bound in itertools.product((0, 9), WRITTEN, (False, True)):
            found.append(lanes.case(WIDE, f"row_newbcast:{which}", rows, banks, bound))
    if not cdna:
        found += [lanes.case(text, control, fetch=fetch) for text, control, fetch in itertools.product(texts, DPP8, (False, True))]
    return found


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx942", "gfx1201"]))
def test_dpp_where_lanes_are_off(arch):
    found = cases(arch)

    assert len(found) > 250
    assert all(len(expected) == COUNT for one in found for _, _, expected in one.expected)
    for begin in range(0, len(found), 128):
        assert execute_cases(Machine(arch, ("u",) * 5), found[begin : begin + 128]) == []
