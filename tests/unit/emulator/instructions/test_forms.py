"""Forms that the bundled kernels use and no other test names: several to a program, random and edge values, against numpy and Python."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from machine_code import WAVES, lanes
from test_matrix import BITS, WAVES_RUN, by_wave, dense, drawn, in_lanes, packed, result_cdna, run

COUNT = 2048
_DRAWN = np.random.default_rng(21)
_EDGES = np.array(
    [0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x3C00, 0x7C00, 0x7E00, 0x3F800000, 0x7F800000, 0x7FC00000, 0x80000000, 0xFFFFFFFF], np.uint64
)


def words() -> np.ndarray:
    """Random words, a third of them edges, so that neighbours are often equal."""
    return np.where(_DRAWN.random(COUNT) < 0.35, _DRAWN.choice(_EDGES, COUNT), _DRAWN.integers(0, 2**32, COUNT, dtype=np.uint64)).astype(
        np.uint32
    )


A, B, C, D = words(), words(), words(), words()
ONE = np.ones_like(A)
A[::5], C[::5] = B[::5], D[::5]


def wide(low: np.ndarray, high: np.ndarray, kind: type) -> np.ndarray:
    return (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)).view(kind)


INTEGER = {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne, "ge": operator.ge}
FLOAT = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "lg": lambda a, b: (a < b) | (a > b)}
FLOAT |= {"o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "u": lambda a, b: np.isnan(a) | np.isnan(b)}
FLOAT |= {f"n{name}": (lambda a, b, test=FLOAT[name]: ~test(a, b)) for name in ("lt", "ge", "lg", "gt", "le")} | {
    "neq": lambda a, b: ~(a == b)
}
COMPARED = {
    "i32": (np.int32, INTEGER), "u32": (np.uint32, INTEGER), "i64": (np.int64, INTEGER), "u64": (np.uint64, INTEGER), "i16": (np.int16, INTEGER),
    "u16": (np.uint16, INTEGER), "f32": (np.float32, FLOAT), "f64": (np.float64, FLOAT), "f16": (np.float16, FLOAT),
}  # fmt: skip


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("kind", COMPARED)
def test_comparisons(arch, kind):
    dtype, tests = COMPARED[kind]
    is_wide, mask = dtype().itemsize == 8, "vcc" if WAVES[arch] == 64 else "vcc_lo"
    left, right = ("v[10:11]", "v[12:13]") if is_wide else ("v10", "v12")
    if WAVES[arch] == 32 and dtype().itemsize == 2:
        left, right = f"{left}.l", f"{right}.l"
    code = "\n ".join(
        f"v_cmp_{name}_{kind} {mask}, {left}, {right}\n v_cndmask_b32 v{40 + n}, 0, v14, {mask}" for n, name in enumerate(tests)
    )
    found = lanes(arch, code, [A, C, B, D, ONE], len(tests))
    if is_wide:
        a, b = wide(A, C, dtype), wide(B, D, dtype)
    else:
        a, b = ((x & 0xFFFF).astype(np.uint16).view(dtype) if dtype().itemsize == 2 else x.view(dtype) for x in (A, B))
    for name, row in zip(tests, found, strict=True):
        np.testing.assert_array_equal(row.astype(bool), tests[name](a, b), err_msg=name)


def s32(value: int) -> int:
    return (value & 0xFFFFFFFF) - (1 << 32) if value >> 31 & 1 else value & 0xFFFFFFFF


def s64(value: int) -> int:
    return (value & 2**64 - 1) - (1 << 64) if value >> 63 & 1 else value & 2**64 - 1


def both(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF


def overflows(value: int) -> int:
    return int(not -(2**31) <= value < 2**31)


FLAG = "s_cselect_b32 s21, 1, 0"
PAIR = "s[20:21], s[16:17], s[18:19]"
# Operands are s16 to s19; what comes out is in s20 and s21.
SCALARS = {
    f"s_and_b32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (a & b, int(a & b != 0)),
    f"s_or_b32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (a | b, int(a | b != 0)),
    f"s_xor_b32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (a ^ b, int(a ^ b != 0)),
    f"s_not_b32 s20, s16\n {FLAG}": lambda a, b, c, d: (~a & 0xFFFFFFFF, int(a != 0xFFFFFFFF)),
    f"s_and_b64 {PAIR}": lambda a, b, c, d: (a & c, b & d),
    f"s_or_b64 {PAIR}": lambda a, b, c, d: (a | c, b | d),
    f"s_xor_b64 {PAIR}": lambda a, b, c, d: (a ^ c, b ^ d),
    f"s_andn2_b64 {PAIR}": lambda a, b, c, d: (a & ~c, b & ~d),
    f"s_add_i32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (a + b & 0xFFFFFFFF, overflows(s32(a) + s32(b))),
    f"s_sub_i32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (a - b & 0xFFFFFFFF, overflows(s32(a) - s32(b))),
    f"s_lshr_b32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (a >> (b & 31), int(a >> (b & 31) != 0)),
    "s_lshl_b64 s[20:21], s[16:17], s18": lambda a, b, c, d: both((a | b << 32) << (c & 63)),
    "s_ashr_i64 s[20:21], s[16:17], s18": lambda a, b, c, d: both(s64(a | b << 32) >> (c & 63)),
    "s_bfe_i64 s[20:21], s[16:17], 0x200007": lambda a, b, c, d: both(s32((a | b << 32) >> 7)),
    "s_mul_hi_i32 s20, s16, s17\n s_mul_i32 s21, s16, s17": lambda a, b, c, d: (s32(a) * s32(b) >> 32 & 0xFFFFFFFF, a * b & 0xFFFFFFFF),
    f"s_lshl1_add_u32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: ((a << 1) + b & 0xFFFFFFFF, int((a << 1) + b >> 32 != 0)),
    f"s_lshl3_add_u32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: ((a << 3) + b & 0xFFFFFFFF, int((a << 3) + b >> 32 != 0)),
    f"s_lshl4_add_u32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: ((a << 4) + b & 0xFFFFFFFF, int((a << 4) + b >> 32 != 0)),
    f"s_max_i32 s20, s16, s17\n {FLAG}": lambda a, b, c, d: (max(s32(a), s32(b)) & 0xFFFFFFFF, int(s32(a) >= s32(b))),
    "s_movk_i32 s20, 0x8001\n s_mov_b32 s21, s16\n s_addk_i32 s21, 0xfff0": lambda a, b, c, d: (0xFFFF8001, a - 16 & 0xFFFFFFFF),
    "s_mov_b32 s20, s16\n s_mulk_i32 s20, 0xfffd\n s_mov_b32 s21, 5": lambda a, b, c, d: (a * -3 & 0xFFFFFFFF, 5),
    "s_cmp_lg_u64 s[16:17], s[18:19]\n s_cselect_b64 s[20:21], s[16:17], s[18:19]": lambda a, b, c, d: (a, b) if (a, b) != (c, d) else (c, d),
    f"s_bitcmp0_b32 s16, s17\n s_cselect_b32 s20, 1, 0\n s_bitcmp1_b32 s16, s17\n {FLAG}": lambda a, b, c, d: (1 - (a >> (b & 31) & 1), a >> (b & 31) & 1),
    f"s_cmp_gt_i32 s16, s17\n s_cselect_b32 s20, 1, 0\n s_cmp_gt_u32 s16, s17\n {FLAG}": lambda a, b, c, d: (int(s32(a) > s32(b)), int(a > b)),
    f"s_cmp_ge_i32 s16, s17\n s_cselect_b32 s20, 1, 0\n s_cmp_lt_u32 s16, s17\n {FLAG}": lambda a, b, c, d: (int(s32(a) >= s32(b)), int(a < b)),
    f"s_cmp_le_i32 s16, s17\n s_cselect_b32 s20, 1, 0\n s_cmp_lg_u32 s16, s17\n {FLAG}": lambda a, b, c, d: (int(s32(a) <= s32(b)), int(a != b)),
    f"s_cmpk_lt_u32 s16, 0x8000\n s_cselect_b32 s20, 1, 0\n s_cmpk_gt_i32 s16, 0xfff0\n {FLAG}": lambda a, b, c, d: (int(a < 0x8000), int(s32(a) > -16)),
}  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
def test_scalars(text):
    """The first lane of each wave gives the operands."""
    loads = "\n ".join(f"v_readfirstlane_b32 s{16 + n}, v{10 + n}" for n in range(4))
    found = lanes("gfx942", f"{loads}\n s_nop 4\n {text}\n v_mov_b32 v40, s20\n v_mov_b32 v41, s21", [A, B, C, D], 2)
    firsts = [row[::64].tolist() for row in (A, B, C, D)]

    assert list(zip(*(row[::64].tolist() for row in found), strict=True)) == [SCALARS[text](*given) for given in zip(*firsts, strict=True)]


BRANCHES = {
    "s_cbranch_scc0": ("s_cmp_lt_u32 s16, s17", lambda a, b: not a < b), "s_cbranch_scc1": ("s_cmp_lt_u32 s16, s17", operator.lt),
    "s_cbranch_vccz": ("v_cmp_lt_u32 vcc, s16, v11", lambda a, b: not a < b), "s_cbranch_vccnz": ("v_cmp_lt_u32 vcc, s16, v11", operator.lt),
    "s_cbranch_execz": ("v_cmp_lt_u32 vcc, s16, v11\n s_and_saveexec_b64 s[20:21], vcc", lambda a, b: not a < b),
    "s_cbranch_execnz": ("v_cmp_lt_u32 vcc, s16, v11\n s_and_saveexec_b64 s[20:21], vcc", operator.lt),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name):
    test, taken = BRANCHES[name]
    first, second = (np.repeat(x[::64], 64) for x in (A, B))
    code = f"v_readfirstlane_b32 s16, v10\n v_readfirstlane_b32 s17, v11\n s_mov_b64 s[20:21], exec\n s_nop 4\n {test}\n s_mov_b32 s22, 1\n {name} 1f\n"
    code += " s_mov_b32 s22, 0\n1:\n s_mov_b64 exec, s[20:21]\n v_mov_b32 v40, s22"
    (found,) = lanes("gfx942", code, [first, second], 1)

    assert found[::64].tolist() == [int(taken(a, b)) for a, b in zip(A[::64].tolist(), B[::64].tolist(), strict=True)]


def test_lds_in_pairs_and_halves():
    code = "v_lshlrev_b32 v30, 4, v0\n ds_write2_b32 v30, v10, v11 offset0:2 offset1:3\n ds_write_b64 v30, v[12:13]\n s_waitcnt 0\n"
    code += "ds_read_b128 v[40:43], v30\n ds_read2_b64 v[44:47], v30 offset0:1 offset1:0\n s_waitcnt 0\n"
    code += "ds_write_b16 v30, v10 offset:2\n ds_write_b16_d16_hi v30, v11\n s_waitcnt 0\n ds_read_b32 v48, v30\n s_waitcnt 0\n"
    code += "v_lshlrev_b32 v31, 2, v0\n ds_write2st64_b32 v31, v12, v13 offset0:4 offset1:6\n s_waitcnt 0\n v_mov_b32 v49, 0\n"
    code += "ds_read2st64_b32 v[50:51], v31 offset0:6 offset1:4\n v_lshlrev_b32 v31, 3, v0\n"
    code += (
        "ds_write2st64_b64 v31, v[10:11], v[12:13] offset0:0 offset1:1\n s_waitcnt 0\n ds_read2st64_b64 v[52:55], v31 offset0:1 offset1:0\n"
    )
    found = lanes("gfx942", code, [A, B, C, D], 16)
    expected = [C, D, A, B, A, B, C, D, B >> 16 | A << 16, np.zeros_like(A), D, C, C, D, A, B]
    for n, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(mine, theirs, err_msg=f"v{40 + n}")


def test_lds_in_pairs_of_doubles():
    code = "v_lshlrev_b32 v31, 3, v0\n ds_write2_b64 v31, v[10:11], v[12:13] offset0:64 offset1:128\n s_waitcnt 0\n"
    code += "ds_read_b64 v[40:41], v31 offset:1024\n ds_read_b64 v[42:43], v31 offset:512"
    found = lanes("gfx942", code, [A, B, C, D], 4)
    for mine, theirs in zip(found, [C, D, A, B], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_memory_of_each_size():
    """A buffer over the rows that were loaded, and over the results."""
    code = "s_mov_b32 s20, s4\n s_mov_b32 s21, s5\n s_mov_b32 s22, 1024\n s_mov_b32 s23, 0x27000\n s_mov_b32 s24, s6\n s_mov_b32 s25, s7\n"
    code += (
        "s_mov_b32 s26, 3072\n s_mov_b32 s27, 0x27000\n v_lshlrev_b32 v30, 4, v0\n v_and_b32 v31, 0xff, v30\n v_lshlrev_b32 v32, 1, v0\n"
    )
    code += "buffer_load_dwordx4 v[40:43], v30, s[20:23], 0 offen\n buffer_load_dwordx2 v[44:45], v30, s[20:23], 0 offen offset:8\n"
    code += "buffer_load_ushort v46, v32, s[20:23], 0 offen\n global_load_dwordx2 v[48:49], v30, s[4:5] offset:4\n global_load_ushort v47, v32, s[4:5] offset:2\n"
    code += "s_waitcnt 0\n v_mov_b32 v50, 0\n"
    groups = COUNT // 64
    rows = [A, B, C, D]
    found = lanes("gfx942", code, rows, 10)
    memory = np.stack(rows).reshape(4, groups, 64).transpose(1, 0, 2).reshape(groups, 256)
    lane = np.arange(64)
    halves = memory.view(np.uint16)
    expected = [memory[:, 4 * lane + n] for n in range(4)] + [memory[:, 4 * lane + 2 + n] for n in range(2)]
    expected += [halves[:, lane], halves[:, lane + 1], memory[:, 4 * lane + 1], memory[:, 4 * lane + 2]]
    for n, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(mine, theirs.reshape(-1), err_msg=f"v{40 + n}")


def test_stores_of_each_size():
    """What is stored to global memory and through a buffer is read back; the results' own memory is the place."""
    code = "s_mov_b32 s24, s6\n s_mov_b32 s25, s7\n s_mov_b32 s26, 1536\n s_mov_b32 s27, 0x27000\n v_lshlrev_b32 v30, 3, v0\n v_mov_b32 v20, -1\n v_mov_b32 v21, -1\n"
    code += "buffer_store_dwordx2 v[20:21], v30, s[24:27], 0 offen\n buffer_store_short v10, v30, s[24:27], 0 offen\n global_store_byte v30, v11, s[6:7] offset:2\n"
    code += "global_store_short v30, v12, s[6:7] offset:4\n s_waitcnt 0\n global_load_dwordx2 v[40:41], v30, s[6:7]\n s_waitcnt 0\n"
    code += "v_mov_b32 v22, v13\n v_mov_b32 v23, v10\n buffer_atomic_swap_x2 v[22:23], v30, s[24:27], 0 offen sc0\n s_waitcnt 0\n v_mov_b32 v42, v22\n v_mov_b32 v43, v23\n"
    code += "global_load_dwordx2 v[44:45], v30, s[6:7]\n s_waitcnt 0\n"
    found = lanes("gfx942", code, [A, B, C, D], 6)
    low, high = A & 0xFFFF | (B & 0xFF) << 16 | 0xFF000000, C & 0xFFFF | 0xFFFF0000
    for n, (mine, theirs) in enumerate(zip(found, [low, high, low, high, D, A], strict=True)):
        np.testing.assert_array_equal(mine, theirs, err_msg=f"v{40 + n}")


