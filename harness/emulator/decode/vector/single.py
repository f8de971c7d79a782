"""Encodings of one operation a lane: VOP1, VOP2, VOPC and VOP3. Their SDWA and DPP forms are in ends.py."""

from __future__ import annotations

from dataclasses import replace

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import (
    ABSOLUTE,
    CONSTANT,
    EXEC,
    HALF_TYPES,
    HIGH,
    MASK,
    NEGATE,
    NONE,
    VCC,
    Instruction,
    Operand,
)
from harness.emulator.decode.operands import take_both_halves, with_flags
from harness.emulator.decode.vector.ends import ACCUMULATES, destination, finish, keep_other_half, name_halves, sources
from harness.emulator.decode.vector.modifiers import marked, output

CARRY_IN = ("v_addc", "v_subb", "v_add_co_ci", "v_sub_co_ci", "v_subrev_co_ci")
CARRY_OUT = (*CARRY_IN, "v_add_co", "v_sub_co", "v_subrev_co")


def vop1(at: Context) -> Instruction:
    """dst 24:17, op 16:9, src0 8:0."""
    one = at.begin("VOP1", at.word >> 9 & 0xFF)
    types = at.types(one)
    if one.name == "v_nop":
        return one
    destination(at, one, at.word >> 17 & 0xFF)
    sources(at, one, [at.word & 0x1FF], types.s)
    return finish(at, one)


def vop2(at: Context) -> Instruction:
    """op 30:25, dst 24:17, src1 16:9, src0 8:0."""
    one = at.begin("VOP2", at.word >> 25 & 0x3F)
    types = at.types(one)
    target, second = at.word >> 17 & 0xFF, (at.word >> 9 & 0xFF) + 256
    destination(at, one, target)
    if "mk_" in one.name or "ak_" in one.name:
        literal = at.literal(one)
        constant = at.registers.source(255, types.s[1], literal)
        first, third = at.source(one, at.word & 0x1FF, types.s[0]), at.source(one, second, types.s[2])
        one.s = [first, constant, third] if "mk_" in one.name else [first, third, constant]
        keep_other_half(at, one)
        name_halves(at, one)
        one.shown = [one.d.text, *(o.text for o in one.s)]
        return one
    sources(at, one, [at.word & 0x1FF, second], types.s)
    take_both_halves(one, types.s)
    vcc = at.registers.scalar(VCC, MASK)
    if one.name.startswith(CARRY_OUT):
        one.e = vcc
        one.shown = [one.d.text, vcc.text, *(o.text for o in one.s)]
    if one.name.startswith(("v_cndmask", *CARRY_IN)):
        one.s.append(vcc)
        one.shown = [*(one.shown or [one.d.text, *(o.text for o in one.s[:2])]), vcc.text]
    return finish(at, one)


def vopc(at: Context) -> Instruction:
    """op 24:17, src1 16:9, src0 8:0; the result is in VCC, for v_cmpx in EXEC."""
    one = at.begin("VOPC", at.word >> 17 & 0xFF)
    types = at.types(one)
    one.d = at.registers.scalar(VCC, MASK)
    if one.name.startswith("v_cmpx"):
        execute = at.registers.scalar(EXEC, MASK)
        one.d, one.e = (one.d, replace(execute, text="")) if at.family == "cdna" else (execute, one.e)
    sources(at, one, [at.word & 0x1FF, (at.word >> 9 & 0xFF) + 256], types.s)
    one = finish(at, one)
    if one.name.startswith("v_cmpx") and at.family != "cdna":
        one.shown = [o.text for o in one.s]
    return one


