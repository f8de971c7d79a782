"""MODE.FP16_OVFL: a half that overflows is the largest number, unless an operand is infinite or a division by zero makes it so."""

from __future__ import annotations

import re

import numpy as np
import pytest
from machine_code import WAVES, lanes

COUNT = 2048
MOST = 65504.0
_DRAWN = np.random.default_rng(23)


def halves() -> np.ndarray:
    values = _DRAWN.standard_normal(COUNT) * 2.0 ** _DRAWN.uniform(-16, 14, COUNT)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, MOST, -MOST, 6e-8, 40000.0, -300.0]
    return np.where(_DRAWN.random(COUNT) < 0.4, _DRAWN.choice(edges, COUNT), values).astype(np.float16)


def floats() -> np.ndarray:
    values = _DRAWN.standard_normal(COUNT) * 2.0 ** _DRAWN.uniform(-20, 40, COUNT)
    return np.where(_DRAWN.random(COUNT) < 0.2, _DRAWN.choice([np.inf, -np.inf, np.nan, 65519.0, 65520.0], COUNT), values).astype(
        np.float32
    )


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


OPERATIONS = {
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
@pytest.mark.parametrize("code", OPERATIONS)
def test_sums_and_products(code, arch):
    a, b, c = halves(), halves(), halves()
    used = (a, b, c) if "v12" in code else (a, b)
    with np.errstate(all="ignore"):
        exact = OPERATIONS[code](*(one.astype(np.float64) for one in (a, b, c)))
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
