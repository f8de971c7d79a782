"""Branches, waits, barriers and modes that compiled kernels use, on each card: what they decide, end and hold back."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import operator
import struct

import numpy as np
import pytest
from held import CONTROL, used
from machine_code import WAVES, assembled, lanes
from shapes import split
from slow_cases import slow_but
from units.cases import drawn

from warpwave.emulator import Check, Launch, execute, load

TAKEN = {
    "s_branch": lambda a, b: True,
    **{f"s_cbranch_{name}": operator.lt for name in ("scc1", "vccnz", "execnz")},
    **{f"s_cbranch_{name}": operator.ge for name in ("scc0", "vccz", "execz")},
}
COUNT = 64 * 256


def forms(arch: str) -> list[str]:
    return sorted({one.split()[0] for one in used(arch) if one.startswith(CONTROL)})


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx1201"]))
def test_used_branches(arch):
    wave, mask, exec_ = WAVES[arch], *(("vcc", "exec") if WAVES[arch] == 64 else ("vcc_lo", "exec_lo"))
    a, b = (np.repeat(drawn("u", f"{arch} branch {n}", COUNT // wave).astype(np.uint32), wave) for n in range(2))
    b[: COUNT // 4] = a[: COUNT // 4]
    names = [name for name in forms(arch) if "branch" in name]
    code = f"v_readfirstlane_b32 s16, v10\n v_readfirstlane_b32 s17, v11\n s_mov_b{wave} s[20:21], {exec_}\n".replace(
        "s[20:21]", "s[20:21]" if wave == 64 else "s20"
    )
    saved = "s[20:21]" if wave == 64 else "s20"
    for n, name in enumerate(names):
        code += f" v_cmp_lt_u32 {mask}, s16, v11\n s_cmp_lt_u32 s16, s17\n"
        code += f" s_and_b{wave} {exec_}, {exec_}, {mask}\n s_cmp_lt_u32 s16, s17\n" if "exec" in name else ""
        code += f" s_mov_b32 s22, 1\n {name} {n}f\n s_mov_b32 s22, 0\n{n}:\n s_mov_b{wave} {exec_}, {saved}\n v_mov_b32 v{40 + n}, s22\n"
    assert len(names) == 7
    for name, row in zip(names, lanes(arch, code, [a, b], len(names)), strict=True):
        np.testing.assert_array_equal(
            row.astype(bool), [TAKEN[name](*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)], err_msg=name
        )


# What is in flight, by the wait that ends it: a load from global memory, one from LDS, one of a scalar; nothing reads what a store leaves in flight.
GLOBAL = {64: "global_load_dword v40, v1, s[4:5]", 32: "global_load_b32 v40, v1, s[4:5]"}
LDS = {64: "ds_write_b32 v1, v0\n {wait}\n ds_read_b32 v40, v1", 32: "ds_store_b32 v1, v0\n {wait}\n ds_load_b32 v40, v1"}
SCALAR = {64: "s_load_dword s12, s[4:5], 0x0", 32: "s_load_b32 s12, s[4:5], 0x0"}
WAITS = {
    "s_waitcnt": [(GLOBAL, "s_waitcnt vmcnt(0)"), (LDS, "s_waitcnt lgkmcnt(0)"), (SCALAR, "s_waitcnt lgkmcnt(0)")],
    "s_wait_loadcnt": [(GLOBAL, "s_wait_loadcnt 0x0")],
    "s_wait_dscnt": [(LDS, "s_wait_dscnt 0x0")],
    "s_wait_kmcnt": [(SCALAR, "s_wait_kmcnt 0x0")],
    "s_wait_loadcnt_dscnt": [(GLOBAL, "s_wait_loadcnt_dscnt 0x0"), (LDS, "s_wait_loadcnt_dscnt 0x0")],
    "s_wait_storecnt": [], "s_wait_storecnt_dscnt": [(LDS, "s_wait_storecnt_dscnt 0x0")], "s_waitcnt_vscnt": [], "s_wait_alu": [], "s_waitcnt_depctr": [],
}  # fmt: skip


def findings(arch: str, body: str, threads: int) -> tuple[set[Check], np.ndarray]:
    """Run one workgroup; return what is found, and its output."""
    cdna, gfx12 = WAVES[arch] == 64, arch.startswith("gfx12")
    begin = f"{'s_load_dwordx4' if cdna else 's_load_b128'} s[4:7], s[0:1], 0x0\n {'s_wait_kmcnt 0x0' if gfx12 else 's_waitcnt lgkmcnt(0)'}\n v_and_b32 v0, 0x3ff, v0\n v_lshlrev_b32 v1, 2, v0\n"
    kernel = load(assembled(arch, "\n".join("\t" + line.strip() for line in (begin + body).splitlines())))
    source, out, found = np.arange(4096, dtype=np.uint32), np.zeros(4096, np.uint32), []
    buffers = [(memory.ctypes.data, memory.nbytes) for memory in (source, out)]
    execute(kernel, Launch((1, 1, 1), threads, struct.pack("<QQ", *(start for start, _ in buffers)), 4096, buffers), findings=found)
    return {one.check for one in found}, out


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx1201"]))
def test_used_waits(arch):
    """With the wait, the result may be used; without it, it is used too early."""
    wave, names = WAVES[arch], [name for name in forms(arch) if name.startswith("s_wait")]
    assert names
    for name in names:
        for flight, wait in WAITS[name]:
            text = flight[wave].format(wait="s_wait_dscnt 0x0" if arch.startswith("gfx12") else "s_waitcnt lgkmcnt(0)")
            use = "v_mov_b32 v41, s12" if flight is SCALAR else "v_mov_b32 v41, v40"
            assert findings(arch, f"{text}\n {wait}\n {use}", wave)[0] == set(), name
            assert findings(arch, f"{text}\n {use}", wave)[0] == {Check.USED_EARLY}, name


@pytest.mark.parametrize("arch", slow_but(WAVES, ["gfx1201"]))
def test_used_barriers_modes_and_ends(arch):
    """Each of two waves reads what the other wrote; a bit of MODE that was set is read; a wave that gave its registers back ends."""
    wave, names = WAVES[arch], forms(arch)
    write, read, store = (
        ("ds_write_b32", "ds_read_b32", "global_store_dword") if wave == 64 else ("ds_store_b32", "ds_load_b32", "global_store_b32")
    )
    wait = "s_wait_dscnt 0x0" if arch.startswith("gfx12") else "s_waitcnt lgkmcnt(0)"
    barrier = "s_barrier_signal -1\n s_barrier_wait -1" if "s_barrier_signal" in names else "s_barrier"
    assert {name for name in names if "barrier" in name} == {line.split()[0] for line in barrier.splitlines()}
    body = f"v_xor_b32 v2, {wave * 4:#x}, v1\n {write} v1, v0\n {wait}\n {barrier}\n {read} v40, v2\n {wait}\n {store} v1, v40, s[6:7]"
    body += "\n s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)" if "s_sendmsg" in names else ""
    found, out = findings(arch, body, 2 * wave)
    assert found == set()
    np.testing.assert_array_equal(out[: 2 * wave], np.arange(2 * wave) ^ wave)
    assert findings(arch, body.replace(barrier, ""), 2 * wave)[0] & {Check.LDS_RACE, Check.LDS_UNWRITTEN}

    modes = [one for one in used(arch) if one.startswith("s_setreg")]
    assert modes
    for one in modes:
        where = split(one.partition(" ")[2])[0][0]
        set_, unset = lanes(
            arch,
            f"s_getreg_b32 s13, {where}\n s_setreg_imm32_b32 {where}, 1\n s_getreg_b32 s12, {where}\n v_mov_b32 v40, s12\n v_mov_b32 v41, s13",
            [np.zeros(wave, np.uint32)],
            2,
        )
        assert (set_ == 1).all()
        assert (unset == 0).all()


HELD = {*TAKEN, *WAITS, "s_barrier", "s_barrier_signal", "s_barrier_wait", "s_setreg_imm32_b32", "s_sendmsg", "s_endpgm"}


@pytest.mark.parametrize("arch", WAVES)
def test_no_other_control_is_used(arch):
    assert set(forms(arch)) <= HELD