def vop3(at: Context) -> Instruction:
    """dst 7:0, abs 10:8, op_sel 14:11, clamp 15, op 25:16; src0 40:32, src1 49:41, src2 58:50, omod 60:59, neg 63:61."""
    opcode, high = at.word >> 16 & 0x3FF, at.word_at(1)
    try:
        one, has_scalar = at.begin("VOP3SD", opcode, 8), True
    except ValueError:
        one, has_scalar = at.begin("VOP3", opcode, 8), False
    if one.name.startswith("v_cvt_scalef32_pk_") and one.name.endswith("_fp4"):  # op_sel chooses the byte
        at.vary(one, f"byte{at.word >> 11 & 3}")
    types = at.types(one)
    target = at.word & 0xFF
    if one.name.startswith("v_s_"):
        one.d, one.s = at.registers.scalar(target & 0x7F, types.d), [at.source(one, high & 0x1FF, types.s[0])]
        if high >> 27 or at.word >> 8 & 0xFF:
            one.operation = None
        return one
    if types.d == MASK:
        one.d = at.registers.scalar(target & 0x7F, MASK)
        if one.name.startswith("v_cmpx"):
            execute = at.registers.scalar(EXEC, MASK)
            one.d, one.e = (one.d, replace(execute, text="")) if at.family == "cdna" else (execute, one.e)
    else:
        destination(at, one, target)
    if has_scalar:
        one.e = at.registers.scalar(at.word >> 8 & 0x7F, MASK)
    if one.name == "v_nop":
        return one
    codes, kinds = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF], list(types.s[:3])
    if one.name.startswith(ACCUMULATES):
        kinds[2] = NONE
    count = 3 if one.name.startswith("v_bitop3") else sum(1 for kind in kinds if kind != NONE)
    if one.name.startswith(("v_permlane16_b32", "v_permlanex16_b32")):
        count = 3
    sources(at, one, codes[:count], types.s, plain=True)
    take_both_halves(one, types.s)
    if one.name.startswith("v_bitop3"):
        return _truth_table(at, one, high)
    select = 0 if has_scalar or one.name.endswith("_fp4") else at.word >> 11 & 15
    if select and at.family == "rdna4" and one.name in ("v_cvt_f32_fp8", "v_cvt_f32_bf8"):  # the byte of the source, its two bits reversed
        byte, select = (select & 1) << 1 | select >> 1 & 1, 0
        one.s[0] = replace(one.s[0], select=byte if byte else one.s[0].select)
        one.modifiers.append(f"byte_sel:{byte}")
    for n in range(count):
        flags = (NEGATE if high >> (29 + n) & 1 else 0) | (ABSOLUTE if not has_scalar and at.word >> (8 + n) & 1 else 0)
        if select >> n & 1:
            flags |= HIGH if types.s[n] in HALF_TYPES else 0
        one.s[n] = marked(one.s[n], flags)
    if one.name.startswith(("v_permlane16", "v_permlanex16")):
        one.shuffle = select & 3
    elif select and not any(kind in HALF_TYPES for kind in (types.d, *types.s)):
        one.operation = None  # a meaning of op_sel that is not implemented
    if select >> 3 and types.d in HALF_TYPES:
        one.d = with_flags(one.d, HIGH)
    shown = range(2) if one.name.startswith("v_permlane") else [*range(count), 3]
    if select and (at.family == "cdna" or one.name.startswith("v_permlane")):
        one.modifiers.append(f"op_sel:[{','.join(str(select >> n & 1) for n in shown)}]")
    output(one, at.word >> 15 & 1, high >> 27 & 3)
    if one.name.startswith("v_div_fmas"):
        one.s.append(replace(at.registers.scalar(VCC, MASK), text=""))
    return finish(at, one)


def _truth_table(at: Context, one: Instruction, high: int) -> Instruction:
    """Read v_bitop3's table from the bits that are modifiers elsewhere: omod, abs, neg."""
    table = (high >> 27 & 3) << 6 | (at.word >> 8 & 7) << 3 | high >> 29
    one.s = [*one.s[:3], Operand(CONSTANT, value=table)]
    one.modifiers = [f"bitop3:{table:#x}"]
    if at.word >> 11 & 15:
        one.operation = None
    return one
