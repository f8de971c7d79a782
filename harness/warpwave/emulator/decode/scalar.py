"""Scalar encodings: SOP1, SOP2, SOPC, SOPK, SOPP and SMEM."""

from __future__ import annotations

from dataclasses import replace

from warpwave.emulator.decode import instruction as isa
from warpwave.emulator.decode.instruction import Instruction, Operand
from warpwave.emulator.decode.operands import Context, signed


def sop1(at: Context) -> Instruction:
    """dst 22:16, op 15:8, src0 7:0."""
    one = at.begin("SOP1", at.word >> 8 & 0xFF)
    types = at.types(one)
    code = at.word & 0xFF
    if one.name in ("s_setpc_b64", "s_rfe_b64"):
        one.s = [at.source(one, code, isa.B64)]
        return one
    if types.d != isa.NONE or one.operation is None:
        one.d = at.scalar(at.word >> 16 & 0x7F, types.d)
    if one.name != "s_getpc_b64":
        one.s = [at.source(one, code, types.s[0])]
    return one


def sop2(at: Context) -> Instruction:
    """op 29:23, dst 22:16, src1 15:8, src0 7:0."""
    one = at.begin("SOP2", at.word >> 23 & 0x7F)
    types = at.types(one)
    one.d = at.scalar(at.word >> 16 & 0x7F, types.d)
    one.s = [at.source(one, at.word & 0xFF, types.s[0]), at.source(one, at.word >> 8 & 0xFF, types.s[1])]
    if one.name in ("s_fmamk_f32", "s_fmaak_f32"):
        literal = at.literal(one)
        one.s.append(Operand(isa.CONSTANT, value=literal, text=f"{literal:#x}"))
        if one.name == "s_fmamk_f32":
            one.shown = [one.d.text, one.s[0].text, one.s[2].text, one.s[1].text]
    return one


def sopc(at: Context) -> Instruction:
    """op 22:16, src1 15:8, src0 7:0."""
    one = at.begin("SOPC", at.word >> 16 & 0x7F)
    types = at.types(one)
    one.s = [at.source(one, at.word & 0xFF, types.s[0]), at.source(one, at.word >> 8 & 0xFF, types.s[1])]
    return one


def sopk(at: Context) -> Instruction:
    """op 27:23, dst 22:16, immediate 15:0, signed but for unsigned comparisons."""
    one = at.begin("SOPK", at.word >> 23 & 0x1F)
    immediate = at.word & 0xFFFF
    target = at.scalar(at.word >> 16 & 0x7F, isa.B32)
    if one.name.startswith(("s_getreg", "s_setreg")):
        one.imm = immediate
        register = f"hwreg({immediate & 63}, {immediate >> 6 & 31}, {(immediate >> 11) + 1})"
        if one.name == "s_getreg_b32":
            one.d, one.shown = target, [target.text, register]
        else:
            value = target
            if one.name == "s_setreg_imm32_b32":
                literal = at.literal(one)
                value = Operand(isa.CONSTANT, value=literal, text=f"{literal:#x}")
            one.s, one.shown = [value], [register, value.text]
        return one
    if one.name == "s_call_b64":
        one.d, one.target = at.scalar(at.word >> 16 & 0x7F, isa.B64), at.pc + 4 + 4 * signed(immediate, 16)
        return one
    if one.name.startswith("s_waitcnt"):
        one.imm = immediate
        return one
    number = immediate if one.name.endswith("u32") else signed(immediate, 16)
    constant = Operand(isa.CONSTANT, value=number & 0xFFFFFFFF, text=f"{immediate:#x}")
    if one.name.startswith("s_cmpk"):
        one.s = [target, constant]
    else:
        one.d, one.s = target, [constant]
    return one


def sopp(at: Context) -> Instruction:
    """op 22:16, immediate 15:0; a branch counts in words from the next instruction."""
    one = at.begin("SOPP", at.word >> 16 & 0x7F)
    one.imm = at.word & 0xFFFF
    if one.name.startswith(("s_branch", "s_cbranch")):
        one.target = at.pc + 4 + 4 * signed(one.imm, 16)
    elif one.imm or one.name in ("s_nop", "s_waitcnt", "s_sleep", "s_trap", "s_setprio"):
        one.modifiers = [str(one.imm)]
    return one


def smem(at: Context) -> Instruction:
    """Scalar loads. CDNA: sbase 5:0, sdata 12:6, soffset_en 14, imm 17, op 25:18, offset 52:32, soffset 63:57; RDNA moved the fields."""
    word, high = at.word, at.word_at(1)
    if at.family == "cdna":
        one = at.begin("SMEM", word >> 18 & 0xFF, 8)
        has_register, has_offset, bits = word >> 14 & 1, word >> 17 & 1, 21
        if not has_register and not has_offset:
            has_register, high = 1, (high & 0x7F) << 25
    elif at.family == "rdna3":
        one = at.begin("SMEM", word >> 18 & 0xFF, 8)
        has_register, has_offset, bits = high >> 25 != isa.NULL, 1, 21
    else:
        one = at.begin("SMEM", word >> 13 & 0x3F, 8)
        has_register, has_offset, bits = high >> 25 != isa.NULL, 1, 24
    types = at.types(one)
    if one.operation is None or types.d == isa.NONE:
        return one
    if types.d < isa.REGS:  # a clock
        one.d = at.scalar(word >> 6 & 0x7F, types.d)
        return one
    one.imm = signed(high & ((1 << bits) - 1), bits) if has_offset else 0
    buffer = "buffer" in one.name
    base = at.scalar((word & 0x3F) << 1, isa.REGS + 4 if buffer else isa.B64)
    offset = at.scalar(high >> 25, isa.B32) if has_register else Operand()
    one.d, one.s = at.scalar(word >> 6 & 0x7F, types.d), [base, replace(offset, text="") if offset.kind != isa.SGPR else offset]
    places = [offset.text] if offset.kind == isa.SGPR else []
    places = [places[0] + (f" offset:{one.imm:#x}" if one.imm else "")] if places else [f"{one.imm:#x}"]
    one.shown = [one.d.text, base.text, *places]
    return one
