"""A sample of what `nox -s emulator` and `nox -s programs` compare: operations with AMD's pseudocode, random programs with numpy."""

import sys
from pathlib import Path

import numpy as np
import pytest
from machine_code import _ASSEMBLY, WAVES, lanes

from warpwave.emulator import Unimplemented

sys.path += [str(Path(__file__).parents[2] / name) for name in ("emulator_reference", "fuzz")]

import machine_code
import programs
from comparison import compare

SAMPLE = (
    r"v_(pk_)?(min|max|med)\w*_f\d+|s_(min|max)\w*_f|v_div_|v_cvt_(f32_f16|f16_f32)|v_frexp_mant|v_dot2_f32_bf16|v_ldexp"
    r"|s_cvt_f32_f16|s_xor_saveexec|s_or_saveexec|s_bfe|s_mul_hi|s_addc"
)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_operations_do_what_the_pseudocode_says(arch):
    found = compare(arch, 64, seed=3, only=SAMPLE)

    assert found.differ == []
    assert len(found.agreed) > 40


def in_mode(monkeypatch, arch: str, code: str, directives: str, *columns: int) -> list[int]:
    """Return what an instruction leaves in v40 in all lanes, in a kernel with other directives."""
    lines = [line for line in _ASSEMBLY.splitlines() if not any(word.split()[0] in line for word in directives.splitlines() if word)]
    at = next(n for n, line in enumerate(lines) if ".amdhsa_next_free_sgpr" in line)
    changed = [*lines[:at], *(f"\t\t{word}" for word in directives.splitlines()), *lines[at:]]
    monkeypatch.setattr(machine_code, "_ASSEMBLY", "\n".join(changed) + "\n")
    machine_code.assembled.cache_clear()
    try:
        rows = [np.full(WAVES[arch], bits, np.uint32) for bits in columns]
        return sorted(set(lanes(arch, code, rows, 1)[0].tolist()))
    finally:
        machine_code.assembled.cache_clear()


SIGNALS, ONE = 0x7F800001, 0x3F800000


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(("ieee", "result"), [(1, SIGNALS | 0x400000), (0, ONE)])
def test_a_signalling_nan_gives_way_where_mode_is_not_ieee(monkeypatch, arch, ieee, result):
    assert in_mode(monkeypatch, arch, "v_max_f32 v40, v10, v11", f".amdhsa_ieee_mode {ieee}", SIGNALS, ONE) == [result]


@pytest.mark.parametrize(("ieee", "denormals", "result"), [(1, 0, 0xC0000000), (0, 3, 0xC0000000), (0, 0, 0xC0800000)])
def test_a_result_is_scaled_only_without_ieee_and_denormals(monkeypatch, ieee, denormals, result):
    """Of -1 - 1. A card of RDNA3 ignores the scale in IEEE mode; ISA guides name both."""
    directives = f".amdhsa_ieee_mode {ieee}\n.amdhsa_float_denorm_mode_32 {denormals}"
    assert in_mode(monkeypatch, "gfx1100", "v_sub_f32_e64 v40, v10, v11 mul:2", directives, 0xBF800000, ONE) == [result]


def test_a_pattern_of_lanes_that_a_family_lacks_is_refused():
    broadcast = 0x7E500200 | 0xFA, 0xFF00000A | 0x142 << 8  # v_mov_b32 v40, v10 row_bcast:15
    code = ".long " + ", ".join(f"{word:#x}" for word in broadcast)
    lanes("gfx942", code, [np.zeros(64, np.uint32)], 1)
    with pytest.raises(Unimplemented):
        lanes("gfx1100", code, [np.zeros(32, np.uint32)], 1)


def on_the_card(function, tensors, warps):
    return programs.by_emulator(function, "gfx942", tensors, warps)


def test_a_program_agrees():
    assert programs.compared(3, on_the_card) == ""


def test_a_disagreement_is_reported(monkeypatch):
    _, plan, *_ = programs.drawn(3)
    last = plan[-1][0]
    text, _ = programs.WHOLE[last]
    monkeypatch.setitem(programs.WHOLE, last, (text, lambda a, b, k: np.zeros_like(a)))

    assert programs.compared(3, on_the_card).endswith("counts differ")
