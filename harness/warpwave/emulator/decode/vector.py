"""Vector encodings."""

from __future__ import annotations

from dataclasses import replace

from warpwave.emulator.decode import instruction as isa
from warpwave.emulator.decode.instruction import Instruction, Operand
from warpwave.emulator.decode.operands import DPP, SDWA, Context, half, row, take_both_halves, with_flags

# What changes operands and results of vector instructions: SDWA, DPP, source and output modifiers.

_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


def sdwa(at: Context, one: Instruction, codes: list[int], kinds: tuple[int, int, int, int], extra: int) -> None:
    """src0 7:0; sel, sext, neg, abs of src0 in 23:16, of src1 in 31:24; dst_sel 10:8, unused 12:11, clamp 13, omod 15:14, or sdst."""
    one.flags |= isa.SUBWORD
    first = (extra & 0xFF) + (0 if extra >> 23 & 1 else 256)
    one.s = [at.source(one, first, kinds[0])]
    if len(codes) > 1:
        one.s.append(at.source(one, codes[1] - 256 if extra >> 31 & 1 else codes[1], kinds[1]))
    for n, operand in enumerate(one.s):
        bits = extra >> (16 + 8 * n) & 0xFF
        flags = isa.SIGN_EXTEND * (bits >> 3 & 1) | isa.NEGATE * (bits >> 4 & 1) | isa.ABSOLUTE * (bits >> 5 & 1)
        one.s[n] = replace(marked(operand, flags), select=bits & 7)
    if at.types(one).d == isa.MASK:
        one.flags &= ~isa.SUBWORD
        if extra >> 15 & 1:
            one.d = at.scalar(extra >> 8 & 0x7F, isa.MASK)
    else:
        one.d = replace(one.d, select=extra >> 8 & 7)
        one.keep = extra >> 11 & 3
        output(one, extra >> 13 & 1, extra >> 14 & 3)
        one.modifiers += [f"dst_sel:{_PARTS[extra >> 8 & 7]}", f"dst_unused:UNUSED_{('PAD', 'SEXT', 'PRESERVE', '?')[one.keep]}"]
    one.modifiers += [f"src{n}_sel:{_PARTS[operand.select]}" for n, operand in enumerate(one.s)]


def dpp(at: Context, one: Instruction, extra: int) -> None:
    """src0 7:0, control 16:8, fetch inactive 18, bound control 19, neg and abs 23:20, bank mask 27:24, row mask 31:28."""
    one.flags |= isa.LANE_SHUFFLE | isa.BOUND_ZERO * (extra >> 19 & 1) | isa.FETCH_INACTIVE * (extra >> 18 & 1)
    one.shuffle, one.write_banks, one.write_rows = extra >> 8 & 0x1FF, extra >> 24 & 15, extra >> 28 & 15
    if not _has_pattern(at.family == "cdna", one.shuffle):
        one.operation = None
    for n in range(min(2, len(one.s))):
        flags = isa.NEGATE * (extra >> (20 + 2 * n) & 1) | isa.ABSOLUTE * (extra >> (21 + 2 * n) & 1)
        one.s[n] = marked(one.s[n], flags)
    one.modifiers += [f"dpp:{one.shuffle:#x}", f"row_mask:{one.write_rows:#x}", f"bank_mask:{one.write_banks:#x}"]


def _has_pattern(is_cdna: bool, control: int) -> bool:
    """Return whether a family has a pattern of lanes: shifts of a whole wave and broadcasts between rows are CDNA's, row_xmask RDNA's."""
    if control <= 0xFF or control in (0x140, 0x141) or 0x150 <= control <= 0x15F:
        return True
    if 0x101 <= control <= 0x12F:
        return control & 15 != 0
    return control in (0x130, 0x134, 0x138, 0x13C, 0x142, 0x143) if is_cdna else 0x160 <= control <= 0x16F


def dpp8(one: Instruction, selectors: int, fetch_inactive: bool) -> None:
    """Eight selectors of three bits, one for each lane of eight."""
    one.flags |= isa.LANE_SHUFFLE | isa.BOUND_ZERO | (isa.FETCH_INACTIVE if fetch_inactive else 0)
    one.shuffle, one.imm = 0x1000, selectors
    one.modifiers += [f"dpp8:[{','.join(str(selectors >> 3 * n & 7) for n in range(8))}]"]


def output(one: Instruction, clamp: int, scale: int) -> None:
    """Add the modifiers of a result: a clamp, and a scale of 1 (times 2), 2 (times 4) or 3 (half)."""
    one.flags |= isa.CLAMP if clamp else 0
    one.scale = scale
    one.modifiers += ["clamp"] if clamp else []
    one.modifiers += [("", "mul:2", "mul:4", "div:2")[scale]] if scale else []


