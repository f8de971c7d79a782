"""Each instruction against a second statement of its meaning: numpy with exact rounding, random and edge values, thousands of lanes.

LLVM assembles the instructions and numpy, torch or Python's fractions say what comes out: nothing is shared with the emulator's tables.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from drawn import COUNT, DRAWN, FA, FB, FC, HA, HB, HC, A, B, C, H, I, J, K, each, f32, field, floats, flushed, pick, signed
from machine_code import lanes

SMALL_SELECT = (C & 0x0F0F0F0F).astype(np.uint32)
INTEGERS = {
    "v_add_u32 v40, v10, v11": A + B,
    "v_sub_u32 v40, v10, v11": A - B,
    "v_subrev_u32 v40, v10, v11": B - A,
    "v_add_u32_e64 v40, v10, v11 clamp": each(lambda a, b: min(a + b, 2**32 - 1), A, B),
    "v_sub_u32_e64 v40, v10, v11 clamp": each(lambda a, b: max(a - b, 0), A, B),
    "v_mul_lo_u32 v40, v10, v11": A * B,
    "v_mul_hi_u32 v40, v10, v11": each(lambda a, b: a * b >> 32, A, B),
    "v_mul_hi_i32 v40, v10, v11": each(lambda a, b: a * b >> 32, I, J),
    "v_mul_u32_u24 v40, v10, v11": each(lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF), A, B),
    "v_mul_i32_i24 v40, v10, v11": each(lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24), A, B),
    "v_mad_u32_u24 v40, v10, v11, v12": each(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c, A, B, C),
    "v_add3_u32 v40, v10, v11, v12": A + B + C,
    "v_xad_u32 v40, v10, v11, v12": (A ^ B) + C,
    "v_lshl_add_u32 v40, v10, v11, v12": (A << (B & 31)) + C,
    "v_add_lshl_u32 v40, v10, v11, v12": (A + B) << (C & 31),
    "v_lshl_or_b32 v40, v10, v11, v12": A << (B & 31) | C,
    "v_and_or_b32 v40, v10, v11, v12": A & B | C,
    "v_or3_b32 v40, v10, v11, v12": A | B | C,
    "v_bfi_b32 v40, v10, v11, v12": A & B | ~A & C,
    "v_xnor_b32 v40, v10, v11": ~(A ^ B),
    "v_not_b32 v40, v10": ~A,
    "v_lshlrev_b32 v40, v10, v11": B << (A & 31),
    "v_lshrrev_b32 v40, v10, v11": B >> (A & 31),
    "v_ashrrev_i32 v40, v10, v11": (J >> (A & 31).view(np.int32)).view(np.uint32),
    "v_bfe_u32 v40, v10, v11, v12": each(lambda a, b, c: field(a, b & 31, c & 31), A, B, C),
    "v_bfe_i32 v40, v10, v11, v12": each(lambda a, b, c: signed(field(a, b & 31, c & 31), c & 31), I, B, C),
    "v_bfm_b32 v40, v10, v11": each(lambda a, b: (1 << (a & 31)) - 1 << (b & 31), A, B),
    "v_alignbit_b32 v40, v10, v11, v12": each(lambda a, b, c: (a << 32 | b) >> (c & 31), A, B, C),
    "v_alignbyte_b32 v40, v10, v11, v12": each(lambda a, b, c: (a << 32 | b) >> 8 * (c & 3), A, B, C),
    "v_perm_b32 v40, v10, v11, v13": each(pick, A, B, SMALL_SELECT),
    "v_bfrev_b32 v40, v10": each(lambda a: int(f"{a:032b}"[::-1], 2), A),
    "v_ffbh_u32 v40, v10": each(lambda a: 32 - a.bit_length() if a else -1, A),
    "v_ffbl_b32 v40, v10": each(lambda a: (a & -a).bit_length() - 1, A),
    "v_bcnt_u32_b32 v40, v10, v11": each(lambda a, b: a.bit_count() + b, A, B),
    "v_min_i32 v40, v10, v11": np.minimum(I, J).view(np.uint32),
    "v_max_u32 v40, v10, v11": np.maximum(A, B),
    "v_min3_i32 v40, v10, v11, v12": np.minimum(np.minimum(I, J), K).view(np.uint32),
    "v_med3_u32 v40, v10, v11, v12": np.sort([A, B, C], axis=0)[1],
    "v_mad_u16 v40, v10, v11, v12": None,
    "v_pk_add_u16 v40, v10, v11": (A & 0xFFFF) + (B & 0xFFFF) & 0xFFFF | (A >> 16) + (B >> 16) << 16,
    "v_pk_mul_lo_u16 v40, v10, v11": (A & 0xFFFF) * (B & 0xFFFF) & 0xFFFF | (A >> 16) * (B >> 16) << 16,
    "v_pk_max_i16 v40, v10, v11": np.maximum(A.view(np.int16), B.view(np.int16)).view(np.uint32),
    "v_pk_lshlrev_b16 v40, v10, v11": (B.view(np.uint16) << (A.view(np.uint16) & 15)).view(np.uint32),
    "v_pack_b32_f16 v40, v10, v11": A & 0xFFFF | B << 16,
    "v_and_b32_sdwa v40, v10, v11 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:WORD_1": A >> 16 & 0xFF & B >> 16,
    "v_add_u32_sdwa v40, v10, v11 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_1": A + (B >> 8 & 0xFF),
    "v_mov_b32 v40, v11\n v_mov_b32_sdwa v40, v10 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3": B & 0xFFFF00FF | A >> 24 << 8,
    "v_cvt_f32_ubyte2 v40, v10": (A >> 16 & 0xFF).astype(np.float32).view(np.uint32),
    "v_sad_u32 v40, v10, v11, v12": each(lambda a, b, c: abs(a - b) + c, A, B, C),
}
INTEGERS = {text: result for text, result in INTEGERS.items() if result is not None}


@pytest.mark.parametrize("text", INTEGERS)
def test_integers(text):
    (result,) = lanes("gfx942", text, [A, B, C, SMALL_SELECT], 1)

    np.testing.assert_array_equal(result, INTEGERS[text])


WIDE = {
    "v_mad_u64_u32 v[40:41], s[10:11], v10, v11, v[12:13]": lambda a, b, c, d: a * b + (c | d << 32),
    "v_lshl_add_u64 v[40:41], v[10:11], 3, v[12:13]": lambda a, b, c, d: ((a | b << 32) << 3) + (c | d << 32),
    "v_lshlrev_b64 v[40:41], v10, v[12:13]": lambda a, b, c, d: (c | d << 32) << (a & 63),
    "v_lshrrev_b64 v[40:41], v10, v[12:13]": lambda a, b, c, d: (c | d << 32) >> (a & 63),
    "v_ashrrev_i64 v[40:41], v10, v[12:13]": lambda a, b, c, d: signed(c | d << 32, 64) >> (a & 63),
    "v_add_co_u32 v40, vcc, v10, v12\n v_addc_co_u32 v41, vcc, v11, v13, vcc": lambda a, b, c, d: (a | b << 32) + (c | d << 32),
    "v_sub_co_u32 v40, vcc, v10, v12\n v_subb_co_u32 v41, vcc, v11, v13, vcc": lambda a, b, c, d: (a | b << 32) - (c | d << 32),
    "v_mov_b64 v[40:41], v[12:13]": lambda a, b, c, d: c | d << 32,
    "v_cmp_lt_i64 vcc, v[10:11], v[12:13]\n v_cndmask_b32 v40, 0, 1, vcc\n v_mov_b32 v41, 0": lambda a, b, c, d: signed(a | b << 32, 64) < signed(c | d << 32, 64),
}  # fmt: skip


@pytest.mark.parametrize("text", WIDE)
def test_wide_integers(text):
    low, high = lanes("gfx942", text.replace("0, 1, vcc", "0, v14, vcc"), [A, B, C, SMALL_SELECT, np.ones_like(A)], 2)
    expected = [WIDE[text](*row) & 2**64 - 1 for row in zip(A.tolist(), B.tolist(), C.tolist(), SMALL_SELECT.tolist())]

    assert [int(a) | int(b) << 32 for a, b in zip(low, high)] == [int(value) for value in expected]


def exact_fma(a: float, b: float, c: float, kind: type) -> int:
    """Round the exact a * b + c once, in fractions."""
    if not np.isfinite([a, b, c]).all():
        with np.errstate(all="ignore"):
            return int(kind(np.float64(a) * np.float64(b) + np.float64(c)).view(np.uint16 if kind is np.float16 else np.uint32))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return int(kind(np.float64(a) * np.float64(b) + np.float64(c)).view(np.uint16 if kind is np.float16 else np.uint32))
    info = np.finfo(kind)
    exponent = max(abs(exact).numerator.bit_length() - abs(exact).denominator.bit_length() - 1, int(info.minexp) - 1)
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    exponent = max(exponent, int(info.minexp))
    unit = Fraction(2) ** (exponent - int(info.nmant))
    rounded = round(exact / unit) * unit  # to even
    with np.errstate(over="ignore"):
        value = kind(float(rounded)) if abs(rounded) < Fraction(2) ** int(info.maxexp) else kind(np.inf if rounded > 0 else -np.inf)
    value = kind(-0.0) if value == 0 and exact < 0 else value
    return int(value.view(np.uint16 if kind is np.float16 else np.uint32))


with np.errstate(all="ignore"):
    FLOATS = {
        "v_add_f32 v40, v10, v11": f32(FA) + f32(FB),
        "v_sub_f32 v40, v10, v11": f32(FA) - f32(FB),
        "v_mul_f32 v40, v10, v11": f32(FA) * f32(FB),
        "v_add_f32_e64 v40, -v10, |v11|": -f32(FA) + abs(f32(FB)),
        "v_add_f32_e64 v40, v10, v11 clamp": np.nan_to_num(np.clip(f32(FA) + f32(FB), 0, 1), nan=0.0),
        "v_mul_f32_e64 v40, v10, v11 mul:2": f32(FA) * f32(FB),  # ignored where denormals stay
        "v_pk_mul_f32 v[40:41], v[10:11], v[12:13]": f32(FA) * f32(FC),
        "v_pk_add_f32 v[40:41], v[10:11], v[12:13] op_sel:[1,0] op_sel_hi:[1,1]": f32(FB) + f32(FC),
        "v_floor_f32 v40, v10": np.floor(f32(FA)),
        "v_ceil_f32 v40, v10": np.ceil(f32(FA)),
        "v_trunc_f32 v40, v10": np.trunc(f32(FA)),
        "v_rndne_f32 v40, v10": np.rint(f32(FA)),
        "v_sqrt_f32 v40, v10": np.sqrt(flushed(f32(FA)).astype(np.float64)).astype(np.float32),
        "v_rcp_f32 v40, v10": flushed((1 / flushed(f32(FA)).astype(np.float64)).astype(np.float32)),
        "v_ldexp_f32 v40, v10, v13": np.ldexp(f32(FA), SMALL_SELECT.view(np.int32) % 40 - 20),
        "v_cvt_f32_i32 v40, v14": I.astype(np.float32),
        "v_cvt_f32_u32 v40, v14": A.astype(np.float32),
        "v_cvt_f32_f16 v40, v14": A.astype(np.uint16).view(np.float16).astype(np.float32),
    }


@pytest.mark.parametrize("text", FLOATS)
def test_floats(text):
    shifts = (SMALL_SELECT.view(np.int32) % 40 - 20).view(np.uint32)
    result = lanes("gfx942", text, [FA, FB, FC, shifts, A], 1)[0]

    np.testing.assert_array_equal(f32(result), FLOATS[text])
    numbers = ~np.isnan(FLOATS[text])
    np.testing.assert_array_equal(np.signbit(f32(result))[numbers], np.signbit(FLOATS[text])[numbers])


def test_fma_rounds_once():
    (result,) = lanes("gfx942", "v_fma_f32 v40, v10, v11, v12", [FA, FB, FC], 1)
    expected = np.array([exact_fma(*map(float, row), np.float32) for row in zip(f32(FA), f32(FB), f32(FC))], np.uint32)
    nan = np.isnan(f32(expected))

    np.testing.assert_array_equal(result[~nan], expected[~nan])
    assert np.isnan(f32(result)[nan]).all()


with np.errstate(all="ignore"):
    HALVES = {"v_add_f16 v40, v10, v11": HA + HB, "v_mul_f16 v40, v10, v11": HA * HB, "v_sub_f16 v40, v10, v11": HA - HB, "v_max_f16 v40, v10, v11": np.fmax(HA, HB), "v_pk_mul_f16 v40, v10, v11": HA * HB, "v_sqrt_f16 v40, v10": np.sqrt(HA)}  # fmt: skip


@pytest.mark.parametrize("text", HALVES)
def test_halves(text):
    (result,) = lanes("gfx942", text, H, 1)

    np.testing.assert_array_equal(result.astype(np.uint16).view(np.float16), HALVES[text])
    assert (result >> 16 == 0).all()


@pytest.mark.parametrize("text", ["v_fma_f16 v40, v10, v11, v12", "v_pk_fma_f16 v40, v10, v11, v12"])
def test_half_fma_rounds_once(text):
    (result,) = lanes("gfx942", "v_mov_b32 v40, 0\n " + text, H, 1)

    expected = [exact_fma(*map(float, row), np.float16) for row in zip(HA, HB, HC)]
    np.testing.assert_array_equal(result, np.array(expected, np.uint32))


def test_orders_of_floats_treat_nan_as_missing():
    nan = np.where(DRAWN.random(COUNT) < 0.2, np.uint32(0x7FC00000), FA)
    largest, least, middle = lanes(
        "gfx942", "v_max_f32 v40, v10, v11\n v_min_f32 v41, v10, v11\n v_max3_f32 v42, v10, v11, v12", [nan, FB, FC], 3
    )

    np.testing.assert_array_equal(f32(largest), np.fmax(f32(nan), f32(FB)))
    np.testing.assert_array_equal(f32(least), np.fmin(f32(nan), f32(FB)))
    np.testing.assert_array_equal(f32(middle), np.fmax(np.fmax(f32(nan), f32(FB)), f32(FC)))


@pytest.mark.parametrize(("name", "reference"), [("exp", np.exp2), ("log", np.log2), ("rsq", lambda x: 1 / np.sqrt(x))])
def test_approximated_functions_are_within_an_ulp(name, reference):
    x = np.abs(f32(floats(-6, 6))).view(np.uint32)
    (result,) = lanes("gfx942", f"v_{name}_f32 v40, v10", [x], 1)
    with np.errstate(all="ignore"):
        expected = flushed(reference(flushed(f32(x)).astype(np.float64)).astype(np.float32))

    np.testing.assert_allclose(f32(result), expected, rtol=1.2e-7)


def test_comparisons_and_classes():
    nan = np.where(DRAWN.random(COUNT) < 0.2, np.uint32(0x7FC00000), FA)
    tests = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "neq": np.not_equal, "ge": np.greater_equal}
    tests |= {"nlt": lambda a, b: ~(a < b), "nge": lambda a, b: ~(a >= b), "o": lambda a, b: ~np.isnan(a) & ~np.isnan(b)}
    code = "\n ".join(f"v_cmp_{name}_f32 vcc, v10, v11\n v_cndmask_b32 v{40 + n}, 0, v12, vcc" for n, name in enumerate(tests))
    code += "\n v_mov_b32 v30, 0x204\n v_cmp_class_f32 vcc, v10, v30\n v_cndmask_b32 v49, 0, v12, vcc"
    results = lanes("gfx942", code, [nan, FB, np.ones_like(A)], 10)

    for name, result in zip(tests, results):
        np.testing.assert_array_equal(result.astype(bool), tests[name](f32(nan), f32(FB)), err_msg=name)
    np.testing.assert_array_equal(results[9].astype(bool), np.isinf(f32(nan)))


EIGHTS = [("gfx942", "fp8", torch.float8_e4m3fnuz), ("gfx942", "bf8", torch.float8_e5m2fnuz), ("gfx950", "fp8", torch.float8_e4m3fn), ("gfx950", "bf8", torch.float8_e5m2)]  # fmt: skip


@pytest.mark.parametrize(("arch", "name", "dtype"), EIGHTS, ids=str)
def test_eight_bit_floats_against_torch(arch, name, dtype):
    """Every code is read; numbers within the range are written, to the nearest, ties to even."""
    codes = np.resize(np.arange(256, dtype=np.uint32), COUNT)
    numbers = f32(floats(-12, 7)).clip(-200, 200) if name == "fp8" else f32(floats(-18, 14)).clip(-50000, 50000)
    code = f"v_cvt_f32_{name} v40, v10\n v_mov_b32 v41, 0\n v_cvt_pk_{name}_f32 v41, v11, v11"
    read, written = lanes(arch, code, [codes, numbers.view(np.uint32)], 2)

    expected = torch.from_numpy(codes.astype(np.uint8)).view(dtype).float().numpy()
    np.testing.assert_array_equal(f32(read), expected)
    once = torch.from_numpy(numbers.copy()).to(dtype).view(torch.uint8).numpy().astype(np.uint32)
    np.testing.assert_array_equal(written, once | once << 8)


def test_halves_of_conversions():
    with np.errstate(all="ignore"):
        expected = f32(FA).astype(np.float16).view(np.uint16)
    (half,) = lanes("gfx942", "v_cvt_f16_f32 v40, v10", [FA], 1)
    brain = lanes("gfx950", "v_cvt_pk_bf16_f32 v40, v10, v11", [FA, FB], 1)[0]
    towards_zero = lanes("gfx942", "v_cvt_pkrtz_f16_f32 v40, v10, v10", [FA], 1)[0] & 0xFFFF

    np.testing.assert_array_equal(half, expected)
    pair = [torch.from_numpy(f32(x).copy()).bfloat16().view(torch.int16).numpy().view(np.uint16).astype(np.uint32) for x in (FA, FB)]
    np.testing.assert_array_equal(brain, pair[0] | pair[1] << 16)
    finite = np.isfinite(f32(FA))
    back = towards_zero.astype(np.uint16).view(np.float16).astype(np.float64)
    assert (abs(back[finite]) <= abs(f32(FA)[finite].astype(np.float64))).all()
    nearest = expected.view(np.float16)
    usual = np.isfinite(nearest) & (abs(nearest) < 60000)
    assert (abs(nearest[usual] - back[usual]) <= np.spacing(abs(nearest[usual])).astype(np.float64)).all()
