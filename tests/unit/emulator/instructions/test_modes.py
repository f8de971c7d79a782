"""Rounding in each direction, and denormals of 16 and 64 bits, as MODE has them: exact fractions say what comes out."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from machine_code import WAVES, lanes

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