def marked(operand: Operand, flags: int) -> Operand:
    """Return the operand with modifiers, also in its text."""
    text = f"|{operand.text}|" if flags & isa.ABSOLUTE else operand.text
    return replace(operand, flags=operand.flags | flags, text=f"-{text}" if flags & isa.NEGATE else text) if flags else operand


# What all vector encodings begin and end with: the destination, sources with SDWA or DPP, what a mnemonic implies.

_DPP8 = (233, 234)  # the second one fetches from lanes that are off
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
        one.d = at.scalar(code & 0x7F, types.d)
    else:
        one.d = row(code, types.d, accumulator=one.name == "v_accvgpr_mov_b32")


def sources(at: Context, one: Instruction, codes: list[int], kinds: tuple[int, int, int, int], plain: bool = False) -> None:
    """Read sources; src0 may name a second word with SDWA or DPP fields instead."""
    first = codes[0]
    is_rdna = at.family != "cdna"
    if first == SDWA and not plain and not is_rdna:
        sdwa(at, one, codes, kinds, at.next_word(one))
    elif (first == DPP and (is_rdna or not plain)) or (first in _DPP8 and is_rdna):
        extra = at.next_word(one)
        one.s = [at.operand(code, kind) for code, kind in zip([256 + (extra & 0xFF), *codes[1:]], kinds, strict=False)]
        dpp(at, one, extra) if first == DPP else dpp8(one, extra >> 8, first == _DPP8[1])
    elif one.name == "v_accvgpr_mov_b32":
        one.s = [row(first - 256, kinds[0], accumulator=True)]
    else:
        one.s = [at.source(one, code, kind) for code, kind in zip(codes, kinds, strict=False)]


def finish(at: Context, one: Instruction) -> Instruction:
    """Add what the mnemonic implies: an accumulator, halves of registers, integers that saturate."""
    types = at.types(one)
    if one.name.startswith(ACCUMULATES) and len(one.s) == 2:
        halves = isa.HIGH_FROM_HIGH if types.s[2] in (isa.PKH, isa.PKI, isa.PKF) else 0
        one.s.append(replace(one.d, text="", flags=one.d.flags & isa.HIGH | halves))
    # A result of 16 bits keeps the rest of its register, where the architecture does so.
    if types.d in isa.HALF_TYPES and (at.family != "cdna" or one.name.startswith(_KEEPS)):
        one.flags |= isa.KEEP_OTHER_HALF
    name_halves(at, one)
    is_half = types.d == isa.B16 and one.name.startswith(("v_fma", "v_mad_mix", "v_div_fixup"))  # a half that the core writes as bits
    if one.flags & isa.CLAMP and types.d not in (isa.F16, isa.F32, isa.F64, isa.PKH, isa.PKF) and not is_half:
        at.saturate(one)
    return one


def name_halves(at: Context, one: Instruction) -> None:
    """In VOP1, VOP2 and VOPC since RDNA3, v128 and above name the high halves of v0 and above."""
    if at.family == "cdna" or at.word >> 26 == 0b110011:
        return
    types = at.types(one)
    if at.word >> 26 == 0b110101:  # VOP3: the half is op_sel's
        if types.d in isa.HALF_TYPES and one.d.kind == isa.ROW:
            one.d = replace(one.d, text=f"{one.d.text}.{'h' if one.d.flags & isa.HIGH else 'l'}")
        for n, operand in enumerate(one.s):
            if types.s[n] in isa.HALF_TYPES and operand.kind == isa.ROW and operand.text:
                one.s[n] = replace(operand, text=f"{operand.text}.{'h' if operand.flags & isa.HIGH else 'l'}")
        return
    if types.d in isa.HALF_TYPES and one.d.kind == 2:
        one.d = half(replace(one.d, index=one.d.index & 127), one.d.index >= 128)
    for n, kind in enumerate(types.s):
        if kind in isa.HALF_TYPES and n < len(one.s) and one.s[n].kind == 2:
            one.s[n] = half(replace(one.s[n], index=one.s[n].index & 127), one.s[n].index >= 128)


# Encodings of two operations: VOP3P on both halves of a register, VOPD on two registers.


