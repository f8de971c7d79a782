"""What all vector encodings begin and end with: the destination, sources with SDWA or DPP, what a mnemonic implies."""

from __future__ import annotations

from dataclasses import replace

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import (
    B16,
    CLAMP,
    F16,
    F32,
    F64,
    HALF_TYPES,
    HIGH,
    HIGH_FROM_HIGH,
    KEEP_OTHER_HALF,
    PKF,
    PKH,
    PKI,
    ROW,
    Instruction,
)
from harness.emulator.decode.operands import DPP, SDWA, half, row
from harness.emulator.decode.vector.modifiers import dpp, dpp8, sdwa

_TO_SCALAR = frozenset({"v_readfirstlane_b32", "v_readlane_b32", "v_readlane_b32_e64"})
ACCUMULATES = ("v_fmac", "v_mac_", "v_dot2c", "v_dot2acc", "v_dot4c", "v_dot8c", "v_pk_fmac")
# 16-bit results that keep the other half of the register on CDNA; all others clear it. RDNA keeps it always.
_KEEPS = (
    "v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16", "v_cvt_pk_fp8", "v_cvt_pk_bf8", "v_cvt_sr_",
    "v_cvt_scalef32_pk_fp8", "v_cvt_scalef32_pk_bf8", "v_fma_mix", "v_mad_mix", "v_min3_", "v_max3_", "v_med3_",
)  # fmt: skip


def destination(at: Context, one: Instruction, code: int) -> None:
    """Set the destination: a vector register, or a scalar one where the mnemonic says so."""
    types = at.types(one)
    if one.name in _TO_SCALAR:
        one.d = at.registers.scalar(code & 0x7F, types.d)
    else:
        one.d = row(code, types.d, accumulator=one.name == "v_accvgpr_mov_b32")


def sources(at: Context, one: Instruction, codes: list[int], kinds: tuple[int, int, int, int], plain: bool = False) -> None:
    """Read sources; src0 may name a second word with SDWA or DPP fields instead."""
    first = codes[0]
    is_rdna = at.family != "cdna"
    if (first == SDWA and not plain and not is_rdna) or (first == DPP and (is_rdna or not plain)) or (first in (233, 234) and is_rdna):
        one.size += 4
        extra = at.word_at(one.size // 4 - 1)
        if first == SDWA:
            sdwa(at, one, codes, kinds, extra)
        elif first == DPP:
            one.s = [at.registers.source(256 + (extra & 0xFF), kinds[0])]
            one.s += [at.registers.source(code, kind) for code, kind in zip(codes[1:], kinds[1:], strict=False)]
            dpp(one, extra)
        else:
            one.s = [at.registers.source(256 + (extra & 0xFF), kinds[0])]
            one.s += [at.registers.source(code, kind) for code, kind in zip(codes[1:], kinds[1:], strict=False)]
            dpp8(one, extra >> 8, first == 234)
        return
    accumulator = one.name == "v_accvgpr_mov_b32"
    one.s = [at.source(one, code, kind) for code, kind in zip(codes, kinds, strict=False)]
    if accumulator:
        one.s = [row(codes[0] - 256, kinds[0], accumulator=True)]


def finish(at: Context, one: Instruction) -> Instruction:
    """Add what the mnemonic implies: an accumulator, halves of registers, integers that saturate."""
    types = at.types(one)
    if one.name.startswith(ACCUMULATES) and len(one.s) == 2:
        halves = HIGH_FROM_HIGH if types.s[2] in (PKH, PKI, PKF) else 0
        one.s.append(replace(one.d, text="", flags=one.d.flags & HIGH | halves))
    keep_other_half(at, one)
    name_halves(at, one)
    is_half = types.d == B16 and one.name.startswith(("v_fma", "v_mad_mix", "v_div_fixup"))  # a half that the core writes as bits
    if one.flags & CLAMP and types.d not in (F16, F32, F64, PKH, PKF) and not is_half:
        at.saturate(one)
    return one


def keep_other_half(at: Context, one: Instruction) -> None:
    """Let a result of 16 bits keep the rest of its register, where the architecture does so."""
    if at.types(one).d in HALF_TYPES and (at.family != "cdna" or one.name.startswith(_KEEPS)):
        one.flags |= KEEP_OTHER_HALF


def name_halves(at: Context, one: Instruction) -> None:
    """In VOP1, VOP2 and VOPC since RDNA3, v128 and above name the high halves of v0 and above."""
    if at.family == "cdna" or at.word >> 26 == 0b110011:
        return
    types = at.types(one)
    if at.word >> 26 == 0b110101:  # VOP3: the half is op_sel's
        if types.d in HALF_TYPES and one.d.kind == ROW:
            one.d = replace(one.d, text=f"{one.d.text}.{'h' if one.d.flags & HIGH else 'l'}")
        for n, operand in enumerate(one.s):
            if types.s[n] in HALF_TYPES and operand.kind == ROW and operand.text:
                one.s[n] = replace(operand, text=f"{operand.text}.{'h' if operand.flags & HIGH else 'l'}")
        return
    if types.d in HALF_TYPES and one.d.kind == 2:
        one.d = half(replace(one.d, index=one.d.index & 127), one.d.index >= 128)
    for n, kind in enumerate(types.s):
        if kind in HALF_TYPES and n < len(one.s) and one.s[n].kind == 2:
            one.s[n] = half(replace(one.s[n], index=one.s[n].index & 127), one.s[n].index >= 128)
