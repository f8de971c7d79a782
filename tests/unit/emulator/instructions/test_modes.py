"""Rounding in each direction, and denormals of 16 and 64 bits, as MODE has them: exact fractions say what comes out."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from machine_code import WAVES, lanes, run

from warpwave.emulator import Unimplemented

COUNT = 512
_DRAWN = np.random.default_rng(5)
UP, DOWN, TO_ZERO = 1, 2, 3
DIRECTIONS = [UP, DOWN, TO_ZERO]
KINDS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def numbers(kind: str, count: int = COUNT) -> np.ndarray:
    """Random numbers over many binades, some denormal, large or zero."""
    info = np.finfo(KINDS[kind])
    spread = {"f16": (-14, 10), "f32": (-60, 60), "f64": (-300, 300)}[kind]
    values = _DRAWN.standard_normal(count) * 2.0 ** _DRAWN.uniform(*spread, count)
    edges = [
        0.0,
        -0.0,
        float(info.smallest_subnormal),
        -float(info.smallest_subnormal) * 3,
        float(info.tiny),
        float(info.max),
        -float(info.max),
        1.0,
    ]
    with np.errstate(all="ignore"):
        return np.where(_DRAWN.random(count) < 0.2, _DRAWN.choice(edges, count), values).astype(KINDS[kind])


def directed(exact: Fraction, kind: str, direction: int, zero: float = 0.0) -> float:
    """Round a number in a direction."""
    info = np.finfo(KINDS[kind])
    if exact == 0:
        return zero
    magnitude = abs(exact)
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, int(info.minexp))
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - int(info.nmant))
    away = (direction == UP and exact > 0) or (direction == DOWN and exact < 0)
    steps = -(-magnitude // unit) if away else magnitude // unit
    rounded = steps * unit
    most = math.inf if away else float(info.max)
    rounded_float = most if rounded >= Fraction(2) ** int(info.maxexp) else float(rounded)
    return rounded_float if exact > 0 else -rounded_float


def words(values: np.ndarray) -> list[np.ndarray]:
    if values.dtype == np.float16:
        return [values.view(np.uint16).astype(np.uint32)]
    if values.dtype == np.float64:
        both = values.view(np.uint64)
        return [(both & 0xFFFFFFFF).astype(np.uint32), (both >> np.uint64(32)).astype(np.uint32)]
    return [values.view(np.uint32)]


def value(rows: list[np.ndarray], kind: str) -> np.ndarray:
    if kind == "f16":
        return (rows[0] & 0xFFFF).astype(np.uint16).view(np.float16)
    if kind == "f64":
        return (rows[0].astype(np.uint64) | rows[1].astype(np.uint64) << np.uint64(32)).view(np.float64)
    return rows[0].view(np.float32)


def in_mode(arch: str, mode: int, code: str, rows: list[np.ndarray], results: int) -> list[np.ndarray]:
    """Run code with the low eight bits of MODE set, and back to what they were before results are stored."""
    wait = "" if WAVES[arch] == 32 else "s_nop 4\n"
    set_mode = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), "
    return lanes(arch, f"{set_mode}{mode:#x}\n {wait} {code}\n {set_mode}0xf0\n {wait}", rows, results)


OPERATIONS = {
    "f32": {
        "v_add_f32 v40, v10, v11": lambda a, b, c: a + b,
        "v_mul_f32 v40, v10, v11": lambda a, b, c: a * b,
        "v_fma_f32 v40, v10, v11, v12": lambda a, b, c: a * b + c,
    },
    "f64": {
        "v_add_f64 v[40:41], v[10:11], v[12:13]": lambda a, b, c: a + b,
        "v_fma_f64 v[40:41], v[10:11], v[12:13], v[14:15]": lambda a, b, c: a * b + c,
    },
    "f16": {
        "v_add_f16 v40, v10, v11": lambda a, b, c: a + b,
        "v_sub_f16 v40, v10, v11": lambda a, b, c: a - b,
        "v_mul_f16 v40, v10, v11": lambda a, b, c: a * b,
        "v_fma_f16 v40, v10, v11, v12": lambda a, b, c: a * b + c,
    },
}
CASES = [(kind, text, direction) for kind, texts in OPERATIONS.items() for text in texts for direction in DIRECTIONS]


@pytest.mark.parametrize(("kind", "text", "direction"), CASES, ids=str)
def test_arithmetic_rounds_in_each_direction(kind, text, direction):
    operands = [numbers(kind) for _ in range(3)]
    mode = 0xF0 | (direction if kind == "f32" else direction << 2)
    found = value(
        in_mode("gfx942", mode, f"v_mov_b32 v40, 0\n {text}", [row for one in operands for row in words(one)], 2 if kind == "f64" else 1),
        kind,
    )
    for result, *given in zip(found.tolist(), *(one.tolist() for one in operands), strict=True):
        expected = directed(OPERATIONS[kind][text](*map(Fraction, given)), kind, direction)

        assert result == expected, given


def test_packed_halves_and_conversions_round_in_each_direction():
    wide, low, high = numbers("f32"), numbers("f16"), numbers("f16")
    pair = words(low)[0] | words(high)[0] << 16
    for direction in DIRECTIONS:
        code = "v_cvt_f16_f32 v40, v10\n v_pk_mul_f16 v41, v11, v11 op_sel:[0,1] op_sel_hi:[1,0]"
        narrow, both = in_mode("gfx942", 0xF0 | direction << 2, code, [words(wide)[0], pair], 2)
        assert value([narrow], "f16").tolist() == [directed(Fraction(x), "f16", direction) for x in wide.tolist()]
        products = [directed(Fraction(x) * Fraction(y), "f16", direction) for x, y in zip(low.tolist(), high.tolist(), strict=True)]
        assert value([both], "f16").tolist() == products == value([both >> 16], "f16").tolist()


def test_the_directions_of_float_and_of_half_are_apart():
    rows = [words(numbers("f32"))[0], words(numbers("f32"))[0]]
    usual = in_mode("gfx942", 0xF0, "v_mul_f32 v40, v10, v11", rows, 1)[0]

    np.testing.assert_array_equal(in_mode("gfx942", 0xFC, "v_mul_f32 v40, v10, v11", rows, 1)[0], usual)
    assert (in_mode("gfx942", 0xF3, "v_mul_f32 v40, v10, v11", rows, 1)[0] != usual).any()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("keeps", [0, 1, 2, 3])
def test_denormals_of_half_and_double(arch, keeps):
    """Bit 0 keeps those of sources, bit 1 those of results."""

    def flushed(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)

    half = ".l" if WAVES[arch] == 32 else ""
    names = {"f16": f"v_add_f16 v40{half}, v10{half}, v11{half}", "f64": "v_add_f64 v[40:41], v[10:11], v[12:13]"}
    for kind, name in names.items():
        tiny = float(np.finfo(KINDS[kind]).tiny)
        a, b = ((_DRAWN.standard_normal(COUNT) * tiny * 2).astype(KINDS[kind]) for _ in range(2))
        found = value(
            in_mode(arch, keeps << 6 | 0x30, "v_mov_b32 v40, 0\n " + name, [*words(a), *words(b)], 2 if kind == "f64" else 1), kind
        )
        x, y = (a, b) if keeps & 1 else (flushed(a), flushed(b))
        expected = x + y if keeps & 2 else flushed(x + y)

        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_what_rounds_in_no_known_way_is_refused():
    row = words(numbers("f32"))[0]

    with pytest.raises(Unimplemented, match="v_dot2c_f32_f16"):
        in_mode("gfx942", 0xF1, "v_dot2c_f32_f16 v40, v10, v10", [row], 1)


# Denormals: what flushes them always, what flushes them if the kernel's MODE says so, and what keeps them. numpy says what comes out.

COUNT_DENORMALS, LEAST = 4096, np.float32(2.0**-126)
DRAWN = np.random.default_rng(11)


def small() -> np.ndarray:
    """Floats around the smallest normal one, half of them denormal, of both signs; zeros, infinities and ordinary numbers among them."""
    values = (DRAWN.standard_normal(COUNT_DENORMALS) * 2.0 ** DRAWN.uniform(-140, -115, COUNT_DENORMALS)).astype(np.float32)
    edges = np.array([0.0, -0.0, 1e-45, -1e-45, 2.0**-126, -(2.0**-126), 1.1754942e-38, 1.0, -3.0, np.inf, 2.0**126, 2.0**127], np.float32)
    return np.where(DRAWN.random(COUNT_DENORMALS) < 1 / 8, DRAWN.choice(edges, COUNT_DENORMALS), values)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x).astype(np.float32)


A, B, C = small(), small(), small()
WIDE = {"sqrt": np.sqrt, "rcp": np.reciprocal, "rsq": lambda x: 1 / np.sqrt(x), "log": np.log2, "exp": np.exp2}


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("name", WIDE)
def test_approximated_functions_flush_whatever_the_mode(name, arch):
    x = np.abs(A) if name != "exp" else np.linspace(-150, -120, COUNT_DENORMALS, dtype=np.float32)
    (result,) = lanes(arch, f"v_{name}_f32 v40, v10", [x.view(np.uint32)], 1)
    with np.errstate(all="ignore"):
        expected = flushed(WIDE[name](flushed(x).astype(np.float64)).astype(np.float32))

    np.testing.assert_allclose(result.view(np.float32), expected, rtol=1.2e-7, atol=0)


with np.errstate(all="ignore"):
    MODES = {
        "v_add_f32 v40, v10, v11": (lambda a, b, c: a + b),
        "v_mul_f32 v40, v10, v11": (lambda a, b, c: a * b),
        "v_sub_f32 v40, v10, v11": (lambda a, b, c: a - b),
        "v_max_f32 v40, v10, v11": (lambda a, b, c: np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))),
        "v_fma_f32 v40, v10, v11, v12": (lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32)),
        "v_add_f32_e64 v40, -v10, |v11|": (lambda a, b, c: -a + np.abs(b)),
        "v_cmp_lt_f32 vcc, v10, v11\n v_cndmask_b32 v40, 0, 1.0, vcc": (lambda a, b, c: (a < b).astype(np.float32)),
    }


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("text", MODES)
def test_arithmetic_flushes_as_mode_says(text, mode, arch):
    """Bit 0 keeps denormal sources, bit 1 denormal results."""
    if arch == "gfx1201":
        text = text.replace("vcc", "vcc_lo").replace("v_max_f32", "v_max_num_f32")
    set_mode = f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {mode}\n "
    (result,) = lanes(arch, set_mode + text, [x.view(np.uint32) for x in (A, B, C)], 1)
    known = MODES[text.replace("vcc_lo", "vcc").replace("v_max_num_f32", "v_max_f32")]
    with np.errstate(all="ignore"):
        expected = known(*(x if mode & 1 else flushed(x) for x in (A, B, C)))
        expected = expected if mode & 2 else flushed(expected)

    number = ~np.isnan(expected)  # numpy's sums of infinities have NaNs of another sign
    np.testing.assert_array_equal(result[number], expected.astype(np.float32).view(np.uint32)[number])


def test_classes_and_moves_see_denormals_in_every_mode():
    text = (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n v_cmp_class_f32 vcc, v10, v11\n v_cndmask_b32 v40, 0, 1, vcc\n v_mov_b32 v41, v10"
    )
    denormal = np.full(COUNT_DENORMALS, 0x90, np.uint32)
    classes, moved = lanes("gfx942", text, [A.view(np.uint32), denormal], 2)

    np.testing.assert_array_equal(classes, (np.abs(A) < LEAST) & (A != 0))
    np.testing.assert_array_equal(moved, A.view(np.uint32))


@triton.jit
def arithmetic(x, y, total, product, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(total + i, a + b)
    tl.store(product + i, a * b)


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("flush", [False, True])
def test_a_kernel_flushes_if_it_allows_it(flush, arch):
    x, y = torch.from_numpy(A[:1024].copy()), torch.from_numpy(B[:1024].copy())
    into = {"total": torch.zeros(1024), "product": torch.zeros(1024)}
    run(arithmetic, arch, (1,), {"x": x, "y": y, **into, "n": 1024}, {"BLOCK": 1024}, allow_flush_denorm=flush)
    of = flushed if flush else (lambda v: v)
    with np.errstate(all="ignore"):
        a, b = of(A[:1024]), of(B[:1024])

        np.testing.assert_array_equal(into["total"].numpy(), of(a + b))
        np.testing.assert_array_equal(into["product"].numpy(), of(a * b))


@triton.jit
def quotient(x, y, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.div_rn(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize("arch", WAVES)
def test_an_exact_quotient_keeps_denormals_although_its_first_step_flushes(arch):
    x, y, o = torch.from_numpy(A[:1024].copy()), torch.from_numpy(B[:1024].copy()), torch.zeros(1024)
    run(quotient, arch, (1,), {"x": x, "y": y, "o": o}, {"BLOCK": 1024})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(o.numpy(), A[:1024] / B[:1024])


@pytest.mark.parametrize(("kind", "denormal", "factor"), [("f16", 0x0200, 0x3C00), ("bf16", 0x0040, 0x7E80)])
@pytest.mark.parametrize(("arch", "keeps"), [("gfx90a", False), ("gfx942", True), ("gfx950", True)])
def test_only_the_matrix_unit_of_gfx90a_flushes_halves(arch, keeps, kind, denormal, factor):
    name = "v_mfma_f32_16x16x16_" + kind if arch != "gfx90a" else f"v_mfma_f32_16x16x16{kind}" + ("_1k" if kind == "bf16" else "")
    rows = [np.full(64, value << 16 | value, np.uint32) for value in (denormal, denormal, factor, factor)]
    result = lanes(arch, f"{name} v[40:43], v[10:11], v[12:13], 0\n s_nop 15", rows, 4)
    product = 2.0**-15 if kind == "f16" else 2.0**-127 * 2.0**126

    for row in result:
        np.testing.assert_array_equal(row.view(np.float32), np.float32(16 * product if keeps else 0))


# MODE.FP16_OVFL: a half that overflows is the largest number, unless an operand is infinite or a division by zero makes it so.

COUNT_HALF_OVERFLOW = 2048
MOST = 65504.0
_DRAWN_HALF_OVERFLOW = np.random.default_rng(23)


def halves() -> np.ndarray:
    values = _DRAWN_HALF_OVERFLOW.standard_normal(COUNT_HALF_OVERFLOW) * 2.0 ** _DRAWN_HALF_OVERFLOW.uniform(-16, 14, COUNT_HALF_OVERFLOW)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, MOST, -MOST, 6e-8, 40000.0, -300.0]
    return np.where(
        _DRAWN_HALF_OVERFLOW.random(COUNT_HALF_OVERFLOW) < 0.4, _DRAWN_HALF_OVERFLOW.choice(edges, COUNT_HALF_OVERFLOW), values
    ).astype(np.float16)


def floats() -> np.ndarray:
    values = _DRAWN_HALF_OVERFLOW.standard_normal(COUNT_HALF_OVERFLOW) * 2.0 ** _DRAWN_HALF_OVERFLOW.uniform(-20, 40, COUNT_HALF_OVERFLOW)
    return np.where(
        _DRAWN_HALF_OVERFLOW.random(COUNT_HALF_OVERFLOW) < 0.2,
        _DRAWN_HALF_OVERFLOW.choice([np.inf, -np.inf, np.nan, 65519.0, 65520.0], COUNT_HALF_OVERFLOW),
        values,
    ).astype(np.float32)


def word(low: np.ndarray, high: np.ndarray | None = None) -> np.ndarray:
    if low.dtype == np.float32:
        return low.view(np.uint32)
    both = low.view(np.uint16).astype(np.uint32)
    return both if high is None else both | high.view(np.uint16).astype(np.uint32) << np.uint32(16)


def half(row: np.ndarray, top: int = 0) -> np.ndarray:
    return (row >> np.uint32(16 * top) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)


def clamped(arch: str, code: str, rows: list[np.ndarray]) -> np.ndarray:
    wait = "" if WAVES[arch] == 32 else "s_nop 4\n"
    if WAVES[arch] == 32 and not re.match(r"v_fma_|v_pk_", code):  # registers of halves are halves of registers there
        code = re.sub(r"\bv(\d+)\b", r"v\1.l", code, count=1 if "f32" in code else 0)
    mode = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), "
    return lanes(arch, f"{mode}1\n {wait} v_mov_b32 v40, 0\n {code}\n {mode}0\n {wait}", rows, 1)[0]


def stated(exact: np.ndarray, *operands: np.ndarray, by_zero: bool = False) -> np.ndarray:
    """Round an exact result to a half; `by_zero`: a zero as the operand is divided by."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float16)
    finite = np.isfinite(np.stack([one.astype(np.float64) for one in operands])).all(0) & ~np.isnan(exact)
    if by_zero:
        finite &= operands[0] != 0
    return np.where(np.isinf(rounded) & finite, np.copysign(np.float16(MOST), rounded), rounded)


