"""Vector encodings: VOP1, VOP2, VOPC, their SDWA and DPP forms, VOP3 and VOP3P."""

from __future__ import annotations

from dataclasses import replace

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import (
    ABSOLUTE,
    CLAMP,
    CONSTANT,
    EXEC,
    F16,
    F32,
    F64,
    HALF_TYPES,
    HIGH,
    HIGH_FROM_HIGH,
    KEEP_OTHER_HALF,
    LOW_FROM_HIGH,
    MASK,
    MIX,
    NEGATE,
    NEGATE_HIGH,
    NONE,
    PKF,
    PKH,
    PKI,
    ROW,
    VCC,
    Instruction,
    Operand,
)
from harness.emulator.decode.modifiers import dpp, dpp8, marked, output, sdwa
from harness.emulator.decode.operands import DPP, SDWA, half, row, take_both_halves, with_flags

_TO_SCALAR = frozenset({"v_readfirstlane_b32", "v_readlane_b32", "v_readlane_b32_e64"})
_ACCUMULATES = ("v_fmac", "v_mac_", "v_dot2c", "v_dot2acc", "v_dot4c", "v_dot8c", "v_pk_fmac")
_CARRY_IN = ("v_addc", "v_subb", "v_add_co_ci", "v_sub_co_ci", "v_subrev_co_ci")
_CARRY_OUT = (*_CARRY_IN, "v_add_co", "v_sub_co", "v_subrev_co")
# 16-bit results that keep the other half of the register on CDNA; all others clear it. RDNA keeps it always.
_KEEPS = (
    "v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16", "v_cvt_pk_fp8", "v_cvt_pk_bf8", "v_cvt_sr_",
    "v_cvt_scalef32_pk_fp8", "v_cvt_scalef32_pk_bf8", "v_fma_mix", "v_mad_mix", "v_min3_", "v_max3_", "v_med3_",
)  # fmt: skip


def vop1(at: Context) -> Instruction:
    """dst 24:17, op 16:9, src0 8:0."""
    one = at.begin("VOP1", at.word >> 9 & 0xFF)
    types = at.types(one)
    if one.name == "v_nop":
        return one
    _destination(at, one, at.word >> 17 & 0xFF)
    _sources(at, one, [at.word & 0x1FF], types.s)
    return _finish(at, one)


def vop2(at: Context) -> Instruction:
    """op 30:25, dst 24:17, src1 16:9, src0 8:0."""
    one = at.begin("VOP2", at.word >> 25 & 0x3F)
    types = at.types(one)
    target, second = at.word >> 17 & 0xFF, (at.word >> 9 & 0xFF) + 256
    _destination(at, one, target)
    if "mk_" in one.name or "ak_" in one.name:
        literal = at.literal(one)
        constant = at.registers.source(255, types.s[1], literal)
        first, third = at.source(one, at.word & 0x1FF, types.s[0]), at.source(one, second, types.s[2])
        one.s = [first, constant, third] if "mk_" in one.name else [first, third, constant]
        _name_halves(at, one)
        one.shown = [one.d.text, *(o.text for o in one.s)]
        return one
    _sources(at, one, [at.word & 0x1FF, second], types.s)
    take_both_halves(one, types.s)
    vcc = at.registers.scalar(VCC, MASK)
    if one.name.startswith(_CARRY_OUT):
        one.e = vcc
        one.shown = [one.d.text, vcc.text, *(o.text for o in one.s)]
    if one.name.startswith(("v_cndmask", *_CARRY_IN)):
        one.s.append(vcc)
        one.shown = [*(one.shown or [one.d.text, *(o.text for o in one.s[:2])]), vcc.text]
    return _finish(at, one)


