"""The forms that `test_instructions` and `test_forms` hold to numpy on gfx942, on the four other cards, by LLVM's names there."""

from __future__ import annotations

import re

import numpy as np
import pytest
import test_forms
import test_instructions as held
from drawn import FA, FB, FC, A, B, C, H, f32
from machine_code import WAVES, assembled, lanes
from slow_cases import slow_but

CARDS = ["gfx90a", "gfx950", "gfx1100", "gfx1201"]
RENAMED = {
    "v_add_u32": "v_add_nc_u32", "v_sub_u32": "v_sub_nc_u32", "v_subrev_u32": "v_subrev_nc_u32", "v_ffbh_u32": "v_clz_i32_u32",
    "v_ffbl_b32": "v_ctz_i32_b32", "v_addc_co_u32": "v_add_co_ci_u32", "v_subb_co_u32": "v_sub_co_ci_u32", "s_andn2_b64": "s_and_not1_b64",
}  # fmt: skip
RENAMED_ON_GFX12 = {
    "v_max_f16": "v_max_num_f16",
    "v_min_f32": "v_min_num_f32",
    "v_max_f32": "v_max_num_f32",
    "v_max3_f32": "v_max3_num_f32",
}
RENAMED_ON_GFX12 |= {"s_add_i32": "s_add_co_i32", "s_sub_i32": "s_sub_co_i32", "s_addk_i32": "s_addk_co_i32"}
HALF = re.compile(r"\bv_(?!pk_|cvt_|pack)\w+_f16\b.*")


def on(arch: str, text: str) -> str:
    """Return a form as the assembler of a card writes it."""
    if WAVES[arch] == 64:
        return text
    for old, new in {**RENAMED, **(RENAMED_ON_GFX12 if arch == "gfx1201" else {})}.items():
        text = re.sub(rf"\b{old}(?=_e64|\b)", new, text)
    text = re.sub(r"\bvcc\b", "vcc_lo", text).replace("v_mad_u64_u32 v[40:41], s[10:11]", "v_mad_u64_u32 v[40:41], s10")
    text = re.sub(r"(v_cvt_f32_f16 v\d+, v\d+)$", r"\1.l", text)
    return HALF.sub(lambda found: re.sub(r"\bv([14]\d)\b", r"v\1.l", found[0]), text)


def refused(arch: str, text: str) -> bool:
    """Return whether the card has no such form. The assembler says so on standard error."""
    try:
        assembled(arch, f"\t{on(arch, text)}")
    except RuntimeError:
        return True
    return False


def wrong(arch: str, table: dict, rows: list[np.ndarray], equal) -> tuple[list[str], list[str]]:
    """Return the forms of a table whose results are not `equal`, and those that the card does not have."""
    absent = [text for text in table if refused(arch, text)]
    return [text for text in table if text not in absent and not equal(lanes(arch, on(arch, text), rows, 1)[0], table[text])], absent


@pytest.mark.parametrize("arch", slow_but(CARDS, ["gfx1201"]))
def test_integers(arch):
    found, absent = wrong(arch, held.INTEGERS, [A, B, C, held.SMALL_SELECT], np.array_equal)

    assert not found
    assert all("_sdwa" in text for text in absent)
    assert bool(absent) == (WAVES[arch] == 32)


@pytest.mark.parametrize("arch", slow_but(CARDS, ["gfx1201"]))
def test_wide_integers(arch):
    rows = [A, B, C, held.SMALL_SELECT, np.ones_like(A)]
    values = list(zip(*(row.tolist() for row in rows[:4]), strict=True))
    expected = {text: [int(result(*row)) & 2**64 - 1 for row in values] for text, result in held.WIDE.items()}
    there = [text for text in held.WIDE if not refused(arch, text.replace("0, 1, vcc", "0, v14, vcc"))]
    for text in there:
        low, high = lanes(arch, on(arch, text.replace("0, 1, vcc", "0, v14, vcc")), rows, 2)
        assert [int(a) | int(b) << 32 for a, b in zip(low, high, strict=True)] == expected[text], text

    cdna3_alone = {"v_lshl_add_u64", "v_mov_b64"}
    assert {text.split()[0] for text in held.WIDE if text not in there} == {"gfx950": set(), "gfx90a": cdna3_alone}.get(arch, cdna3_alone)


@pytest.mark.parametrize("arch", slow_but(CARDS, ["gfx1201"]))
def test_floats(arch):
    shifts = (held.SMALL_SELECT.view(np.int32) % 40 - 20).view(np.uint32)
    found, absent = wrong(arch, held.FLOATS, [FA, FB, FC, shifts, A], lambda ours, exact: np.array_equal(f32(ours), exact, equal_nan=True))

    assert not found
    assert [text.split()[0] for text in absent] == (["v_pk_mul_f32", "v_pk_add_f32"] if WAVES[arch] == 32 else [])


@pytest.mark.parametrize("arch", slow_but(CARDS, ["gfx1201"]))
def test_fused_products_round_once(arch):
    exact = [held.exact_fma(*map(float, row), np.float32) for row in zip(f32(FA), f32(FB), f32(FC), strict=True)]
    (ours,) = lanes(arch, "v_fma_f32 v40, v10, v11, v12", [FA, FB, FC], 1)

    assert np.array_equal(f32(ours), f32(np.array(exact, np.uint32)), equal_nan=True)


@pytest.mark.parametrize("arch", slow_but(CARDS, ["gfx1201"]))
def test_halves(arch):
    def equal(ours, exact):
        return np.array_equal((ours & 0xFFFF).astype(np.uint16).view(np.float16), exact, equal_nan=True)

    assert wrong(arch, held.HALVES, H, equal) == ([], [])


@pytest.mark.parametrize("arch", slow_but(CARDS, ["gfx1201"]))
def test_scalars(arch):
    """The first lane of each wave gives the operands."""
    wave = WAVES[arch]
    rows = [test_forms.A, test_forms.B, test_forms.C, test_forms.D]
    firsts = list(zip(*(row[::wave].tolist() for row in rows), strict=True))
    loads = "\n ".join(f"v_readfirstlane_b32 s{16 + n}, v{10 + n}" for n in range(4))
    there = [text for text in test_forms.SCALARS if not refused(arch, text)]
    for text in there:
        code = f"{loads}\n s_nop 4\n {on(arch, text)}\n s_nop 4\n v_mov_b32 v40, s20\n v_mov_b32 v41, s21"
        ours = list(zip(*(row[::wave].tolist() for row in lanes(arch, code, rows, 2)), strict=True))
        assert ours == [test_forms.SCALARS[text](*given) for given in firsts], text

    assert [text.split()[0] for text in test_forms.SCALARS if text not in there] == (["s_cmpk_lt_u32"] if arch == "gfx1201" else [])