OPERATIONS_HALF_OVERFLOW = {
    "v_add_f16 v40, v10, v11": lambda a, b, c: a + b,
    "v_sub_f16 v40, v10, v11": lambda a, b, c: a - b,
    "v_mul_f16 v40, v10, v11": lambda a, b, c: a * b,
    "v_fma_f16 v40, v10, v11, v12": lambda a, b, c: a * b + c,
}


def same(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected.astype(np.float16))
    assert (np.abs(expected) == MOST).sum() > 20
    assert np.isinf(expected).sum() > 20


@pytest.mark.parametrize("arch", WAVES)
@pytest.mark.parametrize("code", OPERATIONS_HALF_OVERFLOW)
def test_sums_and_products(code, arch):
    a, b, c = halves(), halves(), halves()
    used = (a, b, c) if "v12" in code else (a, b)
    with np.errstate(all="ignore"):
        exact = OPERATIONS_HALF_OVERFLOW[code](*(one.astype(np.float64) for one in (a, b, c)))
    same(half(clamped(arch, code, [word(a), word(b), word(c)])), stated(exact, *used))


@pytest.mark.parametrize("arch", WAVES)
def test_pairs(arch):
    (a, b), (x, y) = (halves(), halves()), (halves(), halves())
    found = clamped(arch, "v_pk_mul_f16 v40, v10, v11", [word(a, b), word(x, y)])
    with np.errstate(all="ignore"):
        for top, (one, other) in enumerate([(a, x), (b, y)]):
            same(half(found, top), stated(one.astype(np.float64) * other, one, other))


