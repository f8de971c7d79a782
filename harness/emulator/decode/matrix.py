"""Matrix instructions: MFMA of CDNA, WMMA of RDNA."""

from __future__ import annotations

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import F32, F64, Instruction
from harness.emulator.decode.operands import row


def mfma(at: Context) -> Instruction:
    """dst 7:0, cbsz 10:8, abid 14:11, acc of dst and src2 15, op 22:16; sources as in VOP3, acc of src0 and src1 60:59, blgp 63:61."""
    word, high = at.word, at.word_at(1)
    one = at.begin("MFMA", word >> 16 & 0x7F, 8)
    types = at.types(one)
    if one.name.startswith("v_accvgpr"):
        one.name += "" if one.name.endswith("_b32") else "_b32"
        reads = "read" in one.name
        one.d = row(word & 0xFF, types.d, accumulator=not reads)
        one.s = [row((high & 0x1FF) - 256, types.s[0], accumulator=True) if reads else at.source(one, high & 0x1FF, types.s[0])]
        return one
    if "smfmac" in one.name:
        one.operation = None
        return one
    in_acc = bool(word >> 15 & 1)
    one.d = row(word & 0xFF, types.d, in_acc)
    one.s = [row((high & 0x1FF) - 256, types.s[0], bool(high >> 27 & 1)), row((high >> 9 & 0x1FF) - 256, types.s[1], bool(high >> 28 & 1))]
    third = high >> 18 & 0x1FF
    kind = F64 if "f64" in one.name else F32
    one.s.append(row(third - 256, types.s[2], in_acc) if third >= 256 else at.registers.source(third, kind))
    cbsz, abid, blgp = word >> 8 & 7, word >> 11 & 15, high >> 29
    one.shuffle = cbsz | abid << 3 | blgp << 7
    one.modifiers = [f"{name}:{value}" for name, value in (("cbsz", cbsz), ("abid", abid), ("blgp", blgp)) if value]
    return one


def wmma(at: Context) -> Instruction:
    """Encoded as other packed instructions; the negations of bytes say that they are signed."""
    word, high = at.word, at.word_at(1)
    one = at.begin("VOP3P", word >> 16 & 0x7F, 8)
    types = at.types(one)
    one.d = row(word & 0xFF, types.d)
    one.s = [row((high & 0x1FF) - 256, types.s[0]), row((high >> 9 & 0x1FF) - 256, types.s[1])]
    third = high >> 18 & 0x1FF
    one.s.append(row(third - 256, types.s[2]) if third >= 256 else at.registers.source(third, F32))
    negated, negated_hi, clamp = high >> 29, word >> 8 & 7, word >> 15 & 1
    if "iu8" in one.name:
        one.shuffle = negated & 3
        one.modifiers = [f"neg_lo:[{negated & 1},{negated >> 1 & 1},{negated >> 2}]"] if negated else []
    if clamp or negated_hi or (negated and "iu8" not in one.name) or negated >> 2:
        one.operation = None
    return one
