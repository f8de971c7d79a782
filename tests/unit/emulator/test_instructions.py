"""Each instruction against a second statement of its meaning: numpy with exact rounding, random and edge values, thousands of lanes.

LLVM assembles the instructions and numpy, torch or Python's fractions say what comes out: nothing is shared with the emulator's tables.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from machine_code import lanes

COUNT = 4096
DRAWN = np.random.default_rng(7)
EDGES = np.array([0, 1, 2, 31, 32, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x3C00, 0x7C00, 0x7E00, 0xFC00, 0x8000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00800000, 0x007FFFFF], np.uint64).astype(np.uint32)  # fmt: skip


def words() -> np.ndarray:
    """Random words, a quarter of them edges."""
    drawn = DRAWN.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32)
    return np.where(DRAWN.random(COUNT) < 0.25, DRAWN.choice(EDGES, COUNT), drawn)


def floats(lowest: float = -30, highest: float = 30) -> np.ndarray:
    """Random floats over many binades, a sixteenth of them zeros, infinities and denormals, as bits; no NaN."""
    values = (DRAWN.standard_normal(COUNT) * 2.0 ** DRAWN.uniform(lowest, highest, COUNT)).astype(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-40, 1.1754944e-38, 3.4028235e38, 1.0, 0.5], np.float32)
    return np.where(DRAWN.random(COUNT) < 1 / 16, DRAWN.choice(edges, COUNT), values).view(np.uint32)


A, B, C = words(), words(), words()
FA, FB, FC = floats(), floats(), floats()
I, J, K = A.view(np.int32), B.view(np.int32), C.view(np.int32)  # noqa: E741
X, Y, Z = A.astype(object), B.astype(object), C.astype(object)  # Python's integers: no width, no wrap


def bits(values) -> np.ndarray:
    return np.array([int(value) & 0xFFFFFFFF for value in values], np.uint64).astype(np.uint32)


def flushed(x: np.ndarray) -> np.ndarray:
    """Denormals as zeros of their sign; test_denormals.py says what flushes them."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def each(function, *columns) -> np.ndarray:
    return bits([function(*row) for row in zip(*(column.tolist() for column in columns))])


def field(value: int, start: int, width: int) -> int:
    return value >> start & (1 << width) - 1


def signed(value: int, width: int) -> int:
    return value - (1 << width) if width and value >> (width - 1) & 1 else value


def pick(high: int, low: int, selectors: int) -> int:
    """v_perm_b32, byte by byte."""
    data, result = low.to_bytes(4, "little") + high.to_bytes(4, "little"), []
    for selector in selectors.to_bytes(4, "little"):
        if selector < 8:
            result.append(data[selector])
        elif selector < 12:
            result.append(0xFF if data[(selector - 8) * 2 + 1] & 0x80 else 0)
        else:
            result.append(0 if selector == 12 else 0xFF)
    return int.from_bytes(bytes(result), "little")


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


def f32(x: np.ndarray) -> np.ndarray:
    return x.view(np.float32)


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
        "v_mul_f32_e64 v40, v10, v11 mul:2": f32(FA) * f32(FB) * np.float32(2),
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


H = [np.where(DRAWN.random(COUNT) < 0.1, DRAWN.choice(np.array([0, 0x8000, 1, 0x3FF, 0x400, 0x7BFF, 0x3C00], np.uint16), COUNT), (DRAWN.standard_normal(COUNT) * 2.0 ** DRAWN.uniform(-12, 8, COUNT)).astype(np.float16).view(np.uint16)).astype(np.uint32) for _ in range(3)]  # fmt: skip
HA, HB, HC = (x.astype(np.uint16).view(np.float16) for x in H)
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