def vop3p(at: Context) -> Instruction:
    """Packed: dst 7:0, neg_hi 10:8, op_sel 13:11, op_sel_hi 60:59 and 14, clamp 15, op 22:16, sources as in VOP3, neg 63:61."""
    high = at.word_at(1)
    one = at.begin("VOP3P", at.word >> 16 & 0x7F, 8)
    if one.name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4"):  # negations say which parts are signed
        at.vary(one, ("uu", "iu", "ui", "ii")[high >> 29 & 3])
        high &= ~(3 << 29)
    types = at.types(one)
    destination(at, one, at.word & 0xFF)
    codes = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF]
    kinds = list(types.s[:3])
    if one.name.startswith(ACCUMULATES):
        kinds[2] = isa.NONE
    count = sum(1 for kind in kinds if kind != isa.NONE)
    sources(at, one, codes[:count], types.s, plain=True)
    select, select_hi = at.word >> 11 & 7, (high >> 27 & 3) | (at.word >> 14 & 1) << 2
    neg, neg_hi = high >> 29, at.word >> 8 & 7
    for n in range(count):
        flags = isa.NEGATE * (neg >> n & 1) | isa.NEGATE_HIGH * (neg_hi >> n & 1)
        flags |= isa.LOW_FROM_HIGH * (select >> n & 1) | isa.HIGH_FROM_HIGH * (select_hi >> n & 1)
        kind = types.s[n]
        if one.name == "v_pk_mov_b32":
            flags = isa.LOW_FROM_HIGH * (select & 1) | isa.HIGH_FROM_HIGH if n == 0 else isa.HIGH_FROM_HIGH * (select >> 1 & 1)
        if kind == isa.PKF and one.s[n].kind == isa.CONSTANT:
            # Both halves read it, whatever op_sel says: so LLVM compiles (docs/emulator.md).
            one.s[n] = replace(one.s[n], value=(one.s[n].value & 0xFFFFFFFF) * (1 | 1 << 32))
        if kind == isa.MIX and one.s[n].kind == isa.CONSTANT and flags & isa.HIGH_FROM_HIGH:
            one.s[n] = at.source(one, codes[n], isa.PKH)
        if kind not in (isa.PKH, isa.PKI, isa.PKF, isa.MIX) and flags & (isa.NEGATE | isa.NEGATE_HIGH):
            one.operation = None
        one.s[n] = with_flags(one.s[n], flags)
    for name, value, usual in (("op_sel", select, 0), ("op_sel_hi", select_hi, 7), ("neg_lo", neg, 0), ("neg_hi", neg_hi, 0)):
        bits = [value >> n & 1 for n in range(count)]
        one.modifiers += [f"{name}:[{','.join(map(str, bits))}]"] if bits != [usual >> n & 1 for n in range(count)] else []
    output(one, at.word >> 15 & 1, 0)
    if "mixhi" in one.name:
        one.d = with_flags(one.d, isa.HIGH)
    if one.name.startswith(ACCUMULATES):
        one.s.append(replace(one.d, text="", flags=isa.HIGH_FROM_HIGH if types.s[2] in (isa.PKH, isa.PKI, isa.PKF) else 0))
    return finish(at, one)


def vopd(at: Context) -> Instruction:
    """Two operations at once: opx 25:22, opy 21:17; srcx0 8:0, srcx1 16:9, dstx 63:56; srcy0 40:32, srcy1 48:41, dsty 55:49."""
    high = at.word_at(1)
    x, y = at.begin("VOPD", at.word >> 22 & 15, 8), at.begin("VOPD", at.word >> 17 & 31, 8)
    target = high >> 24
    _half_of_two(at, x, x, at.word & 0x1FF, at.word >> 9 & 0xFF, target)
    _half_of_two(at, y, x, high & 0x1FF, high >> 9 & 0xFF, (high >> 17 & 0x7F) << 1 | (~target & 1))
    # Both read before either writes. One after the other does the same if the first writes nothing that the second reads.
    x.second = y
    if any(operand.kind == isa.ROW and operand.index == x.d.index for operand in y.s):
        x.swapped = True
        if any(operand.kind == isa.ROW and operand.index == y.d.index for operand in x.s):
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
        constant = at.operand(255, types.s[1], at.literal(first))
        one.s = [left, constant, row(second, types.s[2])] if "mk_" in one.name else [left, row(second, types.s[1]), constant]
    elif "fmac" in one.name or "dot2acc" in one.name:
        one.s.append(replace(one.d, text=""))
    elif "cndmask" in one.name:
        one.s.append(replace(at.scalar(isa.VCC, isa.MASK), text=""))


# Encodings of one operation a lane: VOP1, VOP2, VOPC and VOP3.

CARRY_IN = ("v_addc", "v_subb", "v_add_co_ci", "v_sub_co_ci", "v_subrev_co_ci")
CARRY_OUT = (*CARRY_IN, "v_add_co", "v_sub_co", "v_subrev_co")


