"""Matrix instructions: MFMA of CDNA, WMMA of RDNA."""

from __future__ import annotations

from harness.emulator.decode.context import Context
from harness.emulator.decode.instruction import B32, F32, F64, FLUSHES, REGS, Instruction
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
    if one.name == "v_mfma_ld_scale_b32":
        return _scaled(at)
    if "smfmac" in one.name:
        one.operation = None
        return one
    in_acc = bool(word >> 15 & 1)
    one.d = row(word & 0xFF, types.d, in_acc)
    formats = (word >> 8 & 7, high >> 29) if "f8f6f4" in one.name else ()
    if set(formats) & {2, 3, 5, 6, 7}:
        one.operation = None  # floats of 6 bits
    kinds = [REGS + 4 if value == 4 else REGS + 8 for value in formats] or types.s
    one.s = [row((high & 0x1FF) - 256, kinds[0], bool(high >> 27 & 1)), row((high >> 9 & 0x1FF) - 256, kinds[1], bool(high >> 28 & 1))]
    third = high >> 18 & 0x1FF
    kind = F64 if "f64" in one.name else F32
    one.s.append(row(third - 256, types.s[2], in_acc) if third >= 256 else at.registers.source(third, kind))
    if at.architecture == "gfx90a" and one.name.endswith("f16"):
        one.flags |= FLUSHES
    cbsz, abid, blgp = word >> 8 & 7, word >> 11 & 15, high >> 29
    one.shuffle = cbsz | abid << 3 | blgp << 7
    one.modifiers = [f"{name}:{value}" for name, value in (("cbsz", cbsz), ("abid", abid), ("blgp", blgp)) if value]
    return one


def _scaled(at: Context) -> Instruction:
    """Read the scales of a product, and the product itself behind them: op_sel 12:11 and op_sel_hi 60:59 choose a byte of each scale."""
    word, high, pc = at.word, at.word_at(1), at.pc
    scales = [at.source(Instruction("", 8), high & 0x1FF, B32), at.source(Instruction("", 8), high >> 9 & 0x1FF, B32)]
    at.move(pc + 8)
    one = mfma(at)
    at.move(pc)
    low, top = word >> 11 & 3, high >> 27 & 3
    one.pc, one.size = pc, 16
    one.e, one.s = scales[0], [*one.s, scales[1]]
    one.imm = 16 | (low & 1 | (top & 1) << 1) | (low >> 1 | top >> 1 << 1) << 2
    one.name = one.name.replace("v_mfma_", "v_mfma_scale_")
    one.shown = [one.d.text, *(o.text for o in one.s[:3]), scales[0].text, scales[1].text]
    one.modifiers = [f"op_sel:[{low & 1},{low >> 1},0]", f"op_sel_hi:[{top & 1},{top >> 1},0]", *one.modifiers]
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
    if one.name.startswith(("v_wmma_f16", "v_wmma_bf16")):
        one.shuffle = (word >> 13 & 1) << 2
        one.modifiers = ["op_sel:[0,0,1]"] if one.shuffle else []
    if clamp or negated_hi or (negated and "iu8" not in one.name) or negated >> 2:
        one.operation = None
    return one