def test_floats_of_other_forms():
    values = [(_DRAWN.standard_normal(COUNT) * 2.0 ** _DRAWN.uniform(-12, 12, COUNT)).astype(np.float32) for _ in range(3)]
    a, b, _ = values
    code = "v_mov_b32 v40, v12\n v_fmac_f32 v40, v10, v11\n v_fmaak_f32 v41, v10, v11, 0x40490fdb\n v_fmamk_f32 v42, v10, 0x40490fdb, v11\n v_subrev_f32 v43, v10, v11\n"
    code += "v_cvt_i32_f32 v44, v10\n v_cvt_u32_f32 v45, v10\n v_cvt_f64_f32 v[30:31], v10\n v_mul_f64 v[30:31], v[30:31], v[30:31]\n v_cvt_f32_f64 v46, v[30:31]\n"
    code += "v_cvt_f16_f32 v20, v11\n v_fma_mix_f32 v47, v10, v20, v12 op_sel_hi:[0,1,0]\n v_mov_b32 v48, -1\n v_fma_mixlo_f16 v48, v10, v11, v12\n"
    code += "v_fma_mixhi_f16 v48, v10, v11, 0\n"
    found = [row.view(np.float32) for row in lanes("gfx942", code, [x.view(np.uint32) for x in values], 9)]
    x, y, z = (v.astype(np.float64) for v in values)
    pi = float(np.float32(np.pi))
    half = b.astype(np.float16).astype(np.float64)
    exact = {0: x * y + z, 1: x * y + pi, 2: x * pi + y, 7: x * half + z}
    for n, expected in exact.items():  # rounded once from double, and twice in rare cases that random values do not meet
        np.testing.assert_array_equal(found[n], expected.astype(np.float32), err_msg=str(n))
    np.testing.assert_array_equal(found[3], b - a)
    np.testing.assert_array_equal(found[4].view(np.int32), np.trunc(a).astype(np.int32))
    np.testing.assert_array_equal(found[5].view(np.uint32), np.maximum(np.trunc(a), 0).astype(np.uint32))
    np.testing.assert_array_equal(found[6], (x * x).astype(np.float32))
    with np.errstate(over="ignore"):
        low, high = (x * y + z).astype(np.float32).astype(np.float16), (x * y).astype(np.float32).astype(np.float16)
    np.testing.assert_array_equal((found[8].view(np.uint32) & 0xFFFF).astype(np.uint16).view(np.float16), low)
    np.testing.assert_array_equal((found[8].view(np.uint32) >> 16).astype(np.uint16).view(np.float16), high)