@pytest.mark.parametrize("arch", WAVES)
def test_conversions(arch):
    a = floats()
    same(half(clamped(arch, "v_cvt_f16_f32 v40, v10", [word(a)])), stated(a.astype(np.float64), a))


@pytest.mark.parametrize("arch", WAVES)
def test_a_division_by_zero_stays_infinite(arch):
    a = halves()
    with np.errstate(all="ignore"):
        expected = stated(1 / a.astype(np.float64), a, by_zero=True)
    found = half(clamped(arch, "v_rcp_f16 v40, v10", [word(a)]))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(np.isinf(found), infinite)
    np.testing.assert_array_equal(found[np.abs(expected) == MOST], expected[np.abs(expected) == MOST])
    assert (np.abs(expected) == MOST).sum() > 20


# Integers that saturate, sums of small products, and lanes that swap for a Fourier transform: Python's integers say what comes out.

COUNT_SATURATION = 1024
_DRAWN_SATURATION = np.random.default_rng(9)
_EDGES = np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFF7FFF, 0x80008000], np.uint64)


def drawn() -> np.ndarray:
    """Random words, a third of them edges."""
    words = _DRAWN_SATURATION.integers(0, 2**32, COUNT_SATURATION, dtype=np.uint64)
    return np.where(_DRAWN_SATURATION.random(COUNT_SATURATION) < 0.3, _DRAWN_SATURATION.choice(_EDGES, COUNT_SATURATION), words).astype(
        np.uint32
    )


