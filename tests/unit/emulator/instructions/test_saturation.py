"""Integers that saturate, sums of small products, and lanes that swap for a Fourier transform: Python's integers say what comes out."""

from __future__ import annotations

import numpy as np
import pytest
from machine_code import lanes

COUNT = 1024
_DRAWN = np.random.default_rng(9)
_EDGES = np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFF7FFF, 0x80008000], np.uint64)


def drawn() -> np.ndarray:
    """Random words, a third of them edges."""
    words = _DRAWN.integers(0, 2**32, COUNT, dtype=np.uint64)
    return np.where(_DRAWN.random(COUNT) < 0.3, _DRAWN.choice(_EDGES, COUNT), words).astype(np.uint32)


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
    for lane in range(COUNT):
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