def vopc(at: Context) -> Instruction:
    """op 24:17, src1 16:9, src0 8:0; the result is in VCC, for v_cmpx in EXEC."""
    one = at.begin("VOPC", at.word >> 17 & 0xFF)
    types = at.types(one)
    one.d = at.registers.scalar(VCC, MASK)
    if one.name.startswith("v_cmpx"):
        execute = at.registers.scalar(EXEC, MASK)
        one.d, one.e = (one.d, replace(execute, text="")) if at.family == "cdna" else (execute, one.e)
    _sources(at, one, [at.word & 0x1FF, (at.word >> 9 & 0xFF) + 256], types.s)
    one = _finish(at, one)
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
        _destination(at, one, target)
    if has_scalar:
        one.e = at.registers.scalar(at.word >> 8 & 0x7F, MASK)
    if one.name == "v_nop":
        return one
    codes, kinds = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF], list(types.s[:3])
    if one.name.startswith(_ACCUMULATES):
        kinds[2] = NONE
    count = 3 if one.name.startswith("v_bitop3") else sum(1 for kind in kinds if kind != NONE)
    if one.name.startswith(("v_permlane16_b32", "v_permlanex16_b32")):
        count = 3
    _sources(at, one, codes[:count], types.s, plain=True)
    take_both_halves(one, types.s)
    if one.name.startswith("v_bitop3"):
        return _truth_table(at, one, high)
    select = 0 if has_scalar or one.name.endswith("_fp4") else at.word >> 11 & 15
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
    return _finish(at, one)


def _truth_table(at: Context, one: Instruction, high: int) -> Instruction:
    """Read v_bitop3's table from the bits that are modifiers elsewhere: omod, abs, neg."""
    table = (high >> 27 & 3) << 6 | (at.word >> 8 & 7) << 3 | high >> 29
    one.s = [*one.s[:3], Operand(CONSTANT, value=table)]
    one.modifiers = [f"bitop3:{table:#x}"]
    if at.word >> 11 & 15:
        one.operation = None
    return one


def vop3p(at: Context) -> Instruction:
    """Packed: dst 7:0, neg_hi 10:8, op_sel 13:11, op_sel_hi 60:59 and 14, clamp 15, op 22:16, sources as in VOP3, neg 63:61."""
    high = at.word_at(1)
    one = at.begin("VOP3P", at.word >> 16 & 0x7F, 8)
    if one.name == "v_dot4_i32_iu8":  # negations say which bytes are signed
        at.vary(one, ("uu", "iu", "ui", "ii")[high >> 29 & 3])
        high &= ~(3 << 29)
    types = at.types(one)
    _destination(at, one, at.word & 0xFF)
    codes = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF]
    kinds = list(types.s[:3])
    if one.name.startswith(_ACCUMULATES):
        kinds[2] = NONE
    count = sum(1 for kind in kinds if kind != NONE)
    _sources(at, one, codes[:count], types.s, plain=True)
    select, select_hi = at.word >> 11 & 7, (high >> 27 & 3) | (at.word >> 14 & 1) << 2
    neg, neg_hi = high >> 29, at.word >> 8 & 7
    for n in range(count):
        flags = (NEGATE if neg >> n & 1 else 0) | (NEGATE_HIGH if neg_hi >> n & 1 else 0)
        flags |= (LOW_FROM_HIGH if select >> n & 1 else 0) | (HIGH_FROM_HIGH if select_hi >> n & 1 else 0)
        kind = types.s[n]
        if one.name == "v_pk_mov_b32":
            flags = (LOW_FROM_HIGH if select & 1 else 0) | HIGH_FROM_HIGH if n == 0 else HIGH_FROM_HIGH if select >> 1 & 1 else 0
        if kind == PKF and one.s[n].kind == CONSTANT and one.s[n].value and flags & (HIGH_FROM_HIGH | LOW_FROM_HIGH):
            one.operation = None  # what the high half of a constant is, no source says
        if kind == MIX and one.s[n].kind == CONSTANT and flags & HIGH_FROM_HIGH:
            one.s[n] = at.source(one, codes[n], PKH)
        if kind not in (PKH, PKI, PKF, MIX) and flags & (NEGATE | NEGATE_HIGH):
            one.operation = None
        one.s[n] = with_flags(one.s[n], flags)
    for name, value, usual in (("op_sel", select, 0), ("op_sel_hi", select_hi, 7), ("neg_lo", neg, 0), ("neg_hi", neg_hi, 0)):
        bits = [value >> n & 1 for n in range(count)]
        one.modifiers += [f"{name}:[{','.join(map(str, bits))}]"] if bits != [usual >> n & 1 for n in range(count)] else []
    output(one, at.word >> 15 & 1, 0)
    if "mixhi" in one.name:
        one.d = with_flags(one.d, HIGH)
    if one.name.startswith(_ACCUMULATES):
        one.s.append(replace(one.d, text=""))
    return _finish(at, one)