ROWS = [drawn() for _ in range(4)]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def fit(value: int, bits: int, is_signed: bool) -> int:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, least), most) & (1 << bits) - 1


def parts(word: int, bits: int, is_signed: bool) -> list[int]:
    found = [word >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [signed(one, bits) for one in found] if is_signed else found


def dot(a: int, b: int, bits: int, signs: tuple[bool, bool]) -> int:
    return sum(x * y for x, y in zip(parts(a, bits, signs[0]), parts(b, bits, signs[1]), strict=True))


def pair(function, is_signed: bool):
    """The same on both halves of words."""

    def of(*words: int) -> int:
        low, top = (fit(function(*given), 16, is_signed) for given in zip(*(parts(word, 16, is_signed) for word in words), strict=True))
        return low | top << 16

    return of


SATURATING = {
    "v_add_i32 v40, v10, v11 clamp": lambda a, b, c: fit(signed(a, 32) + signed(b, 32), 32, True),
    "v_sub_i32 v40, v10, v11 clamp": lambda a, b, c: fit(signed(a, 32) - signed(b, 32), 32, True),
    "v_subrev_u32_e64 v40, v10, v11 clamp": lambda a, b, c: fit(b - a, 32, False),
    "v_add_co_u32_e64 v40, s[10:11], v10, v11 clamp": lambda a, b, c: fit(a + b, 32, False),
    "v_sub_co_u32_e64 v40, s[10:11], v10, v11 clamp": lambda a, b, c: fit(a - b, 32, False),
    "v_add_u16_e64 v40, v10, v11 clamp": lambda a, b, c: fit((a & 0xFFFF) + (b & 0xFFFF), 16, False),
    "v_subrev_u16_e64 v40, v10, v11 clamp": lambda a, b, c: fit((b & 0xFFFF) - (a & 0xFFFF), 16, False),
    "v_sub_i16 v40, v10, v11 clamp": lambda a, b, c: fit(signed(a, 16) - signed(b, 16), 16, True),
    "v_mad_u16 v40, v10, v11, v12 clamp": lambda a, b, c: fit((a & 0xFFFF) * (b & 0xFFFF) + (c & 0xFFFF), 16, False),
    "v_mad_i16 v40, v10, v11, v12 clamp": lambda a, b, c: fit(signed(a, 16) * signed(b, 16) + signed(c, 16), 16, True),
    "v_mad_u32_u24 v40, v10, v11, v12 clamp": lambda a, b, c: fit((a & 0xFFFFFF) * (b & 0xFFFFFF) + c, 32, False),
    "v_mad_i32_i24 v40, v10, v11, v12 clamp": lambda a, b, c: fit(signed(a, 24) * signed(b, 24) + signed(c, 32), 32, True),
    "v_mad_u32_u16 v40, v10, v11, v12 clamp": lambda a, b, c: fit((a & 0xFFFF) * (b & 0xFFFF) + c, 32, False),
    "v_mad_i32_i16 v40, v10, v11, v12 clamp": lambda a, b, c: fit(signed(a, 16) * signed(b, 16) + signed(c, 32), 32, True),
    "v_sad_u32 v40, v10, v11, v12 clamp": lambda a, b, c: fit(abs(a - b) + c, 32, False),
    "v_pk_add_i16 v40, v10, v11 clamp": lambda a, b, c: pair(lambda x, y: x + y, True)(a, b),
    "v_pk_sub_u16 v40, v10, v11 clamp": lambda a, b, c: pair(lambda x, y: x - y, False)(a, b),
    "v_pk_mad_i16 v40, v10, v11, v12 clamp": lambda a, b, c: pair(lambda x, y, z: x * y + z, True)(a, b, c),
    "v_pk_mad_u16 v40, v10, v11, v12 clamp": lambda a, b, c: pair(lambda x, y, z: x * y + z, False)(a, b, c),
    "v_dot4_i32_i8 v40, v10, v11, v12 clamp": lambda a, b, c: fit(dot(a, b, 8, (True, True)) + signed(c, 32), 32, True),
    "v_dot4_u32_u8 v40, v10, v11, v12 clamp": lambda a, b, c: fit(dot(a, b, 8, (False, False)) + c, 32, False),
    "v_dot8_i32_i4 v40, v10, v11, v12": lambda a, b, c: dot(a, b, 4, (True, True)) + c,
    "v_dot8_i32_i4 v40, v10, v11, v12 clamp": lambda a, b, c: fit(dot(a, b, 4, (True, True)) + signed(c, 32), 32, True),
    "v_dot8_u32_u4 v40, v10, v11, v12": lambda a, b, c: dot(a, b, 4, (False, False)) + c,
    "v_dot2_i32_i16 v40, v10, v11, v12": lambda a, b, c: dot(a, b, 16, (True, True)) + c,
    "v_dot2_u32_u16 v40, v10, v11, v12": lambda a, b, c: dot(a, b, 16, (False, False)) + c,
}


def of_nibbles(x: int, y: int, saturates: bool):
    def meaning(a: int, b: int, c: int) -> int:
        total = dot(a, b, 4, (bool(x), bool(y))) + signed(c, 32)
        return fit(total, 32, True) if saturates else total

    return meaning


RDNA = {
    f"v_dot8_i32_iu4 v40, v10, v11, v12 neg_lo:[{x},{y},0]{clamp}": of_nibbles(x, y, bool(clamp))
    for x in (0, 1)
    for y in (0, 1)
    for clamp in ("", " clamp")
}


@pytest.mark.parametrize(("arch", "text"), [("gfx942", text) for text in SATURATING] + [("gfx1201", text) for text in RDNA])
def test_integers_saturate(arch, text):
    (found,) = lanes(arch, "v_mov_b32 v40, 0\n " + text, ROWS, 1)
    meaning = {**SATURATING, **RDNA}[text]

    assert found.tolist() == [meaning(*row) & 0xFFFFFFFF for row in zip(*(one.tolist() for one in ROWS[:3]), strict=True)]


@pytest.mark.parametrize("is_signed", [False, True])
def test_wide_sums_saturate(is_signed):
    name = "v_mad_i64_i32" if is_signed else "v_mad_u64_u32"
    low, high = lanes("gfx942", f"{name} v[40:41], s[10:11], v10, v11, v[12:13] clamp", ROWS, 2)
    expected = []
    for a, b, c, d in zip(*(one.tolist() for one in ROWS), strict=True):
        wide = c | d << 32
        total = signed(a, 32) * signed(b, 32) + signed(wide, 64) if is_signed else a * b + wide
        expected.append(fit(total, 64, is_signed))

    assert [int(x) | int(y) << 32 for x, y in zip(low, high, strict=True)] == expected


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("keep", [0, 1, 5, 16, 0x1F])
def test_lanes_swap_for_a_fourier_transform(arch, keep):
    (found,) = lanes(
        arch,
        f"ds_swizzle_b32 v40, v10 offset:{0xE000 | keep:#x}\n {'s_waitcnt 0' if arch == 'gfx942' else 's_waitcnt lgkmcnt(0)'}",
        ROWS[:1],
        1,
    )
    expected = []
    for lane in range(COUNT_SATURATION):
        turned = int(f"{lane % 32:05b}"[::-1], 2) >> bin(keep).count("1")
        expected.append(ROWS[0][lane // 32 * 32 + (turned | lane % 32 & keep)])

    assert found.tolist() == expected


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_a_packed_move_of_a_constant_fills_both_registers(arch):
    """LLVM makes a 64-bit constant of two equal halves this way (SIInstrInfo.cpp, V_MOV_B64_PSEUDO)."""
    low, high = lanes(arch, "v_pk_mov_b32 v[40:41], 7, 7", ROWS[:1], 2)
    mixed = lanes(arch, "v_pk_mov_b32 v[40:41], v[10:11], -3 op_sel:[1,0]", ROWS[:2], 2)

    assert (low == 7).all()
    assert (high == 7).all()
    np.testing.assert_array_equal(mixed[0], ROWS[1])
    assert (mixed[1] == 2**32 - 3).all()


# A constant of a packed operation is read by both halves, whether op_sel_hi is set or not, as LLVM's code for a splat needs it.

ROWS_PACKED_CONSTANTS = [np.random.default_rng(3).standard_normal(4096).astype(np.float32).view(np.uint32) for _ in range(2)]
MEANING = {
    "v_pk_add_f32 v[40:41], v[10:11], 1.0": lambda x: x + np.float32(1),
    "v_pk_mul_f32 v[40:41], v[10:11], -4.0": lambda x: x * np.float32(-4),
    "v_pk_fma_f32 v[40:41], v[10:11], 0.5, 2.0": lambda x: x * np.float32(0.5) + np.float32(2),
}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("text", MEANING)
def test_both_halves_read_the_constant(arch, text):
    for select in ("", " op_sel_hi:[1,0,0]" if "fma" in text else " op_sel_hi:[1,0]"):
        found = lanes(arch, text + select, ROWS_PACKED_CONSTANTS, 2)

        for half, row in zip(found, ROWS_PACKED_CONSTANTS, strict=True):
            np.testing.assert_array_equal(half.view(np.float32), MEANING[text](row.view(np.float32)))
