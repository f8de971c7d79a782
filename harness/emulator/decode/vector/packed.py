"""Encodings of two operations: VOP3P on both halves of a register, VOPD on two registers."""

from __future__ import annotations

from dataclasses import replace

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import (
    CONSTANT,
    HIGH,
    HIGH_FROM_HIGH,
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
)
from harness.emulator.decode.operands import row, take_both_halves, with_flags
from harness.emulator.decode.vector.ends import ACCUMULATES, destination, finish, sources
from harness.emulator.decode.vector.modifiers import output


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
        kinds[2] = NONE
    count = sum(1 for kind in kinds if kind != NONE)
    sources(at, one, codes[:count], types.s, plain=True)
    select, select_hi = at.word >> 11 & 7, (high >> 27 & 3) | (at.word >> 14 & 1) << 2
    neg, neg_hi = high >> 29, at.word >> 8 & 7
    for n in range(count):
        flags = (NEGATE if neg >> n & 1 else 0) | (NEGATE_HIGH if neg_hi >> n & 1 else 0)
        flags |= (LOW_FROM_HIGH if select >> n & 1 else 0) | (HIGH_FROM_HIGH if select_hi >> n & 1 else 0)
        kind = types.s[n]
        if one.name == "v_pk_mov_b32":
            flags = (LOW_FROM_HIGH if select & 1 else 0) | HIGH_FROM_HIGH if n == 0 else HIGH_FROM_HIGH if select >> 1 & 1 else 0
        if kind == PKF and one.s[n].kind == CONSTANT:
            # Both halves read it, whatever op_sel says: so LLVM compiles (docs/emulator.md).
            one.s[n] = replace(one.s[n], value=(one.s[n].value & 0xFFFFFFFF) * (1 | 1 << 32))
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
    if one.name.startswith(ACCUMULATES):
        one.s.append(replace(one.d, text="", flags=HIGH_FROM_HIGH if types.s[2] in (PKH, PKI, PKF) else 0))
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