def _destination(at: Context, one: Instruction, code: int) -> None:
    types = at.types(one)
    if one.name in _TO_SCALAR:
        one.d = at.registers.scalar(code & 0x7F, types.d)
    else:
        one.d = row(code, types.d, accumulator=one.name == "v_accvgpr_mov_b32")


def _sources(at: Context, one: Instruction, codes: list[int], kinds: tuple[int, int, int, int], plain: bool = False) -> None:
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


def _finish(at: Context, one: Instruction) -> Instruction:
    """Add what the mnemonic implies: an accumulator, halves of registers, integer clamps that are not implemented."""
    types = at.types(one)
    if one.name.startswith(_ACCUMULATES) and len(one.s) == 2:
        one.s.append(replace(one.d, text="", flags=one.d.flags & HIGH))
    if types.d in HALF_TYPES and (at.family != "cdna" or one.name.startswith(_KEEPS)):
        one.flags |= KEEP_OTHER_HALF
    _name_halves(at, one)
    if one.flags & CLAMP and types.d not in (F16, F32, F64, PKH, PKF):
        at.saturate(one)
    return one


def _name_halves(at: Context, one: Instruction) -> None:
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


def vopd(at: Context) -> Instruction:
    """Two operations at once: opx 25:22, opy 21:17; srcx0 8:0, srcx1 16:9, dstx 63:56; srcy0 40:32, srcy1 48:41, dsty 55:49."""
    high = at.word_at(1)
    x, y = at.begin("VOPD", at.word >> 22 & 15, 8), at.begin("VOPD", at.word >> 17 & 31, 8)
    target = high >> 24
    _half_of_two(at, x, x, at.word & 0x1FF, at.word >> 9 & 0xFF, target)
    _half_of_two(at, y, x, high & 0x1FF, high >> 9 & 0xFF, (high >> 17 & 0x7F) << 1 | (~target & 1))
    # Both read before either writes. One after the other does the same if the first writes nothing that the second reads.
    x.second = y
    if any(operand.kind == ROW and operand.index == x.d.index for operand in y.s):
        x.swapped = True
        if any(operand.kind == ROW and operand.index == y.d.index for operand in x.s):
            x.operation = None
    return x


def _half_of_two(at: Context, one: Instruction, first: Instruction, source: int, second: int, target: int) -> None:
    types = at.types(one)
    one.d = row(target, types.d)
    left = at.source(first, source, types.s[0])
    right = row(second, types.s[1]) if types.s[1] else None
    one.s = [left] if right is None else [left, right]
    take_both_halves(one, types.s)
    if "mk_" in one.name or "ak_" in one.name:
        constant = at.registers.source(255, types.s[1], at.literal(first))
        one.s = [left, constant, row(second, types.s[2])] if "mk_" in one.name else [left, row(second, types.s[1]), constant]
    elif "fmac" in one.name or "dot2acc" in one.name:
        one.s.append(replace(one.d, text=""))
    elif "cndmask" in one.name:
        one.s.append(replace(at.registers.scalar(VCC, MASK), text=""))