def vop1(at: Context) -> Instruction:
    """dst 24:17, op 16:9, src0 8:0."""
    one = at.begin("VOP1", at.word >> 9 & 0xFF)
    if one.name == "v_nop":
        return one
    destination(at, one, at.word >> 17 & 0xFF)
    sources(at, one, [at.word & 0x1FF], at.types(one).s)
    return finish(at, one)


def vop2(at: Context) -> Instruction:
    """op 30:25, dst 24:17, src1 16:9, src0 8:0."""
    one = at.begin("VOP2", at.word >> 25 & 0x3F)
    types = at.types(one)
    target, second = at.word >> 17 & 0xFF, (at.word >> 9 & 0xFF) + 256
    destination(at, one, target)
    if "mk_" in one.name or "ak_" in one.name:
        constant = at.operand(255, types.s[1], at.literal(one))
        first, third = at.source(one, at.word & 0x1FF, types.s[0]), at.source(one, second, types.s[2])
        one.s = [first, constant, third] if "mk_" in one.name else [first, third, constant]
        finish(at, one)
        one.shown = [one.d.text, *(o.text for o in one.s)]
        return one
    sources(at, one, [at.word & 0x1FF, second], types.s)
    take_both_halves(one, types.s)
    vcc = at.scalar(isa.VCC, isa.MASK)
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
    _compares_into(at, one, isa.VCC)
    sources(at, one, [at.word & 0x1FF, (at.word >> 9 & 0xFF) + 256], at.types(one).s)
    one = finish(at, one)
    if one.name.startswith("v_cmpx") and at.family != "cdna":
        one.shown = [o.text for o in one.s]
    return one


def _compares_into(at: Context, one: Instruction, target: int) -> None:
    """Set the mask that a comparison writes: `v_cmpx` writes EXEC, on CDNA too."""
    one.d = at.scalar(target, isa.MASK)
    if one.name.startswith("v_cmpx"):
        execute = at.scalar(isa.EXEC, isa.MASK)
        one.d, one.e = (one.d, replace(execute, text="")) if at.family == "cdna" else (execute, one.e)


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
        one.d, one.s = at.scalar(target & 0x7F, types.d), [at.source(one, high & 0x1FF, types.s[0])]
        if high >> 27 or at.word >> 8 & 0xFF:
            one.operation = None
        return one
    if types.d == isa.MASK:
        _compares_into(at, one, target & 0x7F)
    else:
        destination(at, one, target)
    if has_scalar:
        one.e = at.scalar(at.word >> 8 & 0x7F, isa.MASK)
    if one.name == "v_nop":
        return one
    codes, kinds = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF], list(types.s[:3])
    if one.name.startswith(ACCUMULATES):
        kinds[2] = isa.NONE
    count = 3 if one.name.startswith("v_bitop3") else sum(1 for kind in kinds if kind != isa.NONE)
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
        flags = isa.NEGATE * (high >> (29 + n) & 1) | isa.ABSOLUTE * (not has_scalar and at.word >> (8 + n) & 1)
        if select >> n & 1:
            flags |= isa.HIGH if types.s[n] in isa.HALF_TYPES else 0
        one.s[n] = marked(one.s[n], flags)
    if one.name.startswith(("v_permlane16", "v_permlanex16")):
        one.shuffle = select & 3
    elif select and not any(kind in isa.HALF_TYPES for kind in (types.d, *types.s)):
        one.operation = None  # a meaning of op_sel that is not implemented
    if select >> 3 and types.d in isa.HALF_TYPES:
        one.d = with_flags(one.d, isa.HIGH)
    shown = range(2) if one.name.startswith("v_permlane") else [*range(count), 3]
    if select and (at.family == "cdna" or one.name.startswith("v_permlane")):
        one.modifiers.append(f"op_sel:[{','.join(str(select >> n & 1) for n in shown)}]")
    output(one, at.word >> 15 & 1, high >> 27 & 3)
    if one.name.startswith("v_div_fmas"):
        one.s.append(replace(at.scalar(isa.VCC, isa.MASK), text=""))
    return finish(at, one)


def _truth_table(at: Context, one: Instruction, high: int) -> Instruction:
    """Read v_bitop3's table from the bits that are modifiers elsewhere: omod, abs, neg."""
    table = (high >> 27 & 3) << 6 | (at.word >> 8 & 7) << 3 | high >> 29
    one.s = [*one.s[:3], Operand(isa.CONSTANT, value=table)]
    one.modifiers = [f"bitop3:{table:#x}"]
    if at.word >> 11 & 15:
        one.operation = None
    return one
