"""Instructions that move values between lanes, to and from LDS, scalars and dot products, against numpy and Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import FA, HA, HB, HC, A, B, C, H, each, f32, field, signed
from machine_code import lanes


def rows_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 64)


L = np.arange(64)
MOVES = {
    "quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf": L ^ 3,
    "row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0": np.where(L % 16 >= 1, L - 1, -1),
    "row_shl:4 row_mask:0xf bank_mask:0xf bound_ctrl:0": np.where(L % 16 < 12, L + 4, -1),
    "row_ror:8 row_mask:0xf bank_mask:0xf": L ^ 8,
    "row_mirror row_mask:0xf bank_mask:0xf": L ^ 15,
    "row_half_mirror row_mask:0xf bank_mask:0xf": L ^ 7,
    "row_bcast:15 row_mask:0xa bank_mask:0xf": np.where(L // 16 % 2 == 1, L // 16 * 16 - 1, -2),
    "row_bcast:31 row_mask:0xc bank_mask:0xf": np.where(L >= 32, 31, -2),
    "wave_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0": L - 1,
    "row_newbcast:5 row_mask:0xf bank_mask:0xf": L // 16 * 16 + 5,
    "row_shr:2 row_mask:0xf bank_mask:0xf": np.where(L % 16 >= 2, L - 2, -2),
}


@pytest.mark.parametrize("pattern", MOVES)
def test_dpp(pattern):
    """-1: the lane reads 0; -2: the lane keeps what it had."""
    (result,) = lanes("gfx942", f"v_mov_b32 v40, v11\n v_nop\n v_mov_b32_dpp v40, v10 {pattern}", [A, B], 1)
    source, old = rows_of(A), rows_of(B)
    expected = np.where(MOVES[pattern] == -1, 0, np.where(MOVES[pattern] == -2, old, source[:, MOVES[pattern]]))

    np.testing.assert_array_equal(rows_of(result), expected)


def test_exchanges_between_lanes():
    other = (B % 64).astype(np.uint32)
    code = "v_lshlrev_b32 v30, 2, v11\n ds_bpermute_b32 v40, v30, v10\n ds_swizzle_b32 v41, v10 offset:swizzle(SWAP,16)\n s_waitcnt 0\n"
    code += " v_readlane_b32 s12, v10, 37\n v_mov_b32 v42, s12\n v_readfirstlane_b32 s13, v10\n v_mov_b32 v43, s13\n"
    code += " v_mbcnt_lo_u32_b32 v44, -1, 0\n v_mbcnt_hi_u32_b32 v44, -1, v44"
    results = [rows_of(x) for x in lanes("gfx942", code, [A, other], 5)]
    source = rows_of(A)

    np.testing.assert_array_equal(results[0], np.take_along_axis(source, rows_of(other).astype(np.int64), 1))
    np.testing.assert_array_equal(results[1], source[:, L ^ 16])
    np.testing.assert_array_equal(results[2], np.repeat(source[:, 37:38], 64, 1))
    np.testing.assert_array_equal(results[3], np.repeat(source[:, :1], 64, 1))
    np.testing.assert_array_equal(results[4], np.tile(L, (len(source), 1)))


def test_lanes_that_are_off_keep_their_registers():
    code = "v_mov_b32 v40, v11\n v_cmp_gt_u32 vcc, 20, v0\n s_and_saveexec_b64 s[10:11], vcc\n v_add_u32 v40, v10, v10\n s_or_b64 exec, exec, s[10:11]"
    (result,) = lanes("gfx942", code, [A, B], 1)

    np.testing.assert_array_equal(rows_of(result), np.where(L < 20, rows_of(A + A), rows_of(B)))


def test_a_first_operation_with_no_lane_on_changes_nothing():
    code = "v_mov_b32 v40, v11\n s_mov_b64 s[10:11], exec\n s_mov_b64 exec, 0\n v_mov_b32 v40, v10\n s_mov_b64 exec, s[10:11]"
    (result,) = lanes("gfx942", code, [A, B], 1)

    np.testing.assert_array_equal(result, B)


def test_lds_of_all_widths():
    code = "v_lshlrev_b32 v30, 4, v0\n ds_write_b128 v30, v[10:13]\n s_waitcnt 0\n ds_read_b64 v[40:41], v30 offset:8\n ds_read2_b32 v[42:43], v30 offset0:1 offset1:2\n"
    code += " ds_read_u16 v44, v30 offset:6\n ds_read_i8 v45, v30 offset:3\n v_mov_b32 v46, -1\n ds_read_u16_d16_hi v46, v30 offset:4\n"
    code += " ds_write_b8 v30, v11 offset:1\n ds_add_u32 v30, v12 offset:12\n s_waitcnt 0\n ds_read_b32 v47, v30\n ds_read_b32 v48, v30 offset:12"
    rows = [A, B, C, FA]
    results = lanes("gfx942", code, rows, 9)
    expected = [C, FA, B, C, B >> 16, each(lambda a: signed(a >> 24, 8), A), B << 16 | 0xFFFF, A & 0xFFFF00FF | (B & 0xFF) << 8, FA + C]

    for n, (mine, theirs) in enumerate(zip(results, expected)):
        np.testing.assert_array_equal(mine, theirs, err_msg=f"v{40 + n}")


SCALARS = {
    "s_add_u32 s20, s16, s17\n s_addc_u32 s21, 0, 0": lambda a, b: (a + b & 0xFFFFFFFF, a + b >> 32),
    "s_sub_u32 s20, s16, s17\n s_subb_u32 s21, 0, 0": lambda a, b: (a - b & 0xFFFFFFFF, -(a < b) & 0xFFFFFFFF),
    "s_mul_i32 s20, s16, s17\n s_mul_hi_u32 s21, s16, s17": lambda a, b: (a * b & 0xFFFFFFFF, a * b >> 32),
    "s_bfe_u32 s20, s16, s17\n s_bfe_i32 s21, s16, s17": lambda a, b: (field(a, b & 31, min(b >> 16 & 127, 32)), signed(field(signed(a, 32), b & 31, min(b >> 16 & 127, 32)), min(b >> 16 & 127, 32)) & 0xFFFFFFFF),
    "s_lshl_b32 s20, s16, s17\n s_ashr_i32 s21, s16, s17": lambda a, b: (a << (b & 31) & 0xFFFFFFFF, signed(a, 32) >> (b & 31) & 0xFFFFFFFF),
    "s_min_i32 s20, s16, s17\n s_cselect_b32 s21, 1, 2": lambda a, b: (min(signed(a, 32), signed(b, 32)) & 0xFFFFFFFF, 1 if signed(a, 32) < signed(b, 32) else 2),
    "s_andn2_b32 s20, s16, s17\n s_cselect_b32 s21, 1, 2": lambda a, b: (a & ~b, 1 if a & ~b else 2),
    "s_ff1_i32_b32 s20, s16\n s_flbit_i32_b32 s21, s17": lambda a, b: ((a & -a).bit_length() - 1 & 0xFFFFFFFF, (32 - b.bit_length() if b else -1) & 0xFFFFFFFF),
    "s_bcnt1_i32_b32 s20, s16\n s_brev_b32 s21, s17": lambda a, b: (a.bit_count(), int(f"{b:032b}"[::-1], 2)),
    "s_pack_ll_b32_b16 s20, s16, s17\n s_pack_hh_b32_b16 s21, s16, s17": lambda a, b: (a & 0xFFFF | (b & 0xFFFF) << 16, a >> 16 | b >> 16 << 16),
    "s_lshl2_add_u32 s20, s16, s17\n s_cselect_b32 s21, 1, 2": lambda a, b: ((a << 2) + b & 0xFFFFFFFF, 1 if (a << 2) + b >> 32 else 2),
    "s_abs_i32 s20, s16\n s_sext_i32_i8 s21, s17": lambda a, b: (abs(signed(a, 32)) & 0xFFFFFFFF, signed(b & 0xFF, 8) & 0xFFFFFFFF),
    "s_cmp_lt_i32 s16, s17\n s_cselect_b32 s20, 1, 0\n s_cmp_ge_u32 s16, s17\n s_cselect_b32 s21, 1, 0": lambda a, b: (signed(a, 32) < signed(b, 32), a >= b),
    "s_lshr_b64 s[20:21], s[16:17], 9": lambda a, b: ((a | b << 32) >> 9 & 0xFFFFFFFF, (a | b << 32) >> 41),
}  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_scalars(text):
    """The first lane of each wave gives the operands."""
    code = f"v_readfirstlane_b32 s16, v10\n v_readfirstlane_b32 s17, v11\n s_nop 4\n {text}\n v_mov_b32 v40, s20\n v_mov_b32 v41, s21"
    results = [rows_of(x)[:, 0].tolist() for x in lanes("gfx942", code, [A, B], 2)]
    expected = [SCALARS[text](a, b) for a, b in zip(rows_of(A)[:, 0].tolist(), rows_of(B)[:, 0].tolist())]

    assert list(zip(*results)) == [(int(a), int(b)) for a, b in expected]


DOTS = [("gfx942", "v_dot2c_f32_f16 v40, v10, v11"), ("gfx1100", "v_dot2acc_f32_f16 v40, v10, v11"), ("gfx1100", "v_dual_dot2acc_f32_f16 v40, v10, v11 :: v_dual_mov_b32 v41, v11"), ("gfx1201", "v_dot2_f32_f16 v40, v10, v11, v40")]  # fmt: skip


@pytest.mark.parametrize(("arch", "text"), DOTS, ids=str)
def test_dots_of_halves(arch, text):
    """Both halves take part, also where the encoding has no room to choose them."""
    with np.errstate(all="ignore"):
        pairs = [(low | high << 16).astype(np.uint32) for low, high in ((H[0], H[1]), (H[2], H[0]))]
        exact = HA.astype(np.float64) * HC + HB.astype(np.float64) * HA + 1
    result = f32(lanes(arch, f"v_mov_b32 v40, 1.0\n {text}", pairs, 1)[0])

    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-5 * float(np.abs(exact).max()))


def test_a_buffers_offset_is_a_sum_of_32_bits():
    """An offset that is out of range alone comes back into it with a scalar offset: triton-lang/triton#10673, measured on gfx942."""
    words = np.arange(64, dtype=np.uint32) + 100
    offsets = np.where(np.arange(64) % 2, np.uint32(0xFFFFFFFC), np.uint32(0)).astype(np.uint32)
    code = "s_mov_b32 s20, s4\n s_mov_b32 s21, s5\n s_mov_b32 s22, {}\n s_mov_b32 s23, 0x27000\n s_mov_b32 s24, 8\n"
    code += "v_mov_b32 v40, 7\n v_mov_b32 v41, 7\n buffer_load_dword v40, v11, s[20:23], s24 offen\n buffer_load_dword v41, v11, s[20:23], 0 offen"
    for size in (256, 8):
        added, alone = lanes("gfx942", code.format(size), [words, offsets], 2)

        np.testing.assert_array_equal(added, np.where(np.arange(64) % 2, 101, 102 if size > 8 else 0))
        np.testing.assert_array_equal(alone, np.where(np.arange(64) % 2, 0, 100))