def test_accumulation_registers_are_registers_of_their_own():
    code = "v_accvgpr_write_b32 a3, v10\n v_accvgpr_write_b32 a4, 7\n s_nop 4\n v_mov_b32 v3, v11\n v_accvgpr_read_b32 v40, a3\n v_accvgpr_read_b32 v41, a4\n v_mov_b32 v42, v3"
    found = lanes("gfx942", code, [A, B], 3)
    for mine, theirs in zip(found, [A, np.full_like(A, 7), B], strict=True):
        np.testing.assert_array_equal(mine, theirs)


MFMA = [("gfx942", "32x32x2", "f32"), ("gfx942", "16x16x4", "f32"), ("gfx90a", "32x32x2", "f32")]
MFMA += [("gfx942", shape, kind) for shape in ("32x32x8", "16x16x16") for kind in ("f16", "bf16")]
MFMA += [("gfx950", shape, kind) for shape in ("32x32x16", "16x16x32") for kind in ("f16", "bf16")]
MFMA += [("gfx942", "32x32x16", "i8"), ("gfx942", "16x16x32", "i8"), ("gfx942", "32x32x16", "fp8_bf8"), ("gfx942", "16x16x32", "bf8_fp8")]


@pytest.mark.parametrize(("arch", "shape", "kind"), MFMA, ids=str)
def test_dense_products(arch, shape, kind):
    m, k = int(shape.split("x")[0]), int(shape.split("x")[2])
    left, right = kind.split("_") if "_" in kind else (kind, kind)
    eights = "fnuz" if arch == "gfx942" else "ocp"

    def registers(name: str) -> tuple[list[np.ndarray], np.ndarray]:
        if name == "f32":
            values = _DRAWN.integers(-9, 9, (WAVES_RUN, 64, 1)).astype(np.float32)
            return [values.reshape(-1).view(np.uint32)], values.astype(float)
        codes, values = drawn(name, (WAVES_RUN, 64, k * m // 64), eights)
        return packed(codes, BITS[name]), values

    (a, x), (b, y) = registers(left), registers(right)
    start = _DRAWN.integers(-9, 9, m * m // 64)
    into, dtype = ("i32", np.int32) if kind == "i8" else ("f32", np.float32)
    found = run(
        arch, f"v_mfma_{into}_{shape}{'' if arch == 'gfx90a' else '_'}{kind}", a, b, start.astype(dtype).view(np.uint32).tolist(), None
    )
    expected = result_cdna(in_lanes(start, 64), m) + dense(x, m, k).swapaxes(1, 2) @ dense(y, m, k)

    np.testing.assert_array_equal(result_cdna(by_wave([row.view(dtype) for row in found], 64), m), expected)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_dense_products_of_doubles(arch):
    a, b = (_DRAWN.standard_normal((WAVES_RUN, 64)) for _ in range(2))
    rows = [row for x in (a, b) for row in ((x.reshape(-1).view(np.uint64) & 0xFFFFFFFF).astype(np.uint32), (x.reshape(-1).view(np.uint64) >> np.uint64(32)).astype(np.uint32))]  # fmt: skip
    name = "v_mfma_f64_16x16x4f64" if arch == "gfx90a" else "v_mfma_f64_16x16x4_f64"
    found = lanes(arch, f"s_nop 7\n {name} v[40:47], v[10:11], v[12:13], 0\n s_nop 15\n s_nop 7", rows, 8)
    values = np.stack([wide(found[2 * n], found[2 * n + 1], np.float64).reshape(WAVES_RUN, 64) for n in range(4)], axis=2)
    result = np.zeros((WAVES_RUN, 16, 16))
    for i, j in itertools.product(range(16), range(16)):
        result[:, i, j] = values[:, 16 * (i % 4) + j, i // 4]
    exact = a.reshape(WAVES_RUN, 4, 16).swapaxes(1, 2) @ b.reshape(WAVES_RUN, 4, 16)

    np.testing.assert_allclose(result, exact, rtol=1e-12, atol=1e-12)
