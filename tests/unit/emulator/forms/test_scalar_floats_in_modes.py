"""Floats of the scalar unit where MODE flushes denormals, of operands, results or both, for float and for half; and other directions."""

# ruff: noqa: E501 - an instruction is a line

from __future__ import annotations

import re

import numpy as np
import pytest
from held import unused, used
from machine_code import lanes
from slow_cases import slow_but
from statements.scalars import SCALARS
from units.on_scalars import Scalar, given, kind_of_result, name_of, run

from warpwave.emulator import Unimplemented

ARCH = "gfx1201"  # the only card that has them
KEEPS_SOURCES, KEEPS_RESULTS = 1, 2


def floats() -> dict[str, str]:
    """Return the card's scalar instructions that read or write floats, but those that take no part of MODE: they flush always."""
    both = used(ARCH) | unused(ARCH)
    return {one: text for one, text in both.items() if re.match(r"s_\w+_f(16|32)", one) and name_of(one.split()[0]) in SCALARS}


def flushed(words: list[int], width: int, count: int) -> list[int]:
    """Return `count` floats of `width` bits side by side, with zeros of the same sign where there were denormals."""
    exponent = 0x7C00 if width == 16 else 0x7F800000
    made = []
    for word in words:
        parts = [word >> width * n & (1 << width) - 1 for n in range(count)]
        parts = [part if part & exponent else part & 1 << width - 1 for part in parts]
        made.append(sum(part << width * n for n, part in enumerate(parts)))
    return made


def kind_of_operands(name: str) -> str:
    """Return the kind of numbers that an instruction reads: of a conversion, the last one that its name has."""
    return re.findall(r"_([iuf]\d+)", name)[-1]


def denormals(rows: list[list[int]]) -> list[list[int]]:
    """Make more denormals: a third of the words lose the exponents of their floats, a third those of their halves."""
    clear = (2**64 - 1, 0x807FFFFF_807FFFFF, 0x83FF83FF_83FF83FF)
    return [[word & clear[(n + at) % 3] for n, word in enumerate(row)] for at, row in enumerate(rows)]


@pytest.mark.parametrize("mode", slow_but(range(4), [0]))
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_denormals_of_scalars(kind, mode):
    """MODE of a kind changes what reads or writes that kind; where it flushes everything, the other kind's instructions run as well."""
    rows, width = denormals(given(ARCH)), int(kind[1:])
    sources = rows if mode & KEEPS_SOURCES else [flushed(row, width, 64 // width) for row in rows]
    set_ = mode | 0b1100 if kind == "f32" else mode << 2 | 0b11
    cases = []
    for one, example in floats().items():
        mnemonic = one.split()[0]
        if kind not in mnemonic and mode:
            continue
        name = name_of(mnemonic)
        case = Scalar(ARCH, one, example, sources if kind_of_operands(name) == kind else rows)
        made = kind_of_result(name) if case.values else ""
        if made.removeprefix("2") == kind and not mode & KEEPS_RESULTS:
            case.values = flushed(case.values, width, 2 if made[0] == "2" else 1)
        if case.values:
            case.codes = [row & 1 for row in rows[2]]  # they leave the condition code as it was
        at = next(n for n, line in enumerate(case.code) if line.startswith(mnemonic))
        case.code[at : at + 1] = [f"s_denorm_mode {set_}", case.code[at], "s_denorm_mode 15"]
        cases.append(case)

    assert len(cases) >= (30 if mode else 60)
    assert run(ARCH, cases, rows) == []


@pytest.mark.parametrize("text", ["s_add_f32 s12, s16, s17", "s_fmac_f16 s12, s16, s17", "s_fmaak_f32 s12, s16, s17, 0x41200000", "s_cvt_f16_f32 s12, s16"])  # fmt: skip
def test_a_direction_that_scalars_lack_is_refused(text):
    with pytest.raises(Unimplemented, match=text.split()[0]):
        lanes(ARCH, f"s_mov_b32 s16, 1.0\n s_mov_b32 s17, 0.5\n s_round_mode 5\n {text}", [np.zeros(32, np.uint32)], 1)


def test_what_rounds_to_zero_always_does_so_in_each_direction():
    code = "s_mov_b32 s16, 0x3f8fffff\n s_mov_b32 s17, 0xbf8fffff\n s_round_mode 5\n"
    code += " s_cvt_pk_rtz_f16_f32 s12, s16, s17\n v_mov_b32 v40, s12"

    assert (lanes(ARCH, code, [np.zeros(32, np.uint32)], 1)[0] == 0xBC7F3C7F).all()
