"""Branches, waits, barriers and modes that compiled kernels use, on each card: what they decide, end and hold back."""

import operator
import re
import struct

import numpy as np
import pytest
from cards import CONTROL, split, unused, used
from cases import drawn
from machine_code import WAVES, assembled, lanes
from slow_cases import slow_but
from vector import MASK32

from warpwave.emulator import Check, Launch, Trap, Unimplemented, execute, load

# ruff: noqa: E501 - a program is a line


TAKEN = {
    "s_branch": lambda a, b: True,
    **{f"s_cbranch_{name}": operator.lt for name in ("scc1", "vccnz", "execnz")},
    **{f"s_cbranch_{name}": operator.ge for name in ("scc0", "vccz", "execz")},
}
LANES = 64 * 32
SOON = slow_but(WAVES, ["gfx942", "gfx1201"])


def used_forms(arch: str) -> list[str]:
    return sorted({one.split()[0] for one in used(arch) if one.startswith(CONTROL)})


def unused_forms(arch: str) -> dict[str, str]:
    return {example.split()[0]: example for one, example in unused(arch).items() if one.startswith((*CONTROL, *HINTS))}


@pytest.mark.parametrize("arch", SOON)
def test_used_branches(arch):
    wave, mask, exec_ = WAVES[arch], *(("vcc", "exec") if WAVES[arch] == 64 else ("vcc_lo", "exec_lo"))
    a, b = (np.repeat(drawn("u", f"{arch} branch {n}", LANES // wave).astype(np.uint32), wave) for n in range(2))
    b[: LANES // 4] = a[: LANES // 4]
    names = [name for name in used_forms(arch) if "branch" in name]
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
    "s_waitcnt_vmcnt": [(GLOBAL, "s_waitcnt_vmcnt null, 0x0")],
    "s_waitcnt_lgkmcnt": [(LDS, "s_waitcnt_lgkmcnt null, 0x0"), (SCALAR, "s_waitcnt_lgkmcnt null, 0x0")],
    "s_wait_idle": [(GLOBAL, "s_wait_idle"), (LDS, "s_wait_idle"), (SCALAR, "s_wait_idle")],
    "s_wait_storecnt": [], "s_wait_storecnt_dscnt": [(LDS, "s_wait_storecnt_dscnt 0x0")], "s_waitcnt_vscnt": [], "s_wait_alu": [], "s_waitcnt_depctr": [],
}  # fmt: skip


def findings(arch: str, body: str, threads: int) -> tuple[set[Check], np.ndarray]:
    cdna, gfx12 = WAVES[arch] == 64, arch.startswith("gfx12")
    begin = f"{'s_load_dwordx4' if cdna else 's_load_b128'} s[4:7], s[0:1], 0x0\n {'s_wait_kmcnt 0x0' if gfx12 else 's_waitcnt lgkmcnt(0)'}\n v_and_b32 v0, 0x3ff, v0\n v_lshlrev_b32 v1, 2, v0\n"
    kernel = load(assembled(arch, "\n".join("\t" + line.strip() for line in (begin + body).splitlines())))
    source, out, found = np.arange(4096, dtype=np.uint32), np.zeros(4096, np.uint32), []
    buffers = [(memory.ctypes.data, memory.nbytes) for memory in (source, out)]
    execute(kernel, Launch((1, 1, 1), threads, struct.pack("<QQ", *(start for start, _ in buffers)), 4096, buffers), findings=found)
    return {one.check for one in found}, out


@pytest.mark.parametrize("arch", SOON)
def test_waits(arch):
    names = {*used_forms(arch), *unused_forms(arch)} & WAITS.keys()
    assert names
    for name in names:
        for flight, wait in WAITS[name]:
            text = flight[WAVES[arch]].format(wait="s_wait_dscnt 0x0" if arch.startswith("gfx12") else "s_waitcnt lgkmcnt(0)")
            use = "v_mov_b32 v41, s12" if flight is SCALAR else "v_mov_b32 v41, v40"
            assert findings(arch, f"{text}\n {wait}\n {use}", WAVES[arch])[0] == set(), name
            assert findings(arch, f"{text}\n {use}", WAVES[arch])[0] == {Check.USED_EARLY}, name


@pytest.mark.parametrize("arch", SOON)
def test_used_barriers_modes_and_ends(arch):
    """Each of two waves reads what the other wrote; a bit of MODE that was set is read; a wave that gave its registers back ends."""
    wave, names = WAVES[arch], used_forms(arch)
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


# Calls, modes, clocks, hints and ends that no bundled kernel uses, on each card that has them.


CALLS = ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64")
MODES = ("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32", "s_round_mode", "s_denorm_mode")
CLOCKS = ("s_memtime", "s_memrealtime")
# What waits for what nothing here leaves in flight, orders, delays, fetches early, writes back, or tells others.
HINTS = (
    "s_wait_event", "s_wait_bvhcnt", "s_wait_expcnt", "s_wait_samplecnt", "s_waitcnt_expcnt", "s_sendmsg", "s_wakeup", "s_version", "s_prefetch_data",
    "s_prefetch_data_pc_rel", "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_dcache_inv", "s_dcache_wb", "s_icache_inv", "s_sleep", "s_setprio",
)  # fmt: skip


@pytest.mark.parametrize("arch", WAVES)
def test_each_form_of_control_is_held(arch):
    held = {*TAKEN, *WAITS, "s_barrier", "s_barrier_signal", "s_barrier_wait", "s_setreg_imm32_b32", "s_sendmsg", "s_endpgm"}
    assert set(used_forms(arch)) <= held
    assert unused_forms(arch).keys() <= {*CALLS, *MODES, *CLOCKS, *HINTS, *WAITS, "s_trap"}


@pytest.mark.parametrize("arch", SOON)
def test_calls_go_there_and_come_back(arch):
    """A function shifts and adds its number. Each wave calls it from two places, one in two of them by way of an address; it returns behind each."""
    wave = WAVES[arch]
    assert set(CALLS) <= unused_forms(arch).keys()
    a = np.repeat(drawn("u", f"{arch} calls", LANES // wave).astype(np.uint32), wave)
    code = """v_readfirstlane_b32 s22, v10
        s_bitcmp1_b32 s22, 4
        s_mov_b32 s23, 0
        s_cbranch_scc0 1f
        s_call_b64 s[30:31], 5f
        s_add_u32 s23, s30, 0
        s_addk_i32 s22, 1
    1:
        s_getpc_b64 s[26:27]
    2:
        s_sub_u32 s23, s26, s23
        s_add_u32 s26, s26, 5f-2b
        s_addc_u32 s27, s27, 0
        s_swappc_b64 s[30:31], s[26:27]
    3:
        s_sub_u32 s24, s26, s30
        s_getpc_b64 s[34:35]
        s_getpc_b64 s[36:37]
        s_sub_u32 s25, s36, s34
        s_sub_u32 s36, s37, s35
        s_branch 6f
        s_mov_b32 s22, 0
    5:
        s_lshl_b32 s22, s22, 3
        s_or_b32 s22, s22, 5
        s_setpc_b64 s[30:31]
        s_mov_b32 s22, 0
    6:
        v_mov_b32 v40, s22
        v_mov_b32 v41, s23
        v_mov_b32 v42, s24
        v_mov_b32 v43, s25
        v_mov_b32 v44, s36
        """
    code = code.replace("s_addk_i32", "s_addk_co_i32") if arch == "gfx1201" else code
    result, before, length, apart, above = lanes(arch, code, [a], 5)
    function = lambda x: (x << 3 | 5) & MASK32  # noqa: E731
    called = a >> 4 & 1 == 1
    first = [(function(x) + 1) & MASK32 if is_called else x for x, is_called in zip(a.tolist(), called.tolist(), strict=True)]

    assert called.any()
    assert not called.all()
    np.testing.assert_array_equal(result, np.array([function(x) for x in first], np.uint32))
    assert (before[called] == 12).all()  # behind the call are two instructions, of 4 bytes each, and s_getpc_b64 gives what is behind it
    assert (length == 7 * 4).all()  # from behind s_swappc_b64 to the function
    assert (apart == 4).all()
    assert (above == 0).all()


@pytest.mark.parametrize("arch", SOON)
def test_fields_of_mode_are_read_and_written(arch):
    """The bits that say how floats round and what becomes of denormals: each field alone, and others stay."""
    wave, have = WAVES[arch], unused_forms(arch)
    start, written = (np.repeat(drawn("u", f"{arch} mode {n}", LANES // wave).astype(np.uint32), wave) for n in range(2))
    fields = [(0, 8), (0, 2), (2, 2), (4, 4), (1, 3), (7, 1), (3, 5)]
    code = "v_readfirstlane_b32 s16, v10\n v_readfirstlane_b32 s17, v11\n"
    results, expected = 0, []
    before = start & 0xFF
    constant = 0b10
    for at, width in fields:
        mask = np.uint32((1 << width) - 1 << at)
        for write, value in (
            (f"s_setreg_b32 hwreg(1, {at}, {width}), s17", written),
            (f"s_setreg_imm32_b32 hwreg(1, {at}, {width}), {constant}", np.full_like(written, constant)),
        ):
            code += f" s_setreg_b32 hwreg(1, 0, 8), s16\n {write}\n s_getreg_b32 s12, hwreg(1, 0, 8)\n s_getreg_b32 s13, hwreg(1, {at}, {width})\n s_lshl_b32 s13, s13, 8\n s_or_b32 s12, s12, s13\n v_mov_b32 v{40 + results}, s12\n"
            after = before & ~mask | value << at & mask
            expected.append(after | (after >> at & (1 << width) - 1) << 8)
            results += 1
    for name, at in (("s_round_mode", 0), ("s_denorm_mode", 4)):
        if name in have:
            code += f" s_setreg_b32 hwreg(1, 0, 8), s16\n {name} 0x6\n s_getreg_b32 s12, hwreg(1, 0, 8)\n v_mov_b32 v{40 + results}, s12\n"
            expected.append(before & ~np.uint32(15 << at) | 6 << at)
            results += 1
    found = lanes(arch, code + " s_setreg_imm32_b32 hwreg(1, 0, 8), 0xf0", [start, written], results)

    assert {"s_getreg_b32", "s_setreg_b32"} <= have.keys()
    assert ("s_round_mode" in have) == (wave == 32)
    np.testing.assert_array_equal(found, expected)


def error_of(arch: str, line: str) -> Exception:
    with pytest.raises((Trap, Unimplemented)) as raised:
        execute(load(assembled(arch, f"\ts_nop 0\n\t{line}")), Launch((1, 1, 1), WAVES[arch], bytes(16), 0, []))
    return raised.value


@pytest.mark.parametrize("arch", WAVES)
def test_a_trap_ends_with_an_error_that_names_it(arch):
    error = error_of(arch, unused_forms(arch)["s_trap"])

    assert isinstance(error, Trap)
    assert "s_trap 1" in str(error)
    assert error.place.pc == 4


@pytest.mark.parametrize(
    ("arch", "line"),
    [
        ("gfx942", "s_setkill 0x1"), ("gfx1201", "s_setkill 0x1"), ("gfx1100", "s_code_end"), ("gfx1100", "s_getreg_b32 s12, hwreg(20)"),
        ("gfx1201", "s_getreg_b32 s12, hwreg(4)"), ("gfx942", "s_getreg_b32 s12, hwreg(2)"), ("gfx942", "s_setreg_imm32_b32 hwreg(2), 1"),
    ],
)  # fmt: skip
def test_what_ends_a_wave_or_tells_of_the_machine_is_refused(arch, line):
    """A wave that kills itself, the end of code, where scratch lies, and the wave's state: the emulator has no such thing, and guesses nothing."""
    error = error_of(arch, line)

    assert isinstance(error, Unimplemented)
    assert line.split()[0] in str(error)


@pytest.mark.parametrize("arch", WAVES)
def test_everything_runs_in_one_place(arch):
    places = (4, 20) if WAVES[arch] == 64 else (23, 24)
    code = "\n".join(f" s_getreg_b32 s12, hwreg({place})\n v_mov_b32 v{40 + n}, s12" for n, place in enumerate(places))

    assert not np.any(lanes(arch, code, [np.zeros(LANES, np.uint32)], len(places)))


@pytest.mark.parametrize("arch", [arch for arch in WAVES if "s_memtime" in unused_forms(arch)])
def test_clocks_go_up_and_are_the_same_at_each_run(arch):
    """Each wave reads a clock before and after a loop; one counts with the instructions, the other more slowly."""
    runs = []
    for _ in range(2):
        code = "v_readfirstlane_b32 s16, v10\n s_and_b32 s16, s16, 0xff\n s_addk_i32 s16, 20\n"
        code += " s_memtime s[26:27]\n s_memrealtime s[28:29]\n s_waitcnt lgkmcnt(0)\n1:\n s_sub_u32 s16, s16, 1\n s_cmp_lg_u32 s16, 0\n s_cbranch_scc1 1b\n s_memtime s[30:31]\n s_memrealtime s[34:35]\n s_waitcnt lgkmcnt(0)\n"
        code += "\n".join(f" v_mov_b32 v{40 + n}, s{register}" for n, register in enumerate((26, 27, 28, 29, 30, 31, 34, 35)))
        a = np.repeat(drawn("u", f"{arch} clock", LANES // 64).astype(np.uint32), 64)
        runs.append([row.astype(np.uint64) for row in lanes(arch, code, [a], 8)])
    first, slow, second, slower = (runs[0][n] | runs[0][n + 1] << np.uint64(32) for n in (0, 2, 4, 6))

    np.testing.assert_array_equal(*runs)
    assert (second - first > (a & 0xFF) + 20).all()
    assert (slower > slow).all()
    assert (slower - slow < second - first).all()


@pytest.mark.parametrize("arch", SOON)
def test_hints_change_no_register(arch):
    """Behind each hint, scalars, lanes, VCC, the condition code and EXEC are as they were."""
    wave = WAVES[arch]
    vcc, exec_ = ("vcc", "exec") if wave == 64 else ("vcc_lo", "exec_lo")
    hints = [
        re.sub(r"^(s_sendmsg) .*", r"\1 sendmsg(MSG_INTERRUPT)", example) for name, example in unused_forms(arch).items() if name in HINTS
    ]
    a, b, c = (drawn("u", f"{arch} hints {n}", LANES).astype(np.uint32) for n in range(3))
    code = f"v_readfirstlane_b32 s16, v10\n v_readfirstlane_b32 s17, v11\n v_cmp_lt_u32 {vcc}, v10, v11\n s_cmp_lt_u32 s16, s17\n s_mov_b32 m0, s17\n"
    code += "".join(f" v_mov_b32 v{40 + n}, v12\n" for n in range(len(hints)))
    code += f" v_cmp_lt_u32 s[20:21], v12, v10\n s_mov_b{wave} {exec_}, s[20:21]\n".replace("s[20:21]", "s[20:21]" if wave == 64 else "s20")
    for n, hint in enumerate(hints):
        code += f" {hint}\n s_cselect_b32 s22, s16, m0\n v_cndmask_b32 v30, v10, v11, {vcc}\n v_xor_b32 v{40 + n}, s22, v30\n"
    found = lanes(arch, code + f" s_mov_b{wave} {exec_}, -1", [a, b, c], len(hints))
    first, second = (np.repeat(row[::wave], wave) for row in (a, b))
    expected = np.where(c < a, np.where(first < second, first, second) ^ np.where(a < b, b, a), c)

    assert len(hints) > 4
    for hint, row in zip(hints, found, strict=True):
        np.testing.assert_array_equal(row, expected, err_msg=hint)
